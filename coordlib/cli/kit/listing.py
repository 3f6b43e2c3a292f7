"""What commands show: tables and objects of JSON from the same columns, marks before states."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from coordlib.cli.kit.output import (
    counted,
    jsonable,
    millis_text,
    print_table,
    say,
    time_text,
    visible,
)

T = TypeVar("T")

#: Shown in front of an entity's state, and taken by `--state` like one.
QUARANTINED, UNREADABLE = "Quarantined", "Unreadable"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table, and the field of JSON of the same name."""

    header: str
    value: Callable[[T], Any]
    #: The value as people read it; by default as it is.
    text: Callable[[Any], object] | None = None
    is_in_json: bool = True


class Listing(Generic[T]):
    """One kind of lines: a table for people, objects for programs.

    Args:
        columns: of the table, in order; the keys of objects are their headers in small letters.
        fields: of a line, what its object has besides, or in place of a column's value.
    """

    def __init__(
        self, *columns: Column[T], fields: Callable[[T], dict[str, object]] | None = None
    ) -> None:
        self.columns, self._more = columns, fields
        self.headers: Final = tuple(each.header for each in columns)

    def row(self, item: T) -> tuple[object, ...]:
        """A line of the table."""
        return tuple(
            value if each.text is None else each.text(value)
            for each in self.columns
            for value in (each.value(item),)
        )

    def fields(self, item: T) -> dict[str, object]:
        """A line as JSON has it."""
        found = {
            each.header.lower(): jsonable(each.value(item))
            for each in self.columns
            if each.is_in_json
        }
        return found if self._more is None else found | self._more(item)

    def objects(self, items: Iterable[T]) -> list[dict[str, object]]:
        return [self.fields(item) for item in items]

    def head(self, item: T) -> dict[str, object]:
        """A line by itself, for `print_head`."""
        return dict(zip(self.headers, self.row(item), strict=True))

    def print(self, items: Iterable[T]) -> None:
        print_table(self.headers, map(self.row, items))


def of_rows(*headers: str, **texts: Callable[[Any], object]) -> Listing[Any]:
    """A listing of rows that have a value for each header, as those of SQL do.

    Args:
        texts: header, with `_` for `-` -> how people read its values.
    """

    def column(at: int, header: str) -> Column[Any]:
        return Column(header, lambda row: row[at], texts.get(header.replace("-", "_")))

    return Listing(*(column(at, header) for at, header in enumerate(headers)))


@dataclass(frozen=True, slots=True)
class AsOf:
    """How far the job had judged a shard when the topics were read."""

    offset: int  # of the last request judged
    clock_ms: int  # the shard's clock then
    waiting: int  # records of the requests topic behind it


def as_of_text(as_of: AsOf | None, shard: int, asked: datetime) -> str:
    """`r0-523 at …Z, 2 requests wait`: a view is a fold of the log up to a request."""
    if as_of is None:
        return f"{time_text(asked)}, before the first batch of the job"
    waiting = f", {counted(as_of.waiting, 'record')} not read yet" if as_of.waiting else ""
    return f"r{shard}-{as_of.offset} at {millis_text(as_of.clock_ms)}{waiting}"


def as_of_fields(as_of: AsOf | None) -> dict[str, object]:
    """The same as JSON has it."""
    return {
        "as_of_offset": as_of.offset if as_of else None,
        "as_of_log_time": millis_text(as_of.clock_ms) if as_of else None,
        "waiting": as_of.waiting if as_of else None,
    }


def mark_of(is_quarantined: bool, unreadable: str | None) -> str | None:
    """What an operator must see before the state; None: nothing."""
    return UNREADABLE if unreadable is not None else QUARANTINED if is_quarantined else None


def state_text(state: str | None, is_quarantined: bool, unreadable: str | None) -> str | None:
    """The name of a state, in brackets behind a mark."""
    mark = mark_of(is_quarantined, unreadable)
    if mark is None or state is None:
        return mark or state
    return f"{mark}({state})"


def say_unreadable(name: str, unreadable: str | None) -> None:
    """A sentence where newer code wrote an entity."""
    if unreadable is not None:
        say(
            f"{visible(name)} cannot be read by this version of coord: "
            f"{visible(unreadable)}. Install the version that the job has."
        )
