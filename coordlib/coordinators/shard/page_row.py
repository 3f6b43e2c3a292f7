"""A row of a page: when its members were heard stands in the page's times, for all rows together.

A heartbeat changes one number there. So a batch that has heard everybody writes the times anew, and
no row.
"""

from array import array
from collections.abc import Mapping
from typing import Final

import msgspec

from coordlib.coordinators.shard.kind import Kind
from coordlib.coordinators.shard.row import Row, StoredRow
from coordlib.records import requests as rq

_decode_members: Final = msgspec.msgpack.Decoder(list[str]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
NO_TIMES: Final = array("q")


class PageRow(Row):
    """As any row; `stored.heard` has the members' ids alone."""

    __slots__ = ("_base", "_places", "_times")

    def __init__(self, stored: StoredRow, kind: Kind) -> None:
        super().__init__(stored, kind)
        #: Where each member has its time, from `_base` on.
        self._places = {each: at for at, each in enumerate(_decode_members(stored.heard))}
        self._times, self._base = NO_TIMES, 0

    def move(self, times: "array[int]", is_new: bool = False) -> None:
        """Have its place at the end of these times; `is_new`: nobody was heard yet."""
        heard, base = [0] * len(self._places) if is_new else self._heard_by_place(), len(times)
        times.extend(heard)
        self._times, self._base = times, base

    def _heard_by_place(self) -> "array[int]":
        return self._times[self._base : self._base + len(self._places)]

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard; as it is now, since heartbeats change the times."""
        if self._heard is not None:
            return self._heard
        return dict(zip(self._places, self._heard_by_place(), strict=True))

    def _own_heard(self) -> dict[str, int]:
        if self._heard is None:
            self._heard = dict(self.heard)
        return self._heard

    def accepts_quietly(self, request: rq.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat; it leaves no trace but in the times, unless a step came before."""
        if self._heard is not None:
            return super().accepts_quietly(request, clock_ms)
        if not self._is_healthy(request, self._places):
            return False
        self._times[self._base + self._places[request.member]] = clock_ms
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
