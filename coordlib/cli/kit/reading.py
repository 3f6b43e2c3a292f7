"""Read the coordinator's topics: their shards, how far the job is, heads of entities."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from coordlib.cli.kit.listing import AsOf
from coordlib.core.controller.protocol import Clusters
from coordlib.core.engine.effects import CLUSTERS
from coordlib.core.engine.step import Kind, UnknownSavedVersion
from coordlib.core.wire import cells
from coordlib.core.wire.cells import CELL, MARKER, CellValue, Owned
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import Layout, Marker, decode_marker
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching, refusing
from coordlib.kafka.cluster import require_visible
from coordlib.kafka.layout import LAYOUT_KEY
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import newest_by_key, newest_stamped

TIMEOUT_S: Final = 5.0

ClientOptions = Mapping[str, str]
"""librdkafka's options, with `bootstrap.servers`."""


def read_shards(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str
) -> "tuple[int, SeenProgress | None]":
    """In how many partitions of one of the coordinator's topics the job writes: its shards.

    Partitions that were added since the prefix was made are none. Second, the progress by which
    the shards are known; None: there is no such topic, or it may not be seen. Raises as
    `read_groups`.
    """
    partitions = _partitions(client, topics, f"{prefix}.{name}")
    progress = read_progress(client, prefix) if f"{prefix}.progress" in topics else None
    recorded = 0 if progress is None else progress.shards
    return recorded or partitions, progress


def _partitions(client: ClientOptions, topics: Mapping[str, Any], topic: str) -> int:
    """Of one of the coordinator's topics. Raises as `read_groups`."""
    found = topics.get(topic)
    if found is None:
        require_visible(client, topic, TIMEOUT_S)
    if found is None or found.error is not None or not found.partitions:
        raise SetupError(
            f"There is no topic {topic}.",
            "the cluster answers, and the engine's topics are not there",
            "Check --prefix; topics are made by: coord topics create",
        )
    return len(found.partitions)


def read_as_of(
    client: ClientOptions, prefix: str, shard: int, progress: "SeenProgress | None" = None
) -> AsOf | None:
    """How far the job had come; None: it has not judged anything of this shard.

    Args:
        progress: as it was read; None: it is read now.

    Raises:
        CannotReach: the broker stopped answering.
    """
    marker = (progress or read_progress(client, prefix)).marker
    position = None if marker is None else marker.shards.get(str(shard))
    if position is None:
        return None
    end = _log_end(client, Place(f"{prefix}.requests", shard))
    waiting = 0 if end is None else max(0, end - position.offset - 1)
    return AsOf(position.offset, position.clock_ms, waiting)


def _log_end(client: ClientOptions, place: Place) -> int | None:
    """None where the partition is gone or cannot be read."""
    try:
        with reaching("Kafka stopped answering", "Look into the broker's log."):
            bounds = log_bounds(
                open_admin(client), [place], TIMEOUT_S, on_denied=refusing(client)
            ).get(place)
    except CannotReach:
        return None  # how much waits is left out then; all else stands in other partitions
    return None if bounds is None else bounds.end


@dataclass(slots=True)
class SeenProgress:
    """What the topic has; markers and job instances in the order of the log."""

    #: What the prefix was made of; None: no job has started.
    layout: Layout | None = None
    markers: dict[Owned, Marker] = field(default_factory=dict)
    #: When each marker was committed, epoch milliseconds.
    committed_ms: dict[Owned, int] = field(default_factory=dict)
    cells: dict[Owned, CellValue] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """How many the prefix has; 0: nobody has recorded it."""
        return 0 if self.layout is None else self.layout.shards

    @property
    def marker(self) -> Marker | None:
        """Where all shards stand; None before the first batch."""
        return cells.composed(self.markers, None, self.shards)

    @property
    def standing(self) -> list[Owned]:
        """The job instances that no later one has fenced; none: one job has all shards."""
        found = cells.standing(self.cells)
        return [] if found == [None] else sorted(found, key=lambda each: each or (-1, -1))

    @property
    def gaps(self) -> list[str]:
        """Shards that no job has."""
        return list(map(str, cells.gaps(self.cells, self.shards)))


def read_progress(client: Mapping[str, str], prefix: str) -> SeenProgress:
    """Raises CannotReach: the broker stopped answering; CoordError: another version wrote it."""
    seen = SeenProgress()
    for key, stamped in newest_stamped(client, f"{prefix}.progress", 0).items():
        try:
            if key == LAYOUT_KEY:
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


class _Head(msgspec.Struct):
    """What any head in any version begins with. Newer code may write other types."""

    kind: Any = None
    v: Any = None


def load_head(kind: Kind, value: bytes) -> tuple[Any, str | None]:
    """The head as its kind decodes it; or None, and why this version cannot."""
    try:
        return kind.load(value), None
    except (UnknownSavedVersion, msgspec.MsgspecError):
        pass
    try:
        head = msgspec.json.decode(value, type=_Head)
    except msgspec.MsgspecError:
        return None, "no kind"
    return None, f"kind {head.kind}, version {head.v}"


def is_cluster(client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str) -> bool:
    """Whether a cluster has this name; also where it cannot be decoded. Raises CannotReach."""
    if f"{prefix}.{CLUSTERS}" not in topics:
        return False
    shards, _ = read_shards(client, topics, prefix, CLUSTERS)
    shard = shard_of(name, shards)
    return Clusters.head_key(name) in newest_by_key(client, f"{prefix}.{CLUSTERS}", shard)
