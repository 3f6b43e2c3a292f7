"""The base of all requests and answers, the checks that several share, and the partitioner.

Unknown fields of a request are refused, so that a misspelt option is never silently ignored;
readers of answers ignore them. With an `error` other than NONE, `message` is one sentence that says
what to do, and the fields of the answer itself are absent (UNSET here).

A `..._fault` is the sentence for the sender of a bad request, or None if nothing is wrong: of what
a schema cannot express, such as names in bytes of UTF-8.

Which shard coordinates a group is Kafka's own rule for `__consumer_offsets`:
`abs(String.hashCode(group)) % shards`, where the hash runs over UTF-16 code units in wrapping
32-bit arithmetic and `abs(Integer.MIN_VALUE)` counts as 0 (Kafka's `Utils.abs`).
"""

import re
import struct
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.errors import ErrorCode

#: Control characters, and surrogates, which UTF-8 cannot encode.
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: Kafka's legal names of topics (`Topic.validate`).
_TOPIC: Final = re.compile(f"[A-Za-z0-9._-]{{1,{limits.NAME_LENGTH_MAX}}}")
#: A repeated partition would be answered again and again.
NAMED_TWICE: Final = "{} names one partition twice: name each once."


def is_name(text: str, bytes_max: int) -> bool:
    """1..bytes_max bytes of UTF-8 without control characters."""
    if not text or (not text.isprintable() and CONTROL.search(text)):
        return False
    return 4 * len(text) <= bytes_max or len(text.encode("utf-8", "replace")) <= bytes_max


def is_topic(name: str) -> bool:
    """Whether Kafka can have a topic of this name."""
    return name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def no_name(field: str, bytes_max: int = limits.NAME_LENGTH_MAX) -> str:
    """The sentence about a field with something else than a name."""
    return f"{field} must have 1 to {bytes_max} bytes of UTF-8 without control characters."


def names_fault(
    field: str, names: Iterable[str], bytes_max: int = limits.NAME_LENGTH_MAX
) -> str | None:
    """What is wrong with these names of at most so many bytes; an empty one is bad."""
    for name in names:
        if not is_name(name, bytes_max):
            return no_name(field, bytes_max)
    return None


def optional_names_fault(field: str, names: Iterable[str | None]) -> str | None:
    """The same for fields in which an empty text and None mean that there is no name."""
    for name in names:
        if name and not is_name(name, limits.NAME_LENGTH_MAX):
            return no_name(field)
    return None


Int32 = Annotated[int, Meta(ge=0, le=limits.INT32_MAX)]
Generation = Annotated[int, Meta(ge=-1, le=limits.INT32_MAX)]
Reason = Annotated[str, Meta(max_length=limits.REASON_LENGTH_MAX)]
Name = Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
Count = Annotated[int, Meta(ge=0, le=limits.INT64_MAX)]
#: Kafka's id of a topic, a UUID as its tools print it: URL-safe base64 without padding.
TopicId = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{22}$", max_length=22)]


class Part(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A value inside a request."""


class Waits(Enum):
    """When a request is refused for now, because too many answers cannot be read yet."""

    #: Whenever the shard has too many: the request is only a question.
    ALWAYS = 1
    #: Only while its own group has unread ones: the group's members cannot go on without it.
    WITH_ITS_GROUP = 2
    #: As ALWAYS; but a part is kept for groups that have nothing unread. It writes positions.
    AS_A_COMMIT = 3
    NEVER = 4

    @property
    def is_free_beside(self) -> bool:
        """Whether it never waits in an input that moves no clock."""
        return self in (Waits.AS_A_COMMIT, Waits.NEVER)


class Request(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """The envelope: sender, correlation id, group, and the partition for the answer."""

    #: The space of names that `group` is in.
    SPACE: ClassVar[str] = "group"
    WAITS: ClassVar[Waits] = Waits.ALWAYS
    #: Errors that are normal protocol steps and leave no line of history; None: no refusal of
    #: this request does. Requests that want to change something name some, or none. Heartbeats
    #: are None (the reasons are in history already, and a zombie repeats them), so are questions,
    #: commits, which have a line of their own (CommitRefused), and LeaveGroup, which is refused
    #: row by row in its answer.
    UNTOLD_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = None

    v: Literal[1]
    id: Annotated[str, Meta(min_length=1, max_length=limits.CORRELATION_ID_LENGTH_MAX)]
    client: Annotated[str, Meta(min_length=1, max_length=limits.CLIENT_LENGTH_MAX)]
    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]
    #: Partition of `coord.responses` that the sender reads; None: the client id's own.
    reply: Int32 | None = None

    @property
    def entity(self) -> tuple[str, str]:
        """Space and name of what the request is about."""
        return self.SPACE, self.group

    def fault(self) -> str | None:
        """The fault that its types cannot express, as a sentence; None: there is none.

        The codec calls it on each request that it has read, and refuses the request with the
        sentence. It is not `__post_init__`: tests and clients must be able to build a bad request
        in order to send it. The envelope's own fields are checked before, by the codec.
        """
        return None


class InAnySpace(Request, frozen=True, kw_only=True):
    """A request that entities of several spaces understand."""

    #: The space of names that `group` is in; left out: groups.
    space: Annotated[str, Meta(max_length=limits.SPACE_LENGTH_MAX)] | UnsetType = UNSET

    @property
    def entity(self) -> tuple[str, str]:
        """Space and name of what the request is about."""
        return (self.SPACE if self.space is UNSET else self.space), self.group


class Control(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """A record that only the job's driver writes, for one shard: TIME-AND-FENCING.md, rule 17.

    Records of older drivers lack the three fields; see `core/wire/control.py`.
    """

    v: Literal[1]
    #: Number of the driver's start, then of the record: rises in each shard.
    n: tuple[Count, Count] | UnsetType = UNSET
    #: The key of `coord.progress` that signed it.
    key: Annotated[str, Meta(max_length=limits.CONTROL_KEY_LENGTH_MAX)] | UnsetType = UNSET
    #: On the wire the last field.
    sig: Annotated[bytes, Meta(max_length=limits.SIGNATURE_BYTES_MAX)] | UnsetType = UNSET

    def fault(self) -> str | None:
        """As a request's: a sentence about what its types cannot express, or None."""
        return None


class Message(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """What one shard tells an entity of a shard (core/engine/channels.py).

    No client writes it: it travels in a control record, FromShard.
    """

    #: The space of names that `group` is in.
    SPACE: ClassVar[str] = "group"

    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]

    @property
    def entity(self) -> tuple[str, str]:
        """Space and name of what the message is for."""
        return self.SPACE, self.group


class Response(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """The envelope of every answer; `cause` is the coordinate of the request."""

    v: int = 1
    id: str
    client: str
    group: str
    cause: str
    error: str = ErrorCode.NONE.name
    message: str | UnsetType = UNSET
    #: The error's name in seed 000, beside Kafka's of today; for server-assigned groups.
    design_error: str | UnsetType = UNSET
    #: With THROTTLING_QUOTA_EXCEEDED: how long the sender should wait before it asks again.
    throttle_time_ms: int | UnsetType = UNSET


class Rejected(Response, tag="Rejected", frozen=True, kw_only=True):
    """The request could not be read, or stands in the wrong partition."""


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, as a signed 32-bit number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def shard_of(group: str, shards: int) -> int:
    """The partition of `coord.requests` that holds this group's requests, 0..shards-1."""
    value = java_hash(group)
    return (0 if value == -0x8000_0000 else abs(value)) % shards


def reply_partition_of(client: str, reply_partitions: int) -> int:
    """The partition of `coord.responses` that a client reads unless it chooses another."""
    return shard_of(client, reply_partitions)
