"""The base of all requests and answers, the checks that several share, and the partitioner.

Unknown fields of a request are refused, so that a misspelt option is never silently ignored;
readers of answers ignore them. With an `error` other than NONE, `message` is one sentence that says
what to do, and the fields of the answer itself are absent (UNSET here).

`RequestReader` reads bytes as requests in two steps. The first is msgspec's: shape, types, ranges,
unknown fields. The second makes checks that a schema cannot: UTF-8 lengths, control characters,
sums over nested lists. Those of the envelope are here, a request's own are its `fault()`. A request
that fails is read again, leniently, only to find its sender for the answer.

A `..._fault` is the sentence for the sender of a bad request, or None if nothing is wrong: of what
a schema cannot express, such as names in bytes of UTF-8.

Which shard coordinates a group is Kafka's own rule for `__consumer_offsets`:
`abs(String.hashCode(group)) % shards`, where the hash runs over UTF-16 code units in wrapping
32-bit arithmetic and `abs(Integer.MIN_VALUE)` counts as 0 (Kafka's `Utils.abs`).
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args

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


#: `v` of requests and answers. A field that is added raises it: a job refuses fields that it does
#: not know. A job reads its own version and all lower ones; a client writes its own.  # INV-84
WIRE_VERSION: Final = 1

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
    def is_free_in_other_inputs(self) -> bool:
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
    UNREPORTED_REFUSALS: ClassVar[frozenset[ErrorCode] | None] = None

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
    """A record that only the job's driver writes, for one shard: time-and-fencing.md, rule 17.

    A pipeline whose driver signs nothing leaves the three fields out; see `core/wire/control.py`.
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


@lru_cache(maxsize=1 << 14)
def shard_of(group: str, shards: int) -> int:
    """The partition of `coord.requests` that holds this group's requests, 0..shards-1."""
    value = java_hash(group)
    return (0 if value == -0x8000_0000 else abs(value)) % shards


#: The partition of `coord.responses` that a client reads unless it chooses another.
reply_partition_of: Final = shard_of


_decode_loose: Final = msgspec.json.Decoder(dict[str, Any]).decode
#: Possessive, and a string that is never closed ends with the value: linear for any bytes.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that could not be read: why, and as much of its sender as was legible."""

    error: ErrorCode
    message: str
    id: str | None = None
    client: str = ""
    #: Space and name of what it was about.
    space: str = "group"
    group: str = ""
    reply: int | None = None


class RequestReader:
    """Reads requests of some types, and of no others.

    Args:
        types: of requests, and of records of the job's driver.
    """

    def __init__(self, types: Sequence[type[Any]]) -> None:
        self._decode = msgspec.json.Decoder(Union[tuple(types)]).decode  # noqa: UP007
        self._types = {each.__struct_config__.tag: each for each in types}

    @cached_property
    def fields(self) -> dict[str, tuple[str, ...]]:
        """The requests among its types with their fields, as ApiVersions answers them."""
        return fields_by_type(self._types.values())

    def read(self, value: bytes | None) -> Any:
        """Read one record's value as a request of wire version 1, or as a `Refusal`.

        Raises nothing.  # INV-40
        """
        if value is None:
            return Refusal(
                error=ErrorCode.INVALID_REQUEST, message="The record has no value: write a request."
            )
        size_bytes, most = len(value), limits.REQUEST_BYTES_MAX
        if size_bytes > most:
            # Read for its sender, who waits for an answer: the topic takes little more than this.
            too_large = f"The request has {size_bytes} bytes: send at most {most}."
            return _refuse(value, ValueError(too_large), self._types)
        try:
            request = self._decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            return _refuse(value, problem, self._types)
        fault = _semantic_fault(request)
        return request if fault is None else _refuse(value, ValueError(fault), self._types)


def fields_by_type(types: Iterable[type[Any]]) -> dict[str, tuple[str, ...]]:
    """The fields of each request among these types, as they are named on the wire."""
    found = {str(each.__struct_config__.tag): each for each in types if issubclass(each, Request)}
    return {tag: tuple(_fields(found[tag])) for tag in sorted(found)}


def _fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        yield field.encode_name
        for row in _rows(field.type):
            yield from (f"{field.encode_name}.{inner}" for inner in _fields(row))


def _rows(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for each in get_args(annotation):
        yield from _rows(each)


def _semantic_fault(request: Request | Control) -> str | None:
    if isinstance(request, Control):
        return request.fault()
    if not is_name(request.client, limits.CLIENT_LENGTH_MAX):
        return no_name("client", limits.CLIENT_LENGTH_MAX)
    # An empty group is Kafka's INVALID_GROUP_ID, which the coordinator answers.
    if request.group and not is_name(request.group, limits.NAME_LENGTH_MAX):
        return no_name("group")
    if not is_name(request.id, limits.CORRELATION_ID_LENGTH_MAX):
        return no_name("id", limits.CORRELATION_ID_LENGTH_MAX)
    return request.fault()


def _refuse(value: bytes, problem: Exception, types: Mapping[str, type[Any]]) -> Refusal:
    """Read a bad request as far as possible, to answer its sender which field is wrong and why."""
    if _nests_deeper_than(limits.NESTING_MAX, value):
        return Refusal(
            error=ErrorCode.INVALID_REQUEST,
            message=f"The value is nested deeper than {limits.NESTING_MAX} levels: no request is.",
        )
    try:
        loose = _decode_loose(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Refusal(
            error=ErrorCode.INVALID_REQUEST, message=printable(f"No JSON object: {problem}.")
        )
    error, message = ErrorCode.INVALID_REQUEST, printable(str(problem))
    if loose.get("v", WIRE_VERSION) != WIRE_VERSION:
        error, message = (
            ErrorCode.UNSUPPORTED_VERSION,
            "v must be 1: no other wire version is known.",
        )
    elif isinstance(loose.get("type"), str) and loose["type"] not in types:
        error, message = (
            ErrorCode.UNSUPPORTED_VERSION,
            "type must be one that this coordinator knows.",
        )
    reply = loose.get("reply")
    space, name = _entity_of(loose, types)
    return Refusal(
        error=error,
        message=message,
        id=_legible(loose.get("id"), limits.CORRELATION_ID_LENGTH_MAX) or None,
        client=_legible(loose.get("client"), limits.CLIENT_LENGTH_MAX),
        space=space,
        group=_legible(loose.get(name), limits.NAME_LENGTH_MAX),
        reply=reply if type(reply) is int and reply >= 0 else None,
    )


def _entity_of(loose: Mapping[str, Any], types: Mapping[str, type[Any]]) -> tuple[str, str]:
    """The space of a bad request, and the field in which its type has the entity's name."""
    space, tag = loose.get("space"), loose.get("type")
    request = types.get(tag, Request) if isinstance(tag, str) else Request
    if not issubclass(request, Request):
        return Request.SPACE, "group"
    fields = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    return _legible(space, limits.SPACE_LENGTH_MAX) or request.SPACE, dict(fields)["group"]


def printable(text: str) -> str:
    """A message that may quote its sender, made safe to encode and of bounded length."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[: limits.REASON_LENGTH_MAX])


def _nests_deeper_than(levels: int, value: bytes) -> bool:
    """Whether brackets outside strings nest deeper than this.

    The decoder gives up by the interpreter's recursion limit, which depends on who calls it: the
    same bytes would be refused in other words by another process.  # INV-01
    """
    brackets = _STRINGS.sub(b"", value).translate(None, _NO_BRACKETS)
    # Without a loop in Python: a megabyte of brackets held up all groups of the shard.  # INV-40
    return max(accumulate(map(_BRACKETS.__getitem__, brackets)), default=0) > levels


def _legible(field: Any, bytes_max: int) -> str:
    return field if isinstance(field, str) and is_name(field, bytes_max) else ""
