"""Which acts are played: the usual ones, those that are named, all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.demo import acts, run, scenario
from coordlib.demo.act import Act
from coordlib.errors import SetupError
from coordlib.exit_codes import OK, USAGE
from coordlib.local import stack_folder
from coordlib.local.progress import silent
from coordlib.local.stack import Stack

ALL_GROUPS = ["order-readers", "click-readers", "later-readers"]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Groups of the acts that were played; nothing is started."""
    played: list[str] = []

    def play(act: Act, *_: object) -> None:
        played.append(act.group)

    monkeypatch.setenv("COORD_HOME", str(tmp_path))
    monkeypatch.setattr(Act, "play", play)
    monkeypatch.setattr(Act, "tell", lambda *_: [])
    monkeypatch.setattr(scenario, "_start", _nothing)
    monkeypatch.setattr(scenario, "end_leftovers", _nothing)
    monkeypatch.setattr(Stack, "down", _nothing)
    return played


def _nothing(*_: object, **__: object) -> None: ...


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> str:
    """A protocol that came later, with its act."""
    classic = acts.ACTS["classic"]
    assert isinstance(classic, Act)
    act = replace(classic, group="later-readers")
    monkeypatch.setitem(acts.ACTS, "later", act)
    return act.group


def test_plain_demo_plays_two_acts_whatever_others_there_are(played: list[str], third: str) -> None:
    """People try it first of all: it must not take longer with each protocol."""
    assert run(silent, _nothing) == OK

    assert played == ["order-readers", "click-readers"]
    assert third not in played


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        ([], ["order-readers", "click-readers"]),
        (["--act", "assigned"], ["click-readers"]),
        (["--act", "assigned", "--act", "classic"], ["click-readers", "order-readers"]),
        (["--act", "classic", "--act", "classic"], ["order-readers"]),
        (["--act", "all"], ALL_GROUPS),
        (["--act", "later", "--act=all"], ALL_GROUPS),
        (["--act", "later"], ["later-readers"]),
    ],
    ids=" ".join,
)
def test_acts_that_are_named_are_played(
    arguments: list[str], groups: list[str], played: list[str], third: str
) -> None:
    """Each once: a topic of an act that is played twice would be there already."""
    assert main(["demo", *arguments]) == OK

    assert played == groups


@pytest.mark.parametrize(
    "names",
    [["nothing"], ["classic", "Assigned"], [""], ["x" * 5_000], ["brokers"]],
)
def test_a_wrong_name_lists_the_acts_and_starts_nothing(
    names: list[str], played: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The earlier demo's folder, which somebody may still look into, is not deleted for it."""
    with pytest.raises(SetupError):
        scenario.play(silent, _nothing, keep=False, names=names)
    assert main(["demo", *(f"--act={name}" for name in names)]) == USAGE

    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 3
    assert all(name in told.err for name in acts.ACTS)
    assert len(told.err) < 500
    assert played == []


def test_where_to_look_is_told_of_the_act_that_was_played(
    played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that the history does not have."""
    told: list[str] = []
    tell: Callable[[Any], None] = told.append
    run(tell, _nothing, acts=["classic"])

    assert any("groups history order-readers" in line for line in told)
    assert not any("click-readers" in line for line in told)


def test_acts_share_nothing_that_one_of_them_could_leave_for_another() -> None:
    """They are played on one stack, in any order, or alone."""
    for what in ("topic", "group", "file", "title"):
        assert len({getattr(act, what) for act in acts.ACTS.values()}) == len(acts.ACTS)
    # What is left in the folder by name would keep the next demo from starting.
    assert {act.file for act in acts.ACTS.values()} <= set(stack_folder.CHILDREN)
    assert set(acts.USUAL) <= acts.ACTS.keys()
    assert acts.ALL not in acts.ACTS
