"""`--since`: from which date on a command reads history, so that its cost does not grow with all
that was ever written."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

from cyclopts import Parameter

from coordlib.cli.kit.output import say

if TYPE_CHECKING:
    from coordlib.history.sql import Answer

#: What commands read by default, back from the newest date that the tables have: history of a job
#: that is down is shown as well.
DAYS: Final = 30
_FORM: Final = "%Y-%m-%d"

Asking = tuple[str, Sequence[object]]
"""A query, and its parameters."""


def day(_: Any, tokens: Sequence[Any]) -> date:
    """A date. Raises ValueError for what is none."""
    (token,) = tokens
    try:
        if len(token.value) == len("2026-03-01"):  # strptime takes 2026-3-1, too
            return datetime.strptime(token.value, _FORM).date()
    except ValueError:
        pass
    raise ValueError(f'"{token.value[:100]}" is not a date like 2026-03-01.')


Since = Annotated[date | None, Parameter(converter=day, show_default=False)]


class Asked(NamedTuple):
    """What history has of a name."""

    answers: "list[Answer]"
    #: The time of its newest event; None: there is none in all of history.
    newest: datetime | None
    #: The first date that was read; None: all were.
    first: date | None

    def say_first(self) -> None:
        """What is not shown, where that may be something."""
        if self.first is not None:
            say(f"Read from {self.first} on; --since DATE reads further back.")


def ask(tables: str, since: date | None, newest: Asking, questions: Sequence[Asking]) -> Asked:
    """Ask about a name: of the dates from this one on.

    Args:
        since: None: the last `DAYS` that the tables have, or all where the first question has no
            answer in those.
        newest: a query for the time of its newest event, null where there is none.
    """
    from coordlib.history.sql import dates, query_all

    oldest, last = dates(tables) or (date.min, date.min)
    first = since if since is not None else max(oldest, last - min(_DAYS, last - date.min))
    asked = query_all(tables, questions, first)
    if first > oldest and since is None and not asked[0].rows:
        first = oldest
        asked = query_all(tables, questions)
    at = newest_of(tables, newest, (last, first, None))
    return Asked(asked, at, first if first > oldest else None)


def newest_of(tables: str, newest: Asking, sinces: Sequence[date | None]) -> datetime | None:
    """The time of a name's newest event: in nearly all cases the newest date has it.

    Args:
        sinces: the first dates to read from, one after the other; None: all are read.
    """
    from coordlib.history.sql import query_all

    for since in sinces:
        ((at,),) = query_all(tables, [newest], since)[0].rows
        if at is not None:
            return cast(datetime, at)
    return None


_DAYS: Final = timedelta(days=DAYS)
