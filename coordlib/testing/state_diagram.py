"""The page about a classic group's states, drawn from the code that it is about.

    python -m coordlib.testing.state_diagram      writes it (make diagrams)

States and their meaning come from the enum's own words, arrows from `VALID_PREVIOUS_STATES`, what
stands beside them from `CAUSES`, and file names from the handlers. Text around the marks is kept.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from coordlib.coordinators.classic import group, guards, machine, pending, timers
from coordlib.coordinators.classic.causes import CAUSES
from coordlib.coordinators.classic.causes import GUARD as GUARD_EVENT
from coordlib.coordinators.classic.causes import PENDING as PENDING_EVENT
from coordlib.coordinators.classic.group import VALID_PREVIOUS_STATES, State
from coordlib.coordinators.offsets import retention

PAGE = Path(group.__file__).with_name("README.md")
BEGIN = "<!-- drawn from the code by `make diagrams`: begin -->"
END = "<!-- end -->"

#: Deadlines that are not judged where they are counted.
_ELSEWHERE = {
    retention.CAUSE: retention.__name__,
    GUARD_EVENT: guards.__name__,
    PENDING_EVENT: pending.__name__,
}
_HANDLERS = {request.__name__: handler for request, handler in machine.HANDLERS.items()}


def drawn() -> str:
    """All that stands between the marks."""
    return "\n".join([*_states(), "", *_diagram(), "", *_events()])


def with_drawing(page: str) -> str:
    """A page with the newest drawing between its marks. Raises ValueError when there are none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The page needs a line {BEGIN!r} and, after it, a line {END!r}.")
    return f"{before}{BEGIN}\n{drawn()}\n{END}{after}"


def _states() -> Iterator[str]:
    yield "| state | what it means | what is done in it |"
    yield "|---|---|---|"
    for state, words in _words_of_states().items():
        meaning, _, rest = words.partition("action: ")
        action = rest.partition("transition: ")[0]
        yield f"| {state.value} | {_one_line(meaning)} | {_one_line(action)} |"


def _words_of_states() -> dict[State, str]:
    """The text below each member of the enum, which Python itself throws away."""
    (kind,) = ast.parse(inspect.getsource(State)).body
    assert isinstance(kind, ast.ClassDef)
    found = {}
    for member, below in zip(kind.body, kind.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            (name,) = member.targets
            assert isinstance(name, ast.Name)
            assert isinstance(below.value, ast.Constant)
            found[State[name.id]] = str(below.value.value)
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.EMPTY.value}: {_label(None, State.EMPTY)}"
    for before in State:
        for state, allowed in VALID_PREVIOUS_STATES.items():
            if before in allowed:
                yield f"    {before.value} --> {state.value}: {_label(before, state)}"
    yield f"    {State.DEAD.value} --> [*]"
    yield "```"


def _label(before: State | None, state: State) -> str:
    """Requests by name; deadlines, of which there may be many, stand in the table."""
    events = CAUSES[before, state]
    names = [event for event in events if event in _HANDLERS]
    return ", ".join([*names, *(["a deadline"] if len(names) < len(events) else [])])


def _events() -> Iterator[str]:
    yield "| from | to | event | when | judged in |"
    yield "|---|---|---|---|---|"
    for (before, state), events in CAUSES.items():
        start = "no group" if before is None else before.value
        for event, when in events.items():
            yield f"| {start} | {state.value} | {event} | {when} | `{_file_of(event)}` |"


def _file_of(event: str) -> str:
    handler = _HANDLERS.get(event)
    module = handler.__module__ if handler else _ELSEWHERE.get(event, timers.__name__)
    package, _, name = module.rpartition(".")
    folder = package.rpartition(".")[2]
    return f"{name}.py" if folder == PAGE.parent.name else f"../{folder}/{name}.py"


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
