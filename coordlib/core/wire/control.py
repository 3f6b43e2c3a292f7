"""Records that the job itself writes: control records for its shards, and notices to all readers.

Control records have no answer. time-and-fencing.md, rules 5 to 7 and 17.

A control record is signed for one shard of one incarnation of the topics, so a copy of it is void
anywhere else. Its last field is `sig`; the signature is over the record before that field was put
in, so no canonical form of JSON is needed.

`coord.outbox` has, beside the messages of shards, how far each channel between two shards is.
"""

from base64 import b64encode
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import Control, Count, Int32, Name, Part, TopicId, names_fault
from coordlib.errors import ErrorCode


class Topic(Part, frozen=True):
    """A topic as the cluster has it."""

    topic: Name
    partitions: Annotated[int, Meta(ge=1, le=limits.PARTITIONS_PER_TOPIC_MAX)]
    #: Another one under the same name: the topic was deleted and made anew. Left out: not known.
    topic_id: TopicId | UnsetType = UNSET


class TopicMetadata(Control, tag="TopicMetadata", frozen=True, kw_only=True):
    """All topics of the cluster whose names lie in a range; another one in it does not exist.

    Each record is complete for its range: a listing of many topics is several records, and a record
    that comes twice, or alone, is true all the same.
    """

    #: The range, by code points: after this name (null: from the first) ...
    after: Name | None = None
    #: ... through this one (null: to the last).
    through: Name | None = None
    topics: Annotated[tuple[Topic, ...], Meta(max_length=limits.TOPICS_PER_RECORD_MAX)]

    def fault(self) -> str | None:
        """Topics are in ascending order, and all of them in the range."""
        names = [row.topic for row in self.topics]
        if fault := names_fault("topics.topic", names):
            return fault
        bounds = [*([self.after] if self.after is not None else []), *names]
        if any(before >= after for before, after in pairwise(bounds)):
            return "topics must be in ascending order, after the range's begin."
        if self.through is not None and any(name > self.through for name in names[-1:]):
            return "topics must not lie behind the range's end."
        return None


class Tick(Control, tag="Tick", frozen=True, kw_only=True):
    """Time passes, and outputs up to `published` (an offset of this shard) can be read.

    time-and-fencing.md, rules 5 to 7.
    """

    published: Annotated[int, Meta(ge=-1, le=limits.INT64_MAX)]
    #: Shard -> number of the newest message of this shard's that it has judged; left out: nothing
    #: new is known. Numbers never fall, so a smaller one says nothing.
    heard: dict[Int32, Count] | UnsetType = UNSET


class FromShard(Control, tag="FromShard", frozen=True, kw_only=True):
    """A message of another shard, or of this one; `coord.outbox` has had it before."""

    #: Shard that sent it.
    source: Int32 = msgspec.field(name="from")
    #: Its number among the messages of that shard to this one, from 1.
    seq: Annotated[int, Meta(ge=1, le=limits.INT64_MAX)]
    #: A `Message` as JSON.
    body: msgspec.Raw


Decided = Annotated[
    tuple[Annotated[int, Meta(ge=0, le=limits.INT64_MAX)], ...],
    Meta(max_length=limits.DECISIONS_PER_RECORD_MAX),
]


class TxnDecided(Control, tag="TxnDecided", frozen=True, kw_only=True):
    """How transactions of Kafka ended, by the records of this shard that were part of them.

    Each is named by its offset, and what is said of it is true for ever: a record that comes twice
    changes nothing.
    """

    committed: Decided = ()
    aborted: Decided = ()

    def fault(self) -> str | None:
        """A transaction has one end."""
        both = set(self.committed) & set(self.aborted)
        return f"{min(both)} is named as committed and as aborted." if both else None


class Progress(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Every request of this shard up to `offset` was judged; silence about one means accepted."""

    v: int = 1
    shard: int
    offset: int
    time_ms: int


#: Behind every offset of a log.
BEHIND_ALL: Final = (1 << 63) - 1


class CoordinatorLoading(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """The job has started and reads its state back: requests wait in the log, and are answered.

    Written once to every response partition; the next answer or Progress ends it.
    """

    v: int = 1
    error: str = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name
    design_error: str = "CoordinatorStartupNotComplete"
    message: str = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.what_to_do
    #: Shard -> offset: a request that stands before it and has no answer by now may never have been
    #: judged. BEHIND_ALL where the log was cut: another record may stand at the request's.
    lost: dict[int, int] | UnsetType = UNSET


#: Names what the signature is for; a record of another layout gets another one.
PURPOSE: Final = "coord-control-1"
_FIELD: Final = b',"sig":"'
_END: Final = b'"}'


def signed_bytes(incarnation: str, shard: int, unsigned: bytes) -> bytes:
    """The bytes over which the signature of a record is made.

    Args:
        unsigned: the record's value without the field `sig`.
    """
    place = "".join(f"{part}\0" for part in (PURPOSE, incarnation, shard))
    return place.encode() + unsigned


def with_signature(unsigned: bytes, signature: bytes) -> bytes:
    """The record's value, `sig` last."""
    return unsigned.removesuffix(b"}") + _FIELD + b64encode(signature) + _END


def without_signature(value: bytes, signature: bytes) -> bytes | None:
    """The value without its last field; None: that is not this signature."""
    field = _FIELD + b64encode(signature) + _END
    return value.removesuffix(field) + b"}" if value.endswith(field) else None


class SentValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard has sent to another one. Key: `["sent",shard]`."""

    #: Number of the newest message.
    sent: int
    #: Number of the newest one that the sender knows to be judged.
    heard: int


class HeardValue(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of another shard a shard has judged. Key: `["heard",shard]`."""

    heard: int
