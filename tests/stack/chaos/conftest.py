"""A scene for each scenario, and a table of what was seen, at the end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from coordlib.job.crash import PLACES
from coordlib.local.stack import Stack
from tests.stack.chaos.scene import Scene
from tests.stack.lists import Lists
from tests.stack.recorded import checked_history

Tell = Callable[[str], None]


@dataclass
class _Survived:
    """By all scenarios of this run that ended well."""

    #: (scenario, what was seen)
    seen: list[tuple[str, str]] = field(default_factory=list)
    #: Where the job died, as often as it did.
    crashes: list[str] = field(default_factory=list)
    history_lines: int = 0


_SURVIVED: Final = _Survived()


@pytest.fixture
def scene(own_stack: Stack, tmp_path: Path) -> Iterator[Scene]:
    with Scene(own_stack, tmp_path) as scene:
        yield scene


@pytest.fixture
def lists(own_stack: Stack) -> Iterator[Lists]:
    """What appenders append to."""
    with Lists(own_stack.bootstrap_servers, "lists", 3) as lists:
        yield lists


@pytest.fixture
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """A line of the summary; only who ends well tells one, with a history that was checked."""
    name = request.node.name.removeprefix("test_").replace("_", " ")

    def told(seen: str) -> None:
        history = checked_history(tmp_path)
        _SURVIVED.history_lines += len(history.read_text().splitlines())
        _SURVIVED.seen.append((name, seen))
        if "scene" in request.fixturenames:
            _SURVIVED.crashes += request.getfixturevalue("scene").crashes

    return told


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _SURVIVED.seen:
        return
    terminalreporter.section("what was broken, and what was seen")
    for name, seen in _SURVIVED.seen:
        terminalreporter.write_line(f"{name}\n    {seen}")
    crashes = _SURVIVED.crashes
    terminalreporter.write_line(
        f"{len(_SURVIVED.seen)} scenarios survived, {len(set(crashes))} of {len(PLACES)} crash "
        f"points, at which the job died {len(crashes)} times; "
        f"{_SURVIVED.history_lines:,} lines of history keep what `tests.tools check` demands"
    )
