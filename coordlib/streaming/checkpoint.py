"""The checkpoint's identity: a file beside Spark's own, in whatever file system it lies.

A checkpoint id is drawn once, when the checkpoint is made, and stands in every progress marker
that it writes. So a copied, lost or foreign checkpoint is noticed before anything is written.
"""

from typing import Any, Final
from uuid import uuid4

import msgspec

from coordlib.records.stored import Marker

_IDENTITY = "coordinator.json"
_SEEDS = "seeds"
_DIFFERENCE = "difference.json"
#: Whoever can read it can sign control records.
SECRET_FILE: Final = "control-key"
_SECRET_MODE: Final = 0o600
_BUFFER_BYTES: Final = 4_096


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is, and what it continues."""

    version: int = 1
    checkpoint: str
    prefix: str
    shards: int
    incarnation: str
    #: Marker of the checkpoint that a rebuild continues; None: this one began with the topics.
    rebuilt_from: Marker | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A committed batch that was judged differently when it ran again."""

    version: int = 1
    batch: int


class CheckpointFolder:
    """A folder that Spark reaches by Hadoop's file system interface: local, HDFS, object store."""

    def __init__(self, spark: Any, path: str) -> None:
        self.path = path
        jvm = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._fs = self._path(path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def identity(self) -> Identity | None:
        """Who made this checkpoint; None when nobody has."""
        raw = self._read(_IDENTITY)
        return None if raw is None else msgspec.json.decode(raw, type=Identity)

    def create(
        self, prefix: str, shards: int, incarnation: str, rebuilt_from: Marker | None = None
    ) -> Identity:
        """Draw an id and keep it. The id is random: nothing that is judged depends on it."""
        identity = Identity(
            checkpoint=uuid4().hex,
            prefix=prefix,
            shards=shards,
            incarnation=incarnation,
            rebuilt_from=rebuilt_from,
        )
        self._write(_IDENTITY, msgspec.json.encode(identity))
        return identity

    def write_difference(self, batch: int) -> None:
        """Keep for the next start that this committed batch is not to be judged again."""
        self._write(_DIFFERENCE, msgspec.json.encode(Difference(batch=batch)))

    def difference(self) -> int | None:
        """The newest such batch; one that is older than the progress marker means nothing."""
        raw = self._read(_DIFFERENCE)
        return None if raw is None else msgspec.json.decode(raw, type=Difference).batch

    def has_batches(self) -> bool:
        """Whether Spark has planned a batch here."""
        return self._has_files("offsets")

    def has_committed_batches(self) -> bool:
        """Whether Spark has ended a batch here; then a progress marker was written before."""
        return self._has_files("commits")

    def _has_files(self, name: str) -> bool:
        folder = self._path(self.path, name)
        return bool(self._fs.exists(folder)) and len(self._fs.listStatus(folder)) > 0

    def write_seed(self, shard: int, blob: bytes) -> None:
        """Keep the state that a shard starts from (rebuild)."""
        self._write(f"{_SEEDS}/{shard}", blob)

    def seeds(self, shards: int) -> dict[int, bytes]:
        found = {shard: self._read(f"{_SEEDS}/{shard}") for shard in range(shards)}
        return {shard: blob for shard, blob in found.items() if blob is not None}

    def secret(self) -> bytes | None:
        """What this checkpoint's drivers sign control records with; None: nothing yet."""
        return self._read(SECRET_FILE)

    def keep_secret(self, secret: bytes) -> bytes:
        """Keep it where only the owner of the file can read it.

        Returns:
            What is kept: of two starts at once the first one's.
        """
        beside = self._path(self.path, f"{SECRET_FILE}.{uuid4().hex}")
        stream = self._create_for_owner(beside)
        try:
            stream.write(bytearray(secret))
        finally:
            stream.close()
        place = self._path(self.path, SECRET_FILE)
        if self._fs.exists(place) or not self._fs.rename(beside, place):
            self._fs.delete(beside, False)
        kept = self.secret()
        return secret if kept is None else kept

    def _create_for_owner(self, path: Any) -> Any:
        """Where the file system has permissions: nobody else reads it, from its first byte on."""
        fs = self._fs
        mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission(_SECRET_MODE)
        sizes = (_BUFFER_BYTES, fs.getDefaultReplication(path), fs.getDefaultBlockSize(path))
        return fs.create(path, mode, True, *sizes, None)

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
        stream = self._fs.create(self._path(self.path, name), True)
        try:
            stream.write(bytearray(value))
        finally:
            stream.close()
