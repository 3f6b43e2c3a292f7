"""What stands in the progress topic, as one driver has read it: layout, markers, keys and cells.

All drivers of a prefix write into its one partition: one after the other, or cells beside each
other, each under keys of its own (`core/wire/cells.py`).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import structlog
from confluent_kafka import KafkaException

from coordlib.core.wire import cells, topic_ids
from coordlib.core.wire.cells import CELL, KEYS, MARKER, SET_ASIDE, CellValue, Owned
from coordlib.core.wire.stored import ControlKeys, Layout, Marker, SetAside, decode_marker
from coordlib.errors import CoordError, StartRefused
from coordlib.job.marker import LAYOUT_KEY, decode_keys, decode_layout
from coordlib.job.plane import Plane
from coordlib.kafka.clients import reason_of

_log = structlog.get_logger()
_Known = TypeVar("_Known")
_decode_cell = msgspec.json.Decoder(CellValue).decode
_decode_set_aside = msgspec.json.Decoder(SetAside).decode
#: Marker, layout and keys that a job alone writes.
OfThisJob = tuple[Marker | None, Layout | None, ControlKeys | None]


class NewestByKey(Protocol):
    """The live records of a partition of a compacted topic, from an offset on: key -> value."""

    def __call__(self, topic: str, partition: int, first: int = 0, /) -> dict[bytes, bytes]: ...


class OtherCells(NamedTuple):
    """How a driver meets the other jobs of its prefix."""

    #: Takes a transactional id away from whoever has it.
    fence: Callable[[str], object]
    #: Reads what they write, too: it waits until all that was written before is decided.
    newest_decided: NewestByKey


class Progress:
    """The progress topic of a plane.

    Args:
        newest_by_key: reads up to the first open transaction.
        newest_decided: waits until all that was written before is decided: a registration or a
            marker may stand behind the open transaction of another cell.
    """

    def __init__(
        self, plane: Plane, newest_by_key: NewestByKey, newest_decided: NewestByKey
    ) -> None:
        self._plane = plane
        self._newest_by_key, self._newest_decided = newest_by_key, newest_decided
        #: Offset of the newest record there that this driver has written, and the record.
        self.newest = 0
        self._written: tuple[bytes, bytes | None] | None = None
        #: All before this offset is known.
        self._read_from = 0
        #: Where the shards of this job stand.
        self.marker: Marker | None = None
        self.layout: Layout | None = None
        #: Pages of the ids that listings have shown, by key.
        self.id_pages: dict[bytes, bytes] = {}
        #: Of control records, with those of other cells; None: no driver has signed any.
        self.keys: ControlKeys | None = None
        #: The jobs that have registered. These three are in the order of the log.
        self.cells: dict[Owned, CellValue] = {}
        self._markers: dict[Owned, Marker] = {}
        self._keys: dict[Owned, ControlKeys] = {}
        self._set_aside: dict[Owned, SetAside] = {}

    def wrote(self, offset: int, key: bytes, value: bytes | None) -> None:
        """This driver has committed a record there, its newest."""
        self.newest, self._written = offset, (key, value)

    def look(self) -> None:
        """Learn what can be read at once: before a predecessor is fenced, whose transaction may be
        open. Raises StartRefused, CannotReach."""
        found = self._newest_by_key(self._plane.progress, 0, self._read_from)
        self._learn_all(found)

    def read(self) -> bool:
        """Learn what is there; whether what this driver has written stands there, or anything.

        Raises StartRefused, CannotReach.
        """
        newest = self.newest
        found = self._newest_decided(self._plane.progress, 0, self._read_from)
        # Nobody tells where the reading has ended, but it has gone beyond this. Not what is written
        # next: between the two another cell may have registered.
        self._read_from = newest
        self._learn_all(found)
        if self._written is None:
            return bool(found)
        key, value = self._written
        return key in found and (key == LAYOUT_KEY or found[key] == value)

    def _learn_all(self, found: dict[bytes, bytes]) -> None:
        for key, value in found.items():
            self._learn(key, value)
        self._put_together()

    def note_layout(self, layout: Layout) -> None:
        """This driver has written it."""
        self.layout = layout

    def note_marker(self, marker: Marker, owned: Owned) -> None:
        """This driver has written it; `owned`: whose it is."""
        _put_last(self._markers, owned, marker)
        if owned == self._plane.owned:  # it goes on from what was the furthest
            self.marker = marker
        else:
            self._put_together()

    def note_keys(self, keys: ControlKeys) -> None:
        """This driver has written them."""
        _put_last(self._keys, self._plane.owned, keys)
        self.keys = keys

    @property
    def set_aside(self) -> dict[str, str]:
        """Coordinate of a record that is not judged -> why; with those of other cells."""
        return {at: why for each in self._set_aside.values() for at, why in each.records.items()}

    def note_set_aside(self, value: SetAside) -> None:
        """This driver has written it."""
        _put_last(self._set_aside, self._plane.owned, value)

    def note_cell(self, value: CellValue) -> None:
        """This driver has registered."""
        _put_last(self.cells, self._plane.owned, value)

    @property
    def of_this_job(self) -> OfThisJob:
        """What this job alone writes. Cells all write the layout."""
        owned = self._plane.owned
        layout = self.layout if owned is None else None
        return self._markers.get(owned), layout, self._keys.get(owned)

    def has_newer_driver(self) -> bool:
        """Whether another driver of the same shards has written behind this one."""
        owned = self._plane.owned
        read = self._newest_by_key if owned is None else self._newest_decided
        found = read(self._plane.progress, 0, self.newest)
        marker, layout, keys = self.of_this_job
        newest_keys, newest = (found.get(cells.key_of(what, owned)) for what in (KEYS, MARKER))
        starts = keys.starts if keys else 0
        if newest_keys is not None and decode_keys(newest_keys).starts > starts:
            return True
        # A plane whose driver signs nothing counts no starts; it has a marker and a layout.
        if newest is not None and self._read_marker(newest) != marker:
            return True
        told = found.get(LAYOUT_KEY)
        return owned is None and told is not None and decode_layout(told) != layout

    # -- other cells ---------------------------------------------------------------------------

    @property
    def earlier(self) -> list[Owned]:
        """The jobs that have a shard of this one and have registered before it."""
        owned, later = self._plane.owned, self.later
        before = [
            each
            for each in self.cells
            if each != owned and each not in later and cells.is_shared(each, owned)
        ]
        # A job over all shards registers where there are cells; it may have been before them.
        return before if owned is None or None in self.cells else [*before, None]

    @property
    def later(self) -> list[Owned]:
        """The jobs that have a shard of this one and have registered behind it.

        A cell has registered before it writes anything; a job over all shards has not as long as
        there is no cell.
        """
        owned = self._plane.owned
        if owned is not None and owned not in self.cells:
            return []
        return cells.later_than(self.cells, owned)

    def later_as_told(self) -> list[Owned]:
        """The same of the topic as it is now, if that can be found out."""
        try:
            self.look()
        except (CoordError, KafkaException) as problem:
            _log.warning("it is not known which job has taken over", error=reason_of(problem))
        return self.later

    # -- what was read -------------------------------------------------------------------------

    def _learn(self, key: bytes, value: bytes) -> None:
        if key == LAYOUT_KEY:
            self.layout = decode_layout(value)
        if topic_ids.is_page(key):
            self.id_pages[key] = value
        match cells.read_key(key):
            case (what, whose) if what == MARKER:
                _put_last(self._markers, whose, self._read_marker(value))
            case (what, whose) if what == KEYS:
                _put_last(self._keys, whose, decode_keys(value))
            case (what, whose) if what == CELL:
                cell = self._decoded(_decode_cell, value, "The registration of a cell", CELL)
                _put_last(self.cells, whose, cell)
            case (what, whose) if what == SET_ASIDE:
                found = self._decoded(_decode_set_aside, value, "What is set aside", SET_ASIDE)
                _put_last(self._set_aside, whose, found)

    def _put_together(self) -> None:
        owned, shards = self._plane.owned, self.layout.shards if self.layout else 0
        self.marker = cells.composed(self._markers, owned, shards)
        if self._keys.keys() - {owned}:
            named = {key.key: key for each in self._keys.values() for key in each.keys}
            starts = max(each.starts for each in self._keys.values())
            self.keys = ControlKeys(starts=starts, keys=tuple(named.values()))
        else:
            self.keys = self._keys.get(owned)

    def _read_marker(self, value: bytes) -> Marker:
        return self._decoded(decode_marker, value, "The progress marker", MARKER)

    def _decoded(
        self, decode: Callable[[bytes], _Known], value: bytes, what: str, key: str
    ) -> _Known:
        try:
            return decode(value)
        except msgspec.MsgspecError as problem:
            raise StartRefused(
                f"{what} cannot be read: {problem}",
                f"key {key} of {self._plane.progress}",
                "Start the code that wrote it, or newer code.",
            ) from problem


def _put_last(known: dict[Owned, _Known], whose: Owned, value: _Known) -> None:
    """The newest of all, in the order of the log."""
    known.pop(whose, None)
    known[whose] = value
