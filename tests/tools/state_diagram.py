"""The pages about the states of groups, drawn from the code that they are about.

    python -m tests.tools.state_diagram      writes them (make diagrams)

States and their meaning come from the enum's own words, arrows from `VALID_PREVIOUS_STATES`, what
stands beside them from `CAUSES`, and file names from the handlers. Text around the marks is kept.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from coordlib.core.groups import kind as retention
from coordlib.core.groups.assigned import group as assigned_group
from coordlib.core.groups.assigned import protocol as assigned_kind
from coordlib.core.groups.classic import group, members, protocol, rebalance
from coordlib.core.groups.classic.protocol import CLASSIC
from tests.tools import assigned_causes, broker_diagram, classic_causes, producer_diagram
from tests.tools.claims import page as claims_page

ROOT: Final = Path(__file__).parents[2]
BEGIN = "<!-- drawn from the code by `make diagrams`: begin -->"
END = "<!-- end -->"


class Drawn(msgspec.Struct, frozen=True):
    """What a page about one kind of group is drawn from."""

    page: Path
    group: ModuleType
    kind: Any
    #: Where deadlines are judged, but for what is in `elsewhere`.
    protocol: ModuleType
    causes: Mapping[tuple[Any, Any], Mapping[str, str]]
    #: Events that are judged by no handler and not where deadlines are counted.
    elsewhere: Mapping[str, str]

    @property
    def states(self) -> type[StrEnum]:
        states: type[StrEnum] = self.group.State
        return states

    @property
    def handlers(self) -> dict[str, Any]:
        """Of requests, by name."""
        return {request.__name__: handler for request, handler in self.kind.APIS.items()}


KINDS: Final = (
    Drawn(
        ROOT / "docs/explanation/classic-groups.md",
        group,
        CLASSIC,
        protocol,
        classic_causes.CAUSES,
        {
            retention.CAUSE: retention.__name__,
            classic_causes.GUARD: members.__name__,
            classic_causes.PENDING: rebalance.__name__,
        },
    ),
    Drawn(
        ROOT / "docs/explanation/assigned-groups.md",
        assigned_group,
        assigned_kind.ASSIGNED,
        assigned_kind,
        assigned_causes.CAUSES,
        {
            retention.CAUSE: retention.__name__,
            assigned_causes.TOPICS: assigned_kind.__name__,
        },
    ),
)


def drawn(kind: Drawn) -> str:
    """All that stands between the marks."""
    return "\n".join([*_states(kind), "", *_diagram(kind), "", *_events(kind)])


def with_drawing(page: str, kind: Drawn) -> str:
    """A page with the newest drawing between its marks. Raises ValueError when there are none."""
    return between_marks(page, drawn(kind))


def between_marks(page: str, drawing: str) -> str:
    """A page with this between its marks. Raises ValueError when there are none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"The page needs a line {BEGIN!r} and, after it, a line {END!r}.")
    return f"{before}{BEGIN}\n{drawing}\n{END}{after}"


def _states(kind: Drawn) -> Iterator[str]:
    yield "| state | what it means | what is done in it |"
    yield "|---|---|---|"
    yield from claims_page.rows_of(kind.states)


def _diagram(kind: Drawn) -> Iterator[str]:
    empty, dead = kind.group.State.EMPTY, kind.group.State.DEAD
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {empty.value}: {_label(kind, None, empty)}"
    for before in kind.states:
        for state, allowed in kind.group.VALID_PREVIOUS_STATES.items():
            if before in allowed:
                yield f"    {before.value} --> {state.value}: {_label(kind, before, state)}"
    yield f"    {dead.value} --> [*]"
    yield "```"


def _label(kind: Drawn, before: StrEnum | None, state: StrEnum) -> str:
    """Requests by name; deadlines, of which there may be many, stand in the table."""
    events = kind.causes[before, state]
    names = [event for event in events if not event.startswith("deadline:")]
    return ", ".join([*names, *(["a deadline"] if len(names) < len(events) else [])])


def _events(kind: Drawn) -> Iterator[str]:
    yield "| from | to | event | when | judged in |"
    yield "|---|---|---|---|---|"
    for (before, state), events in kind.causes.items():
        start = "no group" if before is None else before.value
        for event, when in events.items():
            yield f"| {start} | {state.value} | {event} | {when} | `{_file_of(kind, event)}` |"


def _file_of(kind: Drawn, event: str) -> str:
    """Below coordlib/."""
    handler = kind.handlers.get(event)
    if handler is not None:
        module: str = handler.__module__
    else:
        module = kind.elsewhere.get(event, kind.protocol.__name__)
    return module.removeprefix("coordlib.").replace(".", "/") + ".py"


def main() -> None:
    """Write the pages."""
    for kind in KINDS:
        text = with_drawing(kind.page.read_text(encoding="utf-8"), kind)
        kind.page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{kind.page}\n")
    claims_page.write()
    sys.stdout.write(f"{claims_page.PAGE}\n")
    for each in (broker_diagram, producer_diagram):
        page = each.PAGE
        page.write_text(between_marks(page.read_text(encoding="utf-8"), each.drawn()))
        sys.stdout.write(f"{page}\n")


if __name__ == "__main__":
    main()
