"""The page about the states of a slot, drawn from the code's own table (`make diagrams`)."""

import ast
import inspect
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from coordlib.core.claims.soundness import TRANSITIONS, State

PAGE: Final = Path(__file__).parents[3] / "docs/explanation/claims.md"
BEGIN: Final = "<!-- drawn from the code by `make diagrams`: begin -->"
END: Final = "<!-- end -->"


def rows_of(states: type[StrEnum]) -> Iterator[str]:
    """A row for each state: what it means, and what is done in it."""
    for name, words in _words_of(states).items():
        meaning, _, rest = words.partition("action: ")
        action = rest.partition("transition: ")[0]
        yield f"| {name.value} | {_one_line(meaning)} | {_one_line(action)} |"


def _words_of(states: type[StrEnum]) -> dict[StrEnum, str]:
    """The text below each member of the enum, which Python itself throws away."""
    (enum,) = ast.parse(inspect.getsource(states)).body
    assert isinstance(enum, ast.ClassDef)
    found = {}
    for member, below in zip(enum.body, enum.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            (name,) = member.targets
            assert isinstance(name, ast.Name)
            assert isinstance(below.value, ast.Constant)
            found[states[name.id]] = str(below.value.value)
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def drawn() -> str:
    """All that stands between the marks."""
    lines = ["| state | what it means | what is done in it |", "|---|---|---|", *rows_of(State)]
    return "\n".join([*lines, "", *_diagram(), "", *_events()])


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.UNCLAIMED.value}"
    for (before, after), verdicts in TRANSITIONS.items():
        names = ", ".join(verdict.value for verdict in verdicts)
        yield f"    {before.value} --> {after.value}: {names}"
    yield f"    {State.LIVE.value} --> {State.STALE.value}: time"
    yield "```"


def _events() -> Iterator[str]:
    yield "| from | to | verdict | by |"
    yield "|---|---|---|---|"
    for (before, after), verdicts in TRANSITIONS.items():
        for verdict, by in verdicts.items():
            yield f"| {before.value} | {after.value} | {verdict.name} | {by} |"


def with_drawing(page: str) -> str:
    """The page with the newest drawing. Raises ValueError: it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The page needs a line {BEGIN!r} and, after it, a line {END!r}.")
    return f"{before}{BEGIN}\n{drawn()}\n{END}{after}"


def write() -> None:
    """Draw the page afresh."""
    PAGE.write_text(with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
