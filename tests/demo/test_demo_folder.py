"""Whose folder the demo deletes: one of its own, and no stack that only has its name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordlib.demo import scenario
from coordlib.errors import SetupError
from coordlib.local import stack_folder
from coordlib.local.progress import silent
from coordlib.local.stack import Stack

STATE = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": 4}


class EndOfTestError(Exception):
    """The demo would start its broker now."""


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the demo has done to its stack; nothing is started."""
    done: list[str] = []
    really_down = Stack.down

    def up(stack: Stack, *_: Any) -> None:
        done.append(f"up in {sorted(path.name for path in stack.home.iterdir())}")
        raise EndOfTestError

    def down(stack: Stack, wipe: bool = False, progress: Any = silent) -> None:
        done.append("wipe" if wipe else "down")
        really_down(stack, wipe, progress)

    def note(what: str) -> Callable[..., Any]:
        return lambda *_: done.append(what)

    monkeypatch.setenv("COORD_HOME", str(tmp_path))
    monkeypatch.setattr(Stack, "up", up)
    monkeypatch.setattr(Stack, "down", down)
    monkeypatch.setattr(scenario, "end_leftovers", note("end leftovers"))
    for module in ("stack", "job", "broker"):
        monkeypatch.setattr(f"coordlib.local.{module}.belonging_to", lambda *_: [])
    return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "stacks" / "demo"


def write_stack(home: Path) -> None:
    (home / "tables").mkdir(parents=True)
    (home / "tables" / "kept").write_text("a week of history")
    (home / stack_folder.STATE).write_text(json.dumps(STATE))


def test_a_stack_that_only_has_the_name_is_left_alone(home: Path, done: list[str]) -> None:
    """`coord up --stack demo`, work for a week, `coord demo`: all of it was deleted."""
    write_stack(home)

    with pytest.raises(SetupError, match="not of the demo") as refused:
        scenario.play(silent, lambda *_: None, keep=False)

    assert "coord down --wipe --stack demo" in refused.value.hint
    assert done == []
    assert (home / "tables" / "kept").read_text() == "a week of history"


def test_an_earlier_demo_is_deleted_and_the_new_one_is_known_as_such(
    home: Path, done: list[str]
) -> None:
    """Every demo starts from an empty folder."""
    write_stack(home)
    (home / stack_folder.DEMO).touch()

    with pytest.raises(EndOfTestError):
        scenario.play(silent, lambda *_: None, keep=False)

    assert done == ["end leftovers", "wipe", "up in ['demo']", "end leftovers", "down"]
    assert not (home / "tables").exists()


@pytest.mark.parametrize("left", [(), (stack_folder.DEMO,), (stack_folder.DEMO, "lock")])
def test_a_demo_that_was_ended_before_it_began_is_no_hindrance(
    left: tuple[str, ...], home: Path, done: list[str]
) -> None:
    """Ctrl-C in the first moment: the folder is there, and no state of a stack in it."""
    home.mkdir(parents=True)
    for name in left:
        (home / name).touch()

    with pytest.raises(EndOfTestError):
        scenario.play(silent, lambda *_: None, keep=False)

    assert done[0].startswith("up in ['demo'")


def test_a_deleted_demo_leaves_no_folder(home: Path, done: list[str]) -> None:
    """What the demo makes is the stack's to delete."""
    write_stack(home)
    (home / stack_folder.DEMO).touch()

    assert stack_folder.wipe(home) == []
    assert not home.exists()
