"""The folder of a checkpoint: its identity and its notes of batches; the keys of Spark's state."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from coordlib.core.wire.cells import Owned, ShardRange, shards_of
from coordlib.core.wire.stored import Marker
from coordlib.errors import NotReady, StartRefused

#: Spark's seed (`HashPartitioning`).
_SEED: Final = 42
_32_BITS: Final = 0xFFFFFFFF


def partition_of(key: int, partitions: int) -> int:
    """The partition of an INT key: Murmur3 of four bytes, as Spark's `hash`, modulo."""
    mixed = _rotated(key * 0xCC9E2D51, 15) * 0x1B873593
    value = (_rotated(_SEED ^ (mixed & _32_BITS), 13) * 5 + 0xE6546B64) & _32_BITS
    value ^= 4
    value = ((value ^ value >> 16) * 0x85EBCA6B) & _32_BITS
    value = ((value ^ value >> 13) * 0xC2B2AE35) & _32_BITS
    value ^= value >> 16
    signed = value - (1 << 32) if value >> 31 else value
    return signed % partitions


def balanced(shards: int, partitions: int) -> tuple[int, ...]:
    """A key for each shard; no two are equal."""
    of_partition = [_keys_in(wanted, partitions) for wanted in range(partitions)]
    return tuple(next(of_partition[shard % partitions]) for shard in range(shards))


def _keys_in(wanted: int, partitions: int) -> Iterator[int]:
    return (key for key in count() if partition_of(key, partitions) == wanted)


def _rotated(value: int, bits: int) -> int:
    value &= _32_BITS
    return (value << bits | value >> (32 - bits)) & _32_BITS


_log = structlog.get_logger()

_T = TypeVar("_T")
_IDENTITY = "coordinator.json"
_SEEDS = "seeds"
_DIFFERENCE = "difference.json"
_ENDED = "ended.json"
_BEGUN = "begun.json"
_PROBE = "probe.json"
#: Every process that can read it can sign control records.
SECRET_FILE: Final = "control-key"
_SECRET_MODE: Final = 0o600
_BUFFER_BYTES: Final = 4_096
#: Spark's log of planned batches, and all else that it keeps.
_PLANNED: Final = "offsets"
_NO_OFFSETS: Final = b"-"
_OF_SPARK: Final = ("commits", "state", "sources", "metadata")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is, and what it continues."""

    version: int = 1
    checkpoint: str
    prefix: str
    shards: int
    incarnation: str
    #: Marker of the checkpoint that a rebuild continues; None: this one began with the topics. Only
    #: its batch and its next offsets count here.
    rebuilt_from: Marker | None = None
    #: The key of each shard in Spark's state (`balanced`).
    keys: tuple[int, ...] = ()
    #: The shards that are judged with it, where other jobs have the rest; left out: all.
    owned: ShardRange | UnsetType = UNSET

    @property
    def cell(self) -> Owned:
        """The shards that are judged with it; None: all."""
        return None if self.owned is UNSET else self.owned

    @property
    def own_shards(self) -> range:
        """Their numbers."""
        return shards_of(self.cell, self.shards)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A committed batch that was judged differently when it ran again."""

    version: int = 1
    batch: int
    checkpoint: str


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that Spark has planned, and runs again as it is."""

    number: int
    #: How many it has.
    records: int
    #: Which: topic, partition, the first one's offset, and that behind the last one.
    spans: tuple[tuple[str, int, int, int], ...] = ()


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A planned batch with which a job has ended, and is not to run again as it is.  # INV-131"""

    version: int = 1
    checkpoint: str
    batch: int
    #: As many as a batch of the next checkpoint may have, until one is committed.
    records: int
    #: Nothing less can be planned: the records that come next are probed, one after the other.
    probes: bool = False


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A planned batch that a start runs again; removed when the query ends for a known reason."""

    version: int = 1
    checkpoint: str
    batch: int
    #: How many it has, or is planned with: the lesser.
    records: int
    #: Starts that have run it, each of which has ended without a reason but the newest.
    times: int


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is judged by itself; removed when all are through.  # INV-144"""

    version: int = 1
    #: Its coordinate.
    record: str
    #: Starts that have judged it so, each of which has ended without a reason but the newest.
    times: int
    #: Whether one has ended as it was too much.
    is_too_much: bool = False


class CheckpointFolder:
    """A folder that Spark reaches by Hadoop's file system interface: local, HDFS, object store."""

    def __init__(self, spark: Any, path: str) -> None:
        self.path = path
        jvm = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._state_partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        self._fs = self._path(path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._on_disk = self._path_on_disk()

    def _path_on_disk(self) -> Path | None:
        """Where it lies on a disk of this machine; None: elsewhere."""
        if self._fs.getUri().getScheme() != "file":
            return None
        return Path(self._fs.makeQualified(self._path(self.path)).toUri().getPath())

    def without_java(self) -> "LocalFolder | None":
        """The same folder when the Java process has ended; None: it cannot be reached then."""
        return None if self._on_disk is None else LocalFolder(self._on_disk)

    def identity(self) -> Identity | None:
        """This checkpoint's identity; None: it is new, or its file cannot be read."""
        return self._decoded(_IDENTITY, Identity)

    def _decoded(self, name: str, kind: type[_T]) -> _T | None:
        raw = self._read(name)
        try:
            return None if raw is None else msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as problem:
            _log.warning(
                "a file of the checkpoint cannot be read, as if there were none",
                file=f"{self.path}/{name}",
                error=str(problem),
            )
            return None

    def create(
        self,
        prefix: str,
        shards: int,
        incarnation: str,
        rebuilt_from: Marker | None = None,
        owned: Owned = None,
    ) -> Identity:
        """Draw an id and keep it. The id is random: nothing that is judged depends on it."""
        identity = Identity(
            checkpoint=uuid4().hex,
            prefix=prefix,
            shards=shards,
            incarnation=incarnation,
            rebuilt_from=rebuilt_from,
            keys=balanced(shards, self._state_partitions),
            owned=UNSET if owned is None else owned,
        )
        self._write(_IDENTITY, msgspec.json.encode(identity))
        return identity

    def make(self) -> None:
        """Make the folder, if there is none: where that is refused, nobody was fenced for it."""
        self._fs.mkdirs(self._path(self.path))

    def clear(self) -> None:
        """Remove all of it: Spark's files, too."""
        path = self._path(self.path)
        if self._fs.exists(path) and not self._fs.delete(path, True):
            raise NotReady(
                "The checkpoint's folder cannot be removed.",
                self.path,
                "Check that this job may write there, and that nobody else does.",
            )

    def write_difference(self, checkpoint: str, batch: int) -> None:
        """Keep for the next start that this committed batch is not to be judged again."""
        self._write(
            _DIFFERENCE, msgspec.json.encode(Difference(checkpoint=checkpoint, batch=batch))
        )

    def difference(self) -> Difference | None:
        """The newest such batch; one that is older than the progress marker means nothing."""
        return self._decoded(_DIFFERENCE, Difference)

    def forget_batches(self) -> None:
        """Remove what is kept of batches; the identity stays until another one is written, and so
        does the note of a record: its coordinate is the same in any checkpoint.

        The plan of batches goes first and at once: a start that dies here is done again.
        """
        away = self._path(self.path, f"{_PLANNED}.{uuid4().hex}.gone")
        if self.has_batches() and not self._fs.rename(self._path(self.path, _PLANNED), away):
            raise self._takes_no_file(_PLANNED)
        names = (*_OF_SPARK, _DIFFERENCE, _ENDED, _BEGUN)
        for each in (away, *(self._path(self.path, name) for name in names)):
            if self._fs.exists(each):
                self._fs.delete(each, True)

    def _newest_planned(self) -> int | None:
        names = self._names(_PLANNED)
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def planned(self, identity: Identity) -> Planned | None:
        """The batch that Spark has planned and not ended; None: there is none."""
        newest = self._newest_planned()
        if newest is None or str(newest) in self._names("commits"):
            return None
        ends, before = self._ends_of(newest), self._ends_of(newest - 1)
        if before is None and identity.rebuilt_from is not None:
            before = identity.rebuilt_from.next_offsets
        starts = before or {}
        spans = tuple(
            (topic, int(partition), first, end)
            for topic, partitions in (ends or {}).items()
            for partition, end in partitions.items()
            if (first := max(0, starts.get(topic, {}).get(partition, 0))) < end
        )
        records = sum(end - first for _, _, first, end in spans)
        return Planned(number=newest, records=records, spans=spans)

    def _ends_of(self, batch: int) -> dict[str, dict[str, int]] | None:
        raw = self._read(f"{_PLANNED}/{batch}")
        return None if raw is None else _offsets_in(raw)

    def write_ended(self, ended: Ended) -> None:
        """Keep for the next start that this batch is not to run again as it is."""
        self._write(_ENDED, msgspec.json.encode(ended))

    def ended(self) -> Ended | None:
        """The newest such batch; one that was committed since means nothing."""
        return self._decoded(_ENDED, Ended)

    def write_begun(self, begun: Begun) -> None:
        """Keep for the next start that this one has run the planned batch."""
        self._write(_BEGUN, msgspec.json.encode(begun))

    def begun(self) -> Begun | None:
        """The newest such batch; one that was committed since means nothing."""
        return self._decoded(_BEGUN, Begun)

    def forget_begun(self) -> None:
        """The query has ended for a reason that is not the size of its batch."""
        self._delete(_BEGUN)

    def write_probe(self, probe: Probe) -> None:
        """Keep for the next start which record is judged by itself."""
        self._write(_PROBE, msgspec.json.encode(probe))

    def probe(self) -> Probe | None:
        """The newest such record."""
        return self._decoded(_PROBE, Probe)

    def forget_probe(self) -> None:
        """None is judged by itself any more."""
        self._delete(_PROBE)

    def forget_silent_probe(self) -> None:
        """The start has ended for a reason that is not the record."""
        probe = self.probe()
        if probe is not None and not probe.is_too_much:
            self.forget_probe()

    def has_batches(self) -> bool:
        """Whether Spark has planned a batch here."""
        return self._has_files(_PLANNED)

    def has_committed_batches(self) -> bool:
        """Whether Spark has ended a batch here; then a progress marker was written before."""
        return self._has_files("commits")

    def _has_files(self, name: str) -> bool:
        return len(self._names(name)) > 0

    def write_seed(self, shard: int, blob: bytes, continued: Marker) -> None:
        """Keep the state that a shard starts from, when a rebuild continues this marker."""
        self._write(_seed_name(shard, continued), blob)

    def seeds(self, identity: Identity, marker: Marker | None) -> dict[int, bytes]:
        """The states that shards start from which have none of their own yet.

        Args:
            marker: the newest one, of this checkpoint or of the one that it continues.

        Raises:
            StartRefused: one is missing: the shard would begin without its groups.
        """
        continued = identity.rebuilt_from
        if continued is None or self._have_states(identity, marker):
            return {}
        return {shard: self._seed(shard, continued) for shard in identity.own_shards}

    def _seed(self, shard: int, continued: Marker) -> bytes:
        blob = self._read(_seed_name(shard, continued))
        if blob is None:
            raise StartRefused(
                f"The state that shard {shard} was rebuilt with is missing.",
                f"{self.path}/{_seed_name(shard, continued)}",
                "Name an empty folder and add --rebuild: it is read from the topics again.",
            )
        return blob

    def _have_states(self, identity: Identity, marker: Marker | None) -> bool:
        """Whether every shard was in a batch that Spark has ended: its state is in the store."""
        return (
            marker is not None
            and have_begun(identity, marker)
            and self._fs.exists(self._path(self.path, f"commits/{marker.batch}"))
        )

    def secret(self) -> bytes | None:
        """What this checkpoint's drivers sign control records with; None: nothing yet."""
        return self._read(SECRET_FILE)

    def keep_secret(self, secret: bytes) -> bytes:
        """Keep it where only the owner of the file can read it.

        Returns:
            What is kept: of two starts at once the first one's.
        """
        partial = self._path(self.path, f"{SECRET_FILE}.{uuid4().hex}")
        stream = self._create_for_owner(partial)
        try:
            stream.write(bytearray(secret))
        finally:
            stream.close()
        place = self._path(self.path, SECRET_FILE)
        if self._fs.exists(place) or not self._fs.rename(partial, place):
            self._fs.delete(partial, False)
        kept = self.secret()
        return secret if kept is None else kept

    def _create_for_owner(self, path: Any) -> Any:
        """Create a file that only its owner can read, where the file system has permissions."""
        fs = self._fs
        mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(_SECRET_MODE)
        sizes = (_BUFFER_BYTES, fs.getDefaultReplication(path), fs.getDefaultBlockSize(path))
        return fs.create(path, mode, True, *sizes, None)

    def _names(self, name: str) -> list[str]:
        """What a folder in it has."""
        folder = self._path(self.path, name)
        if not self._fs.exists(folder):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(folder)]

    def _delete(self, name: str) -> None:
        if self._fs.exists(path := self._path(self.path, name)):
            self._fs.delete(path, False)

    def _read(self, name: str) -> bytes | None:
        path = self._path(self.path, name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _write(self, name: str, value: bytes) -> None:
        place = self._path(self.path, name)
        partial = self._path(self.path, f"{name}.{uuid4().hex}.new")
        stream = self._fs.create(partial, True)
        try:
            stream.write(bytearray(value))
            if stream.hasCapability("hsync"):  # an object store has none: it keeps what is closed
                stream.hsync()
        finally:
            stream.close()
        self._sync(partial)
        self._delete(name)  # unreadable, or of a rebuild that did not end
        if not self._fs.rename(partial, place):
            raise self._takes_no_file(name)
        self._sync(place.getParent())

    def _takes_no_file(self, name: str) -> NotReady:
        return NotReady(
            "The checkpoint's folder does not take a file.",
            f"{self.path}/{name}",
            "Check that this job may write there, and that nobody else does.",
        )

    def _sync(self, path: Any) -> None:
        """Bring it to this machine's disk; hsync() does so in every other file system."""
        if self._fs.getUri().getScheme() == "file":
            descriptor = os.open(path.toUri().getPath(), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class LocalFolder(CheckpointFolder):
    """A folder on this machine's disk, reached without Java: for notes of batches alone."""

    def __init__(self, path: Path) -> None:
        self.path, self._folder = str(path), path

    def _names(self, name: str) -> list[str]:
        folder = self._folder / name
        return [each.name for each in folder.iterdir()] if folder.is_dir() else []

    def _delete(self, name: str) -> None:
        for each in (name, f".{name}.crc"):
            (self._folder / each).unlink(missing_ok=True)

    def _read(self, name: str) -> bytes | None:
        path = self._folder / name
        return path.read_bytes() if path.is_file() else None

    def _write(self, name: str, value: bytes) -> None:
        partial = self._folder / f"{name}.{uuid4().hex}.new"
        with partial.open("wb") as stream:
            stream.write(value)
            stream.flush()
            os.fsync(stream.fileno())
        # Of the file that Java has written there: it would not read another one.
        (self._folder / f".{name}.crc").unlink(missing_ok=True)
        partial.replace(self._folder / name)


def have_begun(identity: Identity, marker: Marker) -> bool:
    """Whether each shard has judged something since the rebuild, by the newest marker.

    A shard keeps its seed until then: it may have been silent in the first batches.
    """
    continued = identity.rebuilt_from
    if continued is None or marker.checkpoint != identity.checkpoint:
        return False
    return all(
        any(
            partitions.get(str(shard), 0) > continued.next_offsets.get(topic, {}).get(str(shard), 0)
            for topic, partitions in marker.next_offsets.items()
        )
        for shard in identity.own_shards
    )


def _offsets_in(planned: bytes) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in planned.splitlines()[2:]:
        if line == _NO_OFFSETS:
            continue
        for topic, offsets in msgspec.json.decode(line, type=dict[str, dict[str, int]]).items():
            found.setdefault(topic, {}).update(offsets)
    return found


def _seed_name(shard: int, continued: Marker) -> str:
    """Named by the marker: a rebuild that died has left seeds of another moment."""
    return f"{_SEEDS}/{continued.checkpoint}-{continued.batch}-{shard}"
