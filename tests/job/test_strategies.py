"""Users' strategies by entry point: which are found, and what is said of those that are not."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest

from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.errors import SetupError
from coordlib.job.main import coordinator
from coordlib.job.main.coordinator import load_strategies

HERE = "tests.job.test_strategies"
NO_FUNCTION = 7


def mine(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """What a user's entry point names."""
    return {name: {} for name in members}


def registered(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    made = [EntryPoint(name, value, coordinator.ENTRY_POINTS) for name, value in points]
    found = {coordinator.ENTRY_POINTS: made}
    monkeypatch.setattr(coordinator, "entry_points", lambda group: found.get(group, []))


def test_those_that_are_named_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is installed and not named is not offered, and not even imported."""
    registered(monkeypatch, ("mine", f"{HERE}:mine"), ("other", "no.such.module:x"))

    assert load_strategies(["mine", "mine"]) == {"mine": mine}
    assert load_strategies([]) == {}


@pytest.mark.parametrize(
    ("name", "points", "parts"),
    [
        ("yours", [("mine", f"{HERE}:mine")], ("There is no such", "'yours'; ", "Install")),
        ("sticky", [("sticky", f"{HERE}:mine")], ("name of a built-in", "'sticky'", "another")),
        ("range", [], ("name of a built-in", "'range'", "another")),
        ("mine", [("mine", f"{HERE}:gone")], ("cannot be loaded", f"= {HERE}:gone", "Correct")),
        ("mine", [("mine", "no.such.module:x")], ("cannot be loaded", "no.such.module", "Correct")),
        ("mine", [("mine", f"{HERE}:NO_FUNCTION")], ("no function: it is a int", HERE, "function")),
        ("mine", [("mine", "a:b"), ("mine", "c:d")], ("Several packages", "mine = ", "Remove")),
    ],
    ids=["unknown", "shadows", "built-in", "not there", "no module", "no function", "twice"],
)
def test_what_cannot_be_loaded_says_so_in_three_parts(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    points: list[tuple[str, str]],
    parts: tuple[str, str, str],
) -> None:
    """The job refuses to start, rather than to divide otherwise than it was told."""
    registered(monkeypatch, *points)

    with pytest.raises(SetupError) as refused:
        load_strategies([name])

    said = (refused.value.what, refused.value.where, refused.value.hint)
    assert all(part in text for part, text in zip(parts, said, strict=True)), said
