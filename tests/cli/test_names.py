"""Names that are none are refused before any broker is asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.exit_codes import USAGE

WHERE = ["--bootstrap-servers", "nowhere:1"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Where]]:
    """The clusters that commands have asked; none of them answers."""
    found: list[Where] = []

    def reach(where: Where) -> dict[str, Any]:
        found.append(where)
        raise TimeoutError

    monkeypatch.setattr(Where, "reach", reach)
    return found


@pytest.mark.parametrize("name", ["", "x" * 250, "a\x1b[2J", "é" * 125])
@pytest.mark.parametrize(
    "command",
    [
        ["groups", "describe", "NAME"],
        ["groups", "delete", "NAME", "--yes"],
        ["groups", "release", "NAME"],
        ["groups", "history", "NAME", "--tables", "/nowhere"],
        ["groups", "remove-members", "NAME", "--all", "--yes"],
        ["groups", "remove-members", "g", "--yes", "--member", "NAME"],
        ["groups", "remove-members", "g", "--yes", "--member", "m", "--member", "NAME"],
        ["groups", "remove-members", "g", "--yes", "--instance", "NAME"],
        ["offsets", "delete", "NAME", "--yes", "--topics", "t"],
        ["offsets", "delete", "g", "--yes", "--topics", "NAME"],
        ["offsets", "delete", "g", "--yes", "--topics", "NAME:0"],
        ["offsets", "delete", "g", "--yes", "--topics", "t", "--topics", "NAME"],
        ["groups", "list", "--topic", "NAME"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_a_name_goes_to_no_broker(
    command: list[str], name: str, asked: list[Where], capsys: pytest.CaptureFixture[str]
) -> None:
    """`groups delete "$GROUP"` with GROUP unset asked the coordinator for a group without name."""
    assert main([word.replace("NAME", name) for word in command] + WHERE) == USAGE

    told = capsys.readouterr().err.splitlines()
    assert asked == []
    assert len(told) == 3
    assert "name" in told[0]
    assert "1 to 249" in told[2]


@pytest.mark.parametrize("topic", ["a b", "a/b", ".", "..", "größe", "a:0"])
def test_a_topic_that_kafka_cannot_have_is_told(topic: str, asked: list[Where]) -> None:
    """The list was empty, as if nobody read the topic that was mistyped."""
    assert main(["groups", "list", "--topic", topic, *WHERE]) == USAGE
    assert asked == []


@pytest.mark.parametrize(
    "topics",
    [
        ["t", "t:0"],
        ["t:0", "t"],
        ["t:-1"],
        ["t:0,-1"],
        ["t:1.5"],
        ["t:٣"],
        ["t: 1"],
        ["t:2147483648"],
    ],
)
def test_partitions_that_are_not_clear_are_told(topics: list[str], asked: list[Where]) -> None:
    """A topic that is named whole and in part deletes less or more than was meant."""
    given = [word for each in topics for word in ("--topics", each)]

    assert main(["offsets", "delete", "g", "--yes", *given, *WHERE]) == USAGE
    assert asked == []


def test_partitions_of_a_topic_are_gathered(
    asked: list[Where], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--topics orders:0 --topics orders:1` deleted the last one only, and ended well."""
    named: list[Any] = []

    class Admin:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> "Admin":
            return self

        def __exit__(self, *_: object) -> None: ...

        def delete_offsets(self, group: str, topics: Any) -> tuple[int, tuple[()]]:
            named.append((group, topics))
            return 4, ()

    monkeypatch.setattr(Where, "reach", lambda _: {})
    monkeypatch.setattr("coordlib.client.admin.Admin", Admin)
    given = ["orders:0", "orders:1", "a.b", "orders:1,2"]
    options = [word for each in given for word in ("--topics", each)]

    assert main(["offsets", "delete", "g", "--yes", *options, *WHERE]) == 0
    assert named == [("g", {"orders": (0, 1, 2), "a.b": None})]
