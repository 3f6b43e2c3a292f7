"""The progress topic as commands read it: markers, cells, and how far each of them has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from coordlib.core.wire import cells
from coordlib.core.wire.cells import CELL, MARKER, CellValue, Owned
from coordlib.errors import CoordError

if TYPE_CHECKING:
    from coordlib.core.wire.stored import Layout, Marker
    from coordlib.kafka.places import Place


@dataclass(slots=True)
class SeenProgress:
    """What the topic has; markers and cells in the order of the log."""

    #: What the prefix was made of; None: no job has started.
    layout: "Layout | None" = None
    markers: "dict[Owned, Marker]" = field(default_factory=dict)
    #: When each marker was committed, epoch milliseconds.
    committed_ms: dict[Owned, int] = field(default_factory=dict)
    cells: dict[Owned, CellValue] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """How many the prefix has; 0: nobody has recorded it."""
        return 0 if self.layout is None else self.layout.shards

    @property
    def marker(self) -> "Marker | None":
        """Where all shards stand; None before the first batch."""
        return cells.composed(self.markers, None, self.shards)

    @property
    def standing(self) -> list[Owned]:
        """The cells that no later one has fenced; none: one job has all shards."""
        found = cells.standing(self.cells)
        return [] if found == [None] else sorted(found, key=lambda each: each or (-1, -1))

    @property
    def gaps(self) -> list[str]:
        """Shards that no job has."""
        return list(map(str, cells.gaps(self.cells, self.shards)))


def read_progress(client: Mapping[str, str], prefix: str) -> SeenProgress:
    """Raises CannotReach: the broker stopped answering; CoordError: another version wrote it."""
    from coordlib.core.wire.stored import Layout, decode_marker
    from coordlib.kafka.compacted import newest_stamped

    seen = SeenProgress()
    for key, stamped in newest_stamped(client, f"{prefix}.progress", 0).items():
        try:
            if key == b"layout":
                seen.layout = msgspec.json.decode(stamped.value, type=Layout)
            match cells.read_key(key):
                case (what, whose) if what == MARKER:
                    seen.markers[whose] = decode_marker(stamped.value)
                    seen.committed_ms[whose] = stamped.time_ms
                case (what, whose) if what == CELL:
                    seen.cells[whose] = msgspec.json.decode(stamped.value, type=CellValue)
        except msgspec.MsgspecError as problem:
            raise CoordError(
                "The job's progress marker cannot be read.",
                f"{prefix}.progress: {problem}",
                "Another version wrote it: use the coord command of that version.",
            ) from problem
    return seen


def cell_rows(seen: SeenProgress, lag: "Lag", now_ms: int) -> list[dict[str, Any]]:
    """A row for each cell: its shards, how old its newest batch is, and what waits for it."""
    rows = []
    for whose in seen.standing:
        marker, committed_ms = seen.markers.get(whose), seen.committed_ms.get(whose)
        rows.append(
            {
                "shards": "all" if whose is None else str(whose),
                "since_ms": seen.cells[whose].since_ms,
                "batch_id": None if marker is None else marker.batch,
                "marker_age_ms": None if committed_ms is None else max(0, now_ms - committed_ms),
                "checkpoint_id": None if marker is None else marker.checkpoint,
                "lag": lag.of(cells.shards_of(whose, seen.shards)),
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits for the job: of each partition the first record's offset, and their number."""

    waiting: "Mapping[Place, tuple[int, int]]"
    #: The time of the first record; None: the partition ended without one; absent: no answer.
    times: "Mapping[Place, int | None]"
    now_ms: int

    def of(self, shards: Iterable[int] | None = None) -> dict[str, int | None]:
        """Records that were not judged, and the age of the oldest of them; None where a partition
        does not say what waits there. Of these shards, else of all."""
        wanted = None if shards is None else set(shards)
        places = [each for each in self.waiting if wanted is None or each.partition in wanted]
        # A partition that ended without a record has only marks at the end of transactions.
        records = sum(self.waiting[at][1] for at in places if self.times.get(at, 0) is not None)
        if any(at not in self.times for at in places):
            return {"records": records, "ms": None}
        known = [time for at in places if (time := self.times[at]) is not None]
        return {"records": records, "ms": max(0, self.now_ms - min(known)) if known else 0}
