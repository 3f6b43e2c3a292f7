"""A row of a page: when its members were heard stands in the page's times, for all rows together.

A heartbeat changes one number there. So a batch that has heard everybody writes the times anew, and
no row.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from coordlib.core.engine.kind import Kind
from coordlib.core.engine.row import Row, StoredRow
from coordlib.core.wire import requests as rq

_decode_members: Final = msgspec.msgpack.Decoder(list[str]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
NO_TIMES: Final = array("q")


class HeardByPlace(Mapping[str, int]):
    """When each member of a row was heard, read from the page's times one by one.

    Each step is given it, and few steps look: a copy would cost a refused request of an entity
    with 1,000 members more than all its judging.
    """

    __slots__ = ("_row",)

    def __init__(self, row: "PageRow") -> None:
        self._row = row

    def __getitem__(self, member: str) -> int:
        return self._row.heard_ms(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._row.places)

    def __len__(self) -> int:
        return len(self._row.places)


class PageRow(Row):
    """As any row; `stored.heard` has the members' ids alone."""

    __slots__ = ("_base", "_times", "places")

    def __init__(self, stored: StoredRow, kind: Kind) -> None:
        super().__init__(stored, kind)
        #: Where each member has its time, from `_base` on.
        self.places = {each: at for at, each in enumerate(_decode_members(stored.heard))}
        self._times, self._base = NO_TIMES, 0

    def move(self, times: "array[int]", is_new: bool = False) -> None:
        """Have its place at the end of these times; `is_new`: nobody was heard yet."""
        heard, base = [0] * len(self.places) if is_new else self._heard_by_place(), len(times)
        times.extend(heard)
        self._times, self._base = times, base

    def _heard_by_place(self) -> "array[int]":
        return self._times[self._base : self._base + len(self.places)]

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard; as it is now, since heartbeats change the times."""
        return HeardByPlace(self) if self._heard is None else self._heard

    def heard_ms(self, member: str) -> int:
        """When this member was heard, by the times. Raises KeyError for a stranger."""
        return self._times[self._base + self.places[member]]

    def _own_heard(self) -> dict[str, int]:
        if self._heard is None:
            self._heard = dict(zip(self.places, self._heard_by_place(), strict=True))
        return self._heard

    def accepts_quietly(self, request: rq.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat; it leaves no trace but in the times, unless a step came before."""
        if self._heard is not None:
            return super().accepts_quietly(request, clock_ms)
        if not self._is_healthy(request, self.places):
            return False
        self._times[self._base + self.places[request.member]] = clock_ms
        return True

    def encoded(self) -> StoredRow:
        """As a blob has it."""
        self._own_heard()
        return super().encoded()


def page_row(row: Row, times: "array[int]") -> PageRow:
    """A row as a batch finds it that reads it from its page, with its times at the end of these.

    Nothing else is left of it, so that it makes no difference whether it was read or kept.
    """
    stored, heard = row.encoded(), row.heard
    stored.heard = msgspec.Raw(_encode(list(heard)))
    fresh = PageRow(stored, row.kind)
    fresh._times = array("q", heard.values())
    fresh.move(times)
    return fresh
