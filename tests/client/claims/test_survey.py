"""Reading the coordination topic once, for commands that only look."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.client.claims import admin
from coordlib.client.claims.reading import LogRecord
from coordlib.client.claims.transport import LogView
from coordlib.core.claims.world import World
from coordlib.errors import CannotReach


class Reader:
    """Others write into partition 0 all the time; partition 1 has lost its leader."""

    def __init__(self) -> None:
        self._offsets = itertools.count()

    def ask(self, _: int) -> None: ...

    def read(self) -> list[tuple[int, LogRecord]]:
        offset = next(self._offsets)
        assert offset < 1_000, "it reads for ever"
        return [(0, LogRecord(offset, 1_000, b"banana"))]

    def ended(self) -> list[tuple[int, int]]:
        return [(0, 1)]


def test_a_partition_that_is_silent_is_named_whatever_others_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`coord claims list` read for as long as consumers of other topics gave signs of life."""
    seconds = itertools.count(0, 0.1)
    monkeypatch.setattr(admin, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    looks: Any = admin.Survey.__new__(admin.Survey)
    looks._reader, looks.place = Reader(), SimpleNamespace(topic="__marshal")
    views = {number: LogView(World("__marshal", number, 2), 0) for number in range(2)}

    with pytest.raises(CannotReach, match=r"partitions \[1\]"):
        looks._read_to_ends(views, lambda *_: None)
