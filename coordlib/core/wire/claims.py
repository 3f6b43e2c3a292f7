"""Marshal's five messages as text, byte for byte both ways, and what the coordination topic's name
says.

    Heartbeat/<version>/<time>/<instance>/<client>/<group>/<topic>/<partition>/<offset>

`decode` accepts what Marshal's own decoder accepts, so numbers are Go's: `[+-]?[0-9]+` in ASCII,
within int64 (Python's `int` takes more). `read` also applies the bounds that Marshal lacks. Both
are total: any bytes give a message or a `Rejected`, never an exception.  # INV-40
Source: seed 003; dropbox/marshal, message.go and cluster.go.
"""

import hashlib
import re
from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.wire.envelope import CONTROL

#: `version` of messages with fencing tokens; Marshal's own clients write 1, and nobody reads it.
OUR_VERSION: Final = 2
#: Seconds between two signs of life where the topic's name does not say how many.
HEARTBEAT_INTERVAL_S: Final = 60
HEARTBEAT_INTERVAL_MIN_S: Final = 6
HEARTBEAT_INTERVAL_MAX_S: Final = 3_600

_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INSTANCE: Final = re.compile(
    r"([0-9a-f]{8})(?:-(0|[1-9][0-9]{0,18})(?:\.([A-Za-z0-9_-]{22}))?)?", re.ASCII
)
_INTERVAL: Final = re.compile(r".*\.(0|[1-9][0-9]{0,9})s", re.ASCII | re.DOTALL)
#: Digits that fit into an int64 whatever they are, and the first number that has more.
_SAFE_DIGITS: Final = 18
_PLAIN_END: Final = 10**_SAFE_DIGITS


class Fault(StrEnum):
    """Why a record is no message, or none that this coordination partition may judge."""

    NO_VALUE = "NO_VALUE"
    TOO_LARGE = "TOO_LARGE"
    NOT_UTF8 = "NOT_UTF8"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    PART_COUNT = "PART_COUNT"
    NO_NUMBER = "NO_NUMBER"
    PARTITION = "PARTITION"
    NAME = "NAME"
    TARGET = "TARGET"
    MISPLACED = "MISPLACED"


#: What the sender of such a record should know, one sentence each.
SENTENCES: Final = {
    Fault.NO_VALUE: "The record has no value: write a message.",
    Fault.TOO_LARGE: f"The message is too long: write at most {limits.CLAIM_BYTES_MAX} bytes.",
    Fault.NOT_UTF8: "The message is not UTF-8.",
    Fault.UNKNOWN_TYPE: "The message begins with no type that Marshal has.",
    Fault.PART_COUNT: "The message has too few or too many parts for its type.",
    Fault.NO_NUMBER: "A number of the message is not decimal, or not within 64 bits.",
    Fault.PARTITION: f"The partition must be from 0 to {limits.INT32_MAX}.",
    Fault.NAME: (
        f"A name has more than {limits.NAME_LENGTH_MAX} bytes of UTF-8, or control characters."
    ),
    Fault.TARGET: "A ReleaseGroup names a topic or a partition: it is about a whole group.",
    Fault.MISPLACED: "The message belongs into the coordination partition of its topic's hash.",
}


class Rejected(msgspec.Struct, frozen=True):
    """A record that changes nothing but the time."""

    error: Fault

    @property
    def sentence(self) -> str:
        """What is wrong with it."""
        return SENTENCES[self.error]


class Message(msgspec.Struct, frozen=True, gc=False):
    """What all messages have, in the order of the wire."""

    #: Parts of the text, the type included.
    PARTS: ClassVar[int] = 8

    version: int
    #: The sender's clock, seconds since 1970.
    time_s: int
    instance: str
    client: str
    group: str
    topic: str
    partition: int


class ClaimingPartition(Message, frozen=True, gc=False):
    """An attempt to become the owner."""


class Heartbeat(Message, frozen=True, gc=False):
    """A sign of the owner, with its position: the next offset that it will read."""

    PARTS: ClassVar[int] = 9

    offset: int


class ReleasingPartition(Message, frozen=True, gc=False):
    """The owner ends its claim, at this position."""

    PARTS: ClassVar[int] = 9

    offset: int


class ClaimingMessages(Message, frozen=True, gc=False):
    """The owner is about to process up to this position."""

    PARTS: ClassVar[int] = 9

    offset: int


class ReleaseGroup(Message, frozen=True, gc=False):
    """A pause of the group: until `expire_s`, by the same clock as `time_s`."""

    PARTS: ClassVar[int] = 9

    expire_s: int


AnyMessage = Heartbeat | ClaimingPartition | ReleasingPartition | ClaimingMessages | ReleaseGroup
_TYPES: Final[dict[str, type[AnyMessage]]] = {
    each.__name__: each
    for each in (Heartbeat, ClaimingPartition, ReleasingPartition, ClaimingMessages, ReleaseGroup)
}
_WITH_NUMBER: Final[dict[str, Callable[..., AnyMessage]]] = {
    name: each for name, each in _TYPES.items() if each is not ClaimingPartition
}
#: Nearly all messages have one of these versions, written so.
_VERSIONS: Final = {b"%d" % number: number for number in range(10)}
#: What `_read_plain` reads by the same rules.
_PLAIN: Final[dict[bytes, Callable[..., AnyMessage]]] = {
    name.encode(): each for name, each in _TYPES.items() if each is not ReleaseGroup
}


#: Instance, client, group, topic, partition.
_Body = tuple[str, str, str, str, int]
#: What was read before, by its bytes or its text. Not an `lru_cache`: that notes the order of uses,
#: so that each one touches three entries, which are in no processor's cache when claims are many.
_BODIES: Final[dict[bytes, _Body]] = {}
_SENDERS: Final[dict[str, "Sender"]] = {}
#: Marshal's own ceiling of claims in a partition is below.
_BODIES_MAX: Final = 32_768
_SENDERS_MAX: Final = 65_536


def decode(value: bytes | None) -> AnyMessage | Rejected:
    """Read a value as Marshal does; nothing is raised. `read` also applies bounds."""
    text = _text_of(value)
    return text if isinstance(text, Rejected) else _parse(text)


def read(value: bytes | None) -> AnyMessage | Rejected:
    """Read a value as `decode`; reject partitions and names beyond the bounds too."""
    # Most messages are short and regular: they take the short way, to the same outcome.
    if value is not None and len(value) <= limits.NAME_LENGTH_MAX:
        message = _read_plain(value)
        if message is not None:
            return message
    return read_any(value)


def read_any(value: bytes | None) -> AnyMessage | Rejected:
    """`read` of any value, without the short way."""
    message = decode(value)
    if isinstance(message, Rejected):
        return message
    if not 0 <= message.partition <= limits.INT32_MAX:
        return Rejected(Fault.PARTITION)
    names = (message.instance, message.client, message.group, message.topic)
    return message if all(map(_is_name, names)) else Rejected(Fault.NAME)


def _read_plain(value: bytes) -> AnyMessage | None:
    """Read a short ASCII text whose numbers are digits alone; None: it is something else."""
    parts = value.split(b"/", 3)
    what = _PLAIN.get(parts[0])
    if what is None or len(parts) != 4:
        return None
    _, version, time_s, rest = parts
    extra, is_attempt = b"0", what is ClaimingPartition
    if not is_attempt:
        rest, _, extra = rest.rpartition(b"/")
    known, body = _VERSIONS.get(version), _BODIES.get(rest) or _keep_body(rest)
    if known is None or body is None or not (time_s.isdigit() and extra.isdigit()):
        return None
    now_s, number = int(time_s), int(extra)
    if now_s >= _PLAIN_END or number >= _PLAIN_END:
        return None
    instance, client, group, topic, partition = body
    if is_attempt:
        return what(known, now_s, instance, client, group, topic, partition)
    return what(known, now_s, instance, client, group, topic, partition, number)


def _keep_body(part: bytes) -> _Body | None:
    body = _body(part)
    if body is not None:
        if len(_BODIES) >= _BODIES_MAX:
            _BODIES.clear()
        _BODIES[part] = body
    return body


def _body(part: bytes) -> _Body | None:
    """Instance to partition: what a claim's messages repeat; None: not as `_read_plain` wants."""
    if not part.isascii():
        return None
    text = part.decode()
    parts = text.split("/")
    if len(parts) != 5 or not text.isprintable():
        return None
    number = parts[4]
    if not number.isdigit() or len(number) > _SAFE_DIGITS or int(number) > limits.INT32_MAX:
        return None
    return parts[0], parts[1], parts[2], parts[3], int(number)


def encode(message: AnyMessage) -> bytes:
    """The text of a message, as Marshal writes it."""
    fields = msgspec.structs.astuple(message)
    return "/".join((type(message).__name__, *map(str, fields))).encode()


def _text_of(value: bytes | None) -> str | Rejected:
    if value is None:
        return Rejected(Fault.NO_VALUE)
    if len(value) > limits.CLAIM_BYTES_MAX:
        return Rejected(Fault.TOO_LARGE)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Rejected(Fault.NOT_UTF8)


def _parse(text: str) -> AnyMessage | Rejected:
    parts = text.split("/")
    what = _TYPES.get(parts[0])
    if what is None:
        return Rejected(Fault.UNKNOWN_TYPE)
    if len(parts) != what.PARTS:
        return Rejected(Fault.PART_COUNT)
    version, time_s, partition = _number(parts[1]), _number(parts[2]), _number(parts[7])
    if version is None or time_s is None or partition is None:
        return Rejected(Fault.NO_NUMBER)
    instance, client, group, topic = parts[3], parts[4], parts[5], parts[6]
    if what is ClaimingPartition:
        return ClaimingPartition(version, time_s, instance, client, group, topic, partition)
    extra = _number(parts[8])
    if extra is None:
        return Rejected(Fault.NO_NUMBER)
    if what is ReleaseGroup and (topic or partition):
        return Rejected(Fault.TARGET)
    return _WITH_NUMBER[parts[0]](version, time_s, instance, client, group, topic, partition, extra)


def _number(text: str) -> int | None:
    """Go's `strconv.ParseInt(text, 10, 64)`; None: it fails."""
    if text.isdigit() and text.isascii() and len(text) <= _SAFE_DIGITS:
        return int(text)
    if not _NUMBER.fullmatch(text) or len(text.lstrip("+-0")) > _SAFE_DIGITS + 1:
        return None
    number = int(text)
    return number if -limits.INT64_MAX - 1 <= number <= limits.INT64_MAX else None


def _is_name(text: str) -> bool:
    """Whether a name is short and plain; Marshal lets an empty one pass, so it does here."""
    return len(text.encode()) <= limits.NAME_LENGTH_MAX and not CONTROL.search(text)


class Sender(NamedTuple):
    """Who sent a message of ours, and under which claim."""

    #: Eight hexadecimal digits, drawn once per process.
    process: str
    #: Offset of the record that won the slot; BARE: the message names none.
    epoch: int
    #: Kafka's id of the topic whose position the message has; empty: it names none.
    topic_id: str = ""


#: A message of ours without an epoch: an attempt, a reclaim, a pause.
BARE: Final = -1


def sender_of(message: AnyMessage, offset: int) -> Sender | None:
    """Whose rules judge the message at this offset: None: Marshal's, else ours.

    An epoch is the offset of a record before: one that cannot be makes a message Marshal's, as
    everything else that is not exactly of our form.
    """
    if message.version != OUR_VERSION:
        return None
    sender = _SENDERS.get(message.instance) or _keep_sender(message.instance)
    return None if sender is None or sender.epoch >= offset else sender


def _keep_sender(instance: str) -> Sender | None:
    sender = _sender(instance)
    if sender is not None:
        if len(_SENDERS) >= _SENDERS_MAX:
            _SENDERS.clear()
        _SENDERS[instance] = sender
    return sender


def _sender(instance: str) -> Sender | None:
    found = _INSTANCE.fullmatch(instance)
    if found is None:
        return None
    process, epoch, topic_id = found.groups()
    return Sender(process, BARE if epoch is None else int(epoch), topic_id or "")


def instance_of(process: str, epoch: int = BARE, topic_id: str = "") -> str:
    """The instance id of a message of ours. Marshal's text has no other place for a topic's id."""
    if epoch == BARE:
        return process
    return f"{process}-{epoch}.{topic_id}" if topic_id else f"{process}-{epoch}"


def partition_of(topic: str, partitions: int) -> int:
    """The coordination partition of a topic: by the hash of its name only, as Marshal's code.

    Seed 003 says hash(topic, partition); differences-from-marshal.md says why not.
    """
    digest = hashlib.md5(topic.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little") % partitions


def heartbeat_interval_ms(coordination_topic: str) -> int:
    """HI by the topic's name, so that no two programs can differ: `__marshal.6s` has 6 seconds.

    A name without such an end has Marshal's 60 s. Raises ValueError: beyond the bounds.
    """
    found = _INTERVAL.fullmatch(coordination_topic)
    seconds = int(found[1]) if found else HEARTBEAT_INTERVAL_S
    if not HEARTBEAT_INTERVAL_MIN_S <= seconds <= HEARTBEAT_INTERVAL_MAX_S:
        raise ValueError(
            f"The name of the coordination topic says {seconds} s between two heartbeats: from "
            f"{HEARTBEAT_INTERVAL_MIN_S} to {HEARTBEAT_INTERVAL_MAX_S} s are possible."
        )
    return seconds * 1_000
