"""What goes into a shard and what comes out of it: records, settings, the blob, the status.

`restore` makes a blob from the compacted topics: a lost checkpoint is an inconvenience.  # INV-38
Rule 4: clock, previous timestamp and uncovered causes are kept, sessions are re-armed, because
nobody knows any more when a member was last heard.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from coordlib.config import ShardConfig
from coordlib.core.engine import channels
from coordlib.core.engine.channels import StoredChannels
from coordlib.core.engine.effects import OUTBOX, Key, Output, Refusals
from coordlib.core.engine.protocol import Family, Registry
from coordlib.core.engine.rows import Noted, Row, StoredRow
from coordlib.core.engine.step import Kind, Known, UnknownSavedVersion
from coordlib.core.engine.tables import Place
from coordlib.core.engine.time import NEVER
from coordlib.core.wire import stored
from coordlib.core.wire.stored import ShardPosition

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
    #: (`effects.UnreadOutputs`).
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
decode_report: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode
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


#: Beside the topics of `topics_of`: as much of it as families are restored from.
PROGRESS: Final = "progress"
#: Topic without the prefix -> newest value by key, no tombstones.
Topics = Mapping[str, Mapping[bytes, bytes]]


class _Tagged(msgspec.Struct):
    """As much of any saved head as every kind has."""

    kind: str


_decode_kind = msgspec.json.Decoder(_Tagged).decode


def topics_of(registry: Registry) -> list[str]:
    """The compacted topics, without the prefix, from which shards are restored."""
    found: dict[str, None] = {}
    for family in registry.families.values():
        found[family.HEADS] = None
        found |= dict.fromkeys(table.topic for table in family.tables().values())
    return [*found, OUTBOX] if registry.has_messages else list(found)


def restore(topics: Topics, position: ShardPosition, registry: Registry) -> bytes:
    """The blob of one shard.

    Entries of an entity that is not there are left out: see `orphans`.

    Args:
        topics: the shard's partition of each of `topics_of`, and PROGRESS.
        position: where the shard stood, from the progress marker of the same transaction.

    Raises:
        UnknownSavedVersion: a head was saved by newer code.
        msgspec.MsgspecError: a value was not written by this coordinator.
    """
    rows: dict[Key, Row] = {}
    families: dict[str, Any] = {}
    _refuse_foreign_keys(topics, registry)
    for space, family in registry.families.items():
        heads = _heads(family, topics.get(family.HEADS, {}), registry)
        if (
            space in registry.stateful
            and (state := family.restored(heads, topics.get(PROGRESS, {}))) is not None
        ):
            families[space] = state
        for name, (kind, value) in heads.items():
            row = Row(StoredRow(name, kind.NAME), kind)
            row.set_value(value, _known(row, family, position))
            rows[space, name] = row
        _put_entries(family, topics, rows, position)
    for row in rows.values():
        if row.facts.next_maintenance_ms < NEVER:
            row.look_at_once()  # the bound was found without the job's settings
    used = channels.restored(topics.get(OUTBOX, {})).stored()
    return encode_blob(position, rows, families, Refusals(), used)


def _known(row: Row, family: type[Family], position: ShardPosition) -> Known:
    # Facts that depend on settings are found anew when the shard is loaded (`must_look_again`).
    return row.known(family.SETTINGS(), position.clock_ms)


def _refuse_foreign_keys(topics: Topics, registry: Registry) -> None:
    """Heads and tables may share a topic; each of its keys is of one of them."""
    takers: dict[str, list[Callable[[bytes], object]]] = {}
    for family in registry.families.values():
        takers.setdefault(family.HEADS, []).append(family.head_name)
        for table in family.tables().values():
            takers.setdefault(table.topic, []).append(table.place)
    for topic, names in takers.items():
        for key in topics.get(topic, {}):
            if all(name(key) is None for name in names) and not _is_published(topic, key, registry):
                raise UnknownSavedVersion(f"{topic} has the key {key!r}, which this code lacks.")


def _is_published(topic: str, key: bytes, registry: Registry) -> bool:
    return any(family.is_published(topic, key) for family in registry.families.values())


def _heads(
    family: type[Family], saved: Mapping[bytes, bytes], registry: Registry
) -> dict[str, tuple[Kind, Any]]:
    heads: dict[str, tuple[Kind, Any]] = {}
    for key, value in saved.items():
        name = family.head_name(key)
        if name is None:
            continue
        kind_name = _decode_kind(value).kind
        kind = registry.kinds.get(kind_name)
        if kind is None or kind not in family.KINDS:
            why = f"An entity was saved as {kind_name!r}, which this code lacks."
            raise UnknownSavedVersion(why)
        heads[name] = kind, kind.load(value)
    return heads


def _put_entries(
    family: type[Family],
    topics: Topics,
    rows: Mapping[Key, Row],
    position: ShardPosition,
) -> None:
    for table in family.tables().values():
        found: dict[str, list[tuple[Place, Any]]] = {}
        for key, value in topics.get(table.topic, {}).items():
            at = table.place(key)
            if at is not None and (family.SPACE, at[0]) in rows:
                found.setdefault(at[0], []).append((at[1], table.load(value)))
        for name, entries in found.items():
            row = rows[family.SPACE, name]
            row.settle(
                row.value,
                row.kind,
                _known(row, family, position),
                (),
                [(table, entries)],
            )


def orphans(topics: Topics, registry: Registry) -> list[str]:
    """The names of entities that have entries and no saved head, in order.

    Both are written in one transaction, so only another program, or a defect, can have left them.

    Raises:
        msgspec.MsgspecError: a key was not written by this coordinator.
    """
    found: set[str] = set()
    for family in registry.families.values():
        heads = topics.get(family.HEADS, {})
        for table in family.tables().values():
            places = (table.place(key) for key in topics.get(table.topic, {}))
            names = {at[0] for at in places if at is not None}
            found |= {name for name in names if family.head_key(name) not in heads}
    return sorted(found)
