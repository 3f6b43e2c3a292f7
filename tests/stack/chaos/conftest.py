"""A scene for each scenario, and a table of what was seen, at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from coordlib.local.stack import Stack
from tests.stack.chaos.scene import Scene

#: (scenario, what was seen)
_SEEN: Final[list[tuple[str, str]]] = []

Tell = Callable[[str], None]


@pytest.fixture
def scene(own_stack: Stack, tmp_path: Path) -> Iterator[Scene]:
    with Scene(own_stack, tmp_path) as scene:
        yield scene


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """A line of the summary; only who ends well tells one."""
    name = request.node.name.removeprefix("test_").replace("_", " ")
    return lambda seen: _SEEN.append((name, seen))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _SEEN:
        terminalreporter.section("what was broken, and what was seen")
        for name, seen in _SEEN:
            terminalreporter.write_line(f"{name}\n    {seen}")
