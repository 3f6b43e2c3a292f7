"""What goes into a shard and what comes out of it: records, settings, the blob, the status."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from coordlib.config import ShardConfig
from coordlib.core.engine.agenda import Agenda, Noted
from coordlib.core.engine.channels import StoredChannels
from coordlib.core.engine.family import Family, Registry
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.routing import Output
from coordlib.core.engine.row import Row, StoredRow
from coordlib.core.engine.transition import At, Key
from coordlib.core.wire import stored

STATE_VERSION: Final = 2


#: The topic was not LogAppendTime when this record was written.
UNTRUSTED_TIME_MS: Final = -1


class InputRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record of an input; `topic`: its letter."""

    topic: str
    offset: int
    #: The broker's append time; UNTRUSTED_TIME_MS when a client set the record's time.
    timestamp_ms: int
    value: bytes | None


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard must know and cannot learn from its records."""

    shard: int
    shards: int
    reply_partitions: int
    incarnation: str
    bounds: ShardConfig = ShardConfig()
    #: The settings of each family, by its space; absent: its defaults.
    families: dict[str, Any] = {}
    #: With which control records are signed; none: they need not be (rule 17).
    keys: tuple[stored.ControlKey, ...] = ()
    #: Public half, what was signed, signature -> whether it fits; never raises. Pure.
    verify: Callable[[bytes, bytes, bytes], bool] | None = None
    #: Coordinate of a record that is not judged -> why (INV-144).
    set_aside: dict[str, str] = {}
    #: Check every group after every step (tests, simulation), not only its transitions.
    checks_invariants: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError: nothing that the driver writes would ever count."""
        if self.keys and self.verify is None:
            raise ValueError("Control records are signed, and nothing is given to verify them.")

    def of(self, family: type[Family]) -> Any:
        """The settings of a family."""
        own = self.families.get(family.SPACE)
        return family.SETTINGS() if own is None else own

    @property
    def look_interval_ms(self) -> int:
        """`Kind.look` is called at multiples of this on the shard's clock."""
        return self.bounds.check_interval_ms

    def at(self, topic: str, offset: int, time_ms: int, clock_ms: int) -> At:
        """The place of a record of this shard."""
        return At(
            self.shard,
            self.shards,
            topic,
            offset,
            time_ms,
            clock_ms,
            self.incarnation,
            self.reply_partitions,
        )


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the driver must know of a shard, to write ticks and the progress marker."""

    shard: int
    position: stored.ShardPosition
    #: Rule 1's CAP, now.
    cap_ms: int
    #: Whether anything waits for time to pass.
    has_deadline: bool
    #: Highest record whose outputs somebody must react to; -1: none. The driver owes a tick.
    owed: int
    #: Requests whose transactions of Kafka have to be asked about, by offset and in order.
    undecided: tuple[int, ...] = ()
    #: Shard -> number of its newest message that was judged. The driver owes those shards ticks.
    heard: dict[int, int] = {}


class StoredShard(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The blob. Its version is the first element, so that later code can read it.

    Code that does not know its last elements must not drop them, so it takes it for damaged.
    """

    version: int
    clock_ms: int
    previous_ms: int
    #: Newest judged record of each input, by its letter.
    offsets: dict[str, int]
    published: int
    rows: list[StoredRow]
    #: What the families have beside their entities, by space.
    families: dict[str, msgspec.Raw] = {}
    #: Of requests of entities that are not there.
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    #: Outputs that are not known to be published: the newest record of each, and how many bytes
    #: (answered.py).
    answered: tuple[tuple[int, int], ...] = ()
    #: Number of the newest control record that counted.
    control: tuple[int, int] = (0, 0)


class StoredWithChannels(StoredShard, array_like=True, forbid_unknown_fields=True):
    """The blob of a shard that has sent or judged messages: another one keeps its bytes."""

    channels: StoredChannels | None = None


class Loaded(NamedTuple):
    """A state for a batch to begin with."""

    #: Without rows, if they were read elsewhere (pages.py).
    state: StoredWithChannels
    #: The others; this batch's own from now on. None: they are in `state`.
    rows: Iterable[Row] | None = None
    #: What the agenda has of them.
    noted: Collection[Noted] = ()


class Fold(msgspec.Struct, frozen=True):
    """The outcome of a batch."""

    blob: bytes
    outputs: list[Output]
    status: Status


class UnknownStateVersion(ValueError):
    """The blob was written by other code; a rebuild from the topics makes one that is known."""


class _Versioned(msgspec.Struct, array_like=True):
    """As much of any version's blob as every version has."""

    version: int


_decode_version: Final = msgspec.msgpack.Decoder(_Versioned).decode
_decode: Final = msgspec.msgpack.Decoder(StoredWithChannels).decode
_decode_report: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def encode_blob(
    position: stored.ShardPosition,
    rows: Mapping[Key, Row],
    families: Mapping[str, Any],
    refusals: Refusals,
    channels: StoredChannels | None,
) -> bytes:
    """Write a blob: canonical, so that equal states are equal bytes.  # INV-03"""
    fields = (
        STATE_VERSION,
        position.clock_ms,
        position.previous_ms,
        dict(sorted(position.offsets.items())),
        position.published,
        [row.encoded() for _, row in sorted(rows.items())],
        {
            space: msgspec.Raw(_encode(state))
            for space, state in sorted(families.items())
            if state is not None  # one that keeps nothing
        },
        refusals,
        position.answered,
        position.control,
    )
    if channels is None:
        return _encode(StoredShard(*fields))
    return _encode(StoredWithChannels(*fields, channels))


def encode_rows(state: StoredWithChannels, rows: list[StoredRow]) -> bytes:
    """A blob whose rows were read elsewhere (pages.py); `rows`: in the order of a blob."""
    whole = msgspec.structs.replace(state, rows=rows)
    if state.channels is not None:
        return _encode(whole)
    return _encode(StoredShard(*(getattr(whole, name) for name in StoredShard.__struct_fields__)))


def decode_blob(blob: bytes | None, registry: Registry) -> StoredWithChannels:
    """Read a blob; None is a new shard. Raises UnknownStateVersion, msgspec.MsgspecError.

    An empty one is not new: a state that got lost must not pass for one that never was.
    """
    if blob is None:
        return StoredWithChannels(STATE_VERSION, 0, 0, {}, -1, [])
    version = _decode_version(blob).version
    if version != STATE_VERSION:
        raise UnknownStateVersion(
            f"The state has version {version}, this code knows {STATE_VERSION}: start the code "
            "that wrote it, or rebuild into a new checkpoint with --rebuild."
        )
    decoded = _decode(blob)
    unknown = {row.kind for row in decoded.rows} - registry.kinds.keys()
    unknown |= decoded.families.keys() - registry.families.keys()
    if unknown:
        raise UnknownStateVersion(
            f"The state has {', '.join(sorted(unknown))}, which this code lacks: start the code "
            "that wrote it."
        )
    return decoded


def status_of(
    shard: int, position: stored.ShardPosition, agenda: Agenda, answered_owed: int
) -> Status:
    """What the driver must know; `answered_owed`: the record that `answered.py` wants covered."""
    owed = max(answered_owed, max(agenda.waits.values(), default=-1))
    reports = agenda.reports.values()
    return Status(
        shard=shard,
        position=position,
        cap_ms=agenda.cap_ms,
        has_deadline=owed >= 0 or agenda.deadlines > 0,
        owed=owed,
        undecided=tuple(sorted(offset for each in reports for offset in _decode_report(each))),
    )
