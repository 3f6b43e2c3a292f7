"""The engine's part of claims: the same World as every client's, and the memory of its judgements.

    fold(blob, records, settings) -> (blob, outputs, status)

is pure, and judges as every client does.  # INV-61

History has every change with its cause, in the order of the log. Of owners, positions and snapshots
the last value in a batch is written: it is the same for any cut.  # INV-02

Expiry has no message. It is recorded at the first record whose time is beyond it, before that
record is judged, so it stands at one place of the history however the log is cut.

A lost state of the engine is made again from a snapshot and the log behind it. Signs keep their
true age: no consumer gets time that clients do not see.  # INV-65
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import UNSET

from coordlib import limits
from coordlib.core.claims import history
from coordlib.core.claims.history import SPACE
from coordlib.core.claims.slots import Judgement, Key, Slot, Slots, Verdict, is_other_topic
from coordlib.core.claims.snapshots import Snapshot, UnreadableSnapshot, pages_of, surplus
from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import UNTRUSTED_TIME_MS, World
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import COMMITTED, At, Output, Refusals, event_of, route
from coordlib.core.engine.fold import coordinate
from coordlib.core.engine.state import Fold, InputRecord, ShardSettings, Status, UnknownStateVersion
from coordlib.core.wire import codec, stored
from coordlib.core.wire.claims import AnyMessage

_NEVER: Final = 2**63 - 1


class Due(Enum):
    """What is due."""

    EXPIRED = "expired"
    FORGOTTEN = "forgotten"


class Agenda:
    """Follows from the slots and the clock: what is due by then has been recorded."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        after_ms = slots.clock_ms + 1
        #: A time that is not later than the next thing to tell, for each slot that has one.
        self._dues: list[tuple[int, Key]] = [
            (due_ms, key)
            for key, slot in slots.slots.items()
            if (due_ms := self._next(slot, after_ms)) is not None
        ]
        heapq.heapify(self._dues)

    @property
    def next_ms(self) -> int:
        """On the clock: before it there is nothing to tell."""
        return self._dues[0][0] if self._dues else _NEVER

    def expect(self, key: Key, slot: Slot) -> None:
        """A slot is new here, or was not live."""
        self._wait(self._slots.clock_ms + 1, key, slot)

    def take(self) -> Iterator[tuple[Due, Key, Slot]]:
        """What is due by now, in order of time, then of name."""
        while self._dues and self._dues[0][0] <= self._slots.clock_ms:
            due = due_ms, key = heapq.heappop(self._dues)
            while self._dues and self._dues[0] == due:
                heapq.heappop(self._dues)
            slot = self._slots.slots.get(key)
            if slot is None:
                continue
            if not slot.is_released and due_ms == slot.heard_ms + self._slots.lifetime_ms:
                yield Due.EXPIRED, key, slot
            elif due_ms == slot.heard_ms + limits.POSITION_KEPT_MS:
                yield Due.FORGOTTEN, key, slot
            else:
                self._wait(due_ms, key, slot)
                continue
            self._wait(due_ms + 1, key, slot)

    def _wait(self, from_ms: int, key: Key, slot: Slot) -> None:
        due_ms = self._next(slot, from_ms)
        if due_ms is not None:
            heapq.heappush(self._dues, (due_ms, key))

    def _next(self, slot: Slot, from_ms: int) -> int | None:
        """The first time, from this one on, at which an event of the slot is due."""
        expires_ms = slot.heard_ms + self._slots.lifetime_ms
        if expires_ms >= from_ms and not slot.is_released:
            return expires_ms
        forgotten_ms = slot.heard_ms + limits.POSITION_KEPT_MS
        return forgotten_ms if forgotten_ms >= from_ms else None


STATE_VERSION: Final = 1
#: Letter of the coordination topic, in coordinates and positions.
MESSAGES: Final = "m"


class Coordination(msgspec.Struct, frozen=True, kw_only=True):
    """Which coordination topic is folded: `ShardSettings.families["claims"]`.

    It names the log and sets nothing: the fold of one log has one outcome.
    """

    topic: str
    #: Kafka's id of the topic, as clients see it.
    topic_id: str


def coordination(settings: ShardSettings) -> Coordination:
    """Of a shard's settings. Raises KeyError: they are another pipeline's."""
    found: Coordination = settings.families[SPACE]
    return found


class StoredClaims(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The blob. Fields are added at the end only."""

    version: int
    #: `World.snapshot`.
    world: bytes
    #: Refusals of what concerns no slot that is here.
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    #: Those of each group that has such slots.
    refusals_of: list[tuple[str, Refusals]] = []
    #: Client -> on the clock: when history has warned of its clock.
    clocks: list[tuple[str, int]] = []
    #: Pages of the newest snapshot that was written.
    pages: int = 0
    #: The first record that should have come next, but was removed; -1: none was. Recorded once.
    gap_from: int = -1


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredClaims).decode


class _Versioned(msgspec.Struct, array_like=True):
    version: int


_decode_version: Final = msgspec.msgpack.Decoder(_Versioned).decode


def encode_blob(stored: StoredClaims) -> bytes:
    """Write a blob.  # INV-03"""
    return _encode(stored)


def decode_blob(blob: bytes) -> StoredClaims:
    """Read a blob. Raises UnknownStateVersion, msgspec.MsgspecError."""
    version = _decode_version(blob).version
    if version != STATE_VERSION:
        raise UnknownStateVersion(
            f"The state of claims has version {version}, this code knows {STATE_VERSION}: start "
            "the code that wrote it, or rebuild into a new checkpoint with --rebuild."
        )
    return _decode(blob)


#: History warns of a client's clock once in this time of the log.
CLOCK_WARNING_MS: Final = 3_600_000
#: The verdicts after which a slot has another owner, or an owner again.
_OWNED: Final = frozenset(history.HOW) - {Verdict.SIGN}
#: To look up a member of an Enum takes longer than most of what is done for a record.
_SIGN: Final = Verdict.SIGN
_IGNORED: Final = Verdict.IGNORED

#: The slot with its newest position, log time and clock of the sign; None: withdrawn.
Position = tuple[Slot, int, int] | None


def fold(blob: bytes | None, records: Iterable[InputRecord], settings: ShardSettings) -> Fold:
    """Judge a batch in offset order. Raises UnknownStateVersion, msgspec.MsgspecError."""
    claims = Claims(blob, settings)
    for record in sorted(records, key=attrgetter("offset")):
        claims.judge(record)
    outputs = claims.close()
    return Fold(claims.encode(), outputs, claims.status())


class Claims:
    """A coordination partition while a batch is judged. Owned by one fold; never shared."""

    def __init__(self, blob: bytes | None, settings: ShardSettings) -> None:
        self._settings = settings
        self._of = of = coordination(settings)
        where = of.topic, settings.shard, settings.shards
        if blob is None:
            self._stored = StoredClaims(STATE_VERSION, b"")
            self.world = World(*where)
        else:
            self._stored = decode_blob(blob)
            self.world = _world(self._stored.world, where)
        self._refusals_of = dict(self._stored.refusals_of)
        self._clocks = dict(self._stored.clocks)
        self._began_ms = self.world.clock_ms
        self._agenda = Agenda(self.world)
        self.outputs: list[Output] = []
        #: What changed in this batch: the newest values.
        self._owners: dict[Key, stored.OwnerValue | None] = {}
        self._positions: dict[Key, Position] = {}
        #: The record that is judged: it, its place once that is needed, and how many lines it has.
        self._record = InputRecord(MESSAGES, -1, UNTRUSTED_TIME_MS, None)
        self._at: At | None = None
        self._ordinal = 0
        #: By how much a client's clock may differ before history warns of it.
        self._skew_max_ms = self.world.interval_ms // 4

    # -- one record ------------------------------------------------------------------------

    def judge(self, record: InputRecord) -> Judgement | None:
        """Apply one record; None: it was judged before.  # INV-04"""
        world = self.world
        if record.offset <= world.offset:
            return None
        world.advance(record.offset, record.timestamp_ms)
        self._record, self._at, self._ordinal = record, None, 0
        if self._agenda.next_ms <= world.clock_ms or self._stored.gap_from >= 0:
            self._tell_time()
        judgement = world.decide(record.value)
        was_live = world.is_live(judgement.before)
        if is_plain(judgement, was_live, world):
            self._keep_position(judgement)
        elif judgement.verdict is not _IGNORED:
            self._follow(judgement, was_live)
        message = judgement.message
        if message is not None and record.timestamp_ms != UNTRUSTED_TIME_MS:
            ahead_ms = message.time_s * 1_000 - record.timestamp_ms
            if not -self._skew_max_ms <= ahead_ms <= self._skew_max_ms:
                self._warn_of_clock(message)
        if self._settings.checks_invariants:
            check_invariants(world, judgement)
        return judgement

    @property
    def _here(self) -> At:
        """Where the record stands; few have anything to tell, so it is made when it is needed."""
        if self._at is None:
            of, own = self._record, self._settings
            self._at = At(
                own.shard,
                own.shards,
                MESSAGES,
                of.offset,
                self._time_ms,
                self.world.clock_ms,
                own.incarnation,
                own.reply_partitions,
                coordinate(MESSAGES, own.shard, of.offset),
            )
        return self._at

    @property
    def _time_ms(self) -> int:
        """The record's stamp, or without one the time of the record before."""
        stamp_ms = self._record.timestamp_ms
        return max(self.world.previous_ms, 0) if stamp_ms == UNTRUSTED_TIME_MS else stamp_ms

    def _follow(self, judgement: Judgement, was_live: bool) -> None:
        before, after, key = judgement.before, judgement.after, judgement.key
        at, value = self._here, self._record.value
        for line in history.lines_of(judgement, self.world, was_live, at, value):
            self._tell(line, before)
        if judgement.dropped is not None:
            self._positions[judgement.dropped] = None
        if key is None or after is None or after is before:
            return
        if not was_live:
            self._agenda.expect(key, after)
        self._keep_owner(judgement, key, after, was_live)
        self._keep_position(judgement)

    def _keep_owner(self, judgement: Judgement, key: Key, after: Slot, was_live: bool) -> None:
        if judgement.verdict == Verdict.RELEASED:
            self._owners[key] = None
        elif judgement.verdict in _OWNED or (judgement.verdict == Verdict.SIGN and not was_live):
            self._owners[key] = stored.OwnerValue(
                client=after.client,
                instance=after.instance,
                epoch=after.epoch,
                since_ms=self._time_ms,
                how=history.HOW[judgement.verdict],
            )

    def _keep_position(self, judgement: Judgement) -> None:
        """Store a position that moved, or that was forgotten meanwhile."""
        before, after, key = judgement.before, judgement.after, judgement.key
        if key is None or after is None or after.position is None:
            return
        clock_ms = self.world.clock_ms
        if (
            before is None
            or (before.position, before.topic_id) != (after.position, after.topic_id)
            or clock_ms - before.heard_ms >= limits.POSITION_KEPT_MS
        ):
            self._positions[key] = after, self._time_ms, clock_ms

    def _tell_time(self) -> None:
        """Record what was lost before the record, and what expired by time alone."""
        at = self._here
        if self._stored.gap_from >= 0:
            self._tell(history.log_gap(self._stored.gap_from, at))
            self._stored.gap_from = -1
        for due, key, slot in self._agenda.take():
            if due is Due.FORGOTTEN:
                self._positions[key] = None
                continue
            self._owners[key] = None
            self._tell(history.expired(key, slot, at.clock_ms - slot.heard_ms, at))

    def _warn_of_clock(self, message: AnyMessage) -> None:
        at = self._here
        warned_ms = self._clocks.get(message.client)
        if warned_ms is None and len(self._clocks) >= limits.CLOCKS_REPORTED_MAX:
            return
        if warned_ms is None or at.clock_ms - warned_ms >= CLOCK_WARNING_MS:
            self._clocks[message.client] = at.clock_ms
            self._tell(history.sender_clock(message, history.skew_ms(message, at), at))

    def _tell(self, line: fx.History, slot: Slot | None = None) -> None:
        """Keep a line of history, unless it is one of a flood of refusals."""
        at = self._here
        kept: fx.History | None = line
        if line.type in history.REFUSALS:
            refusals = self._stored.refusals
            if slot is not None:
                refusals = self._refusals_of.setdefault(line.group, Refusals())
            kept = refusals.line(line, at.clock_ms)
        if kept is not None:
            self.outputs.append(route(event_of(kept, at, self._ordinal), at.shard))
            self._ordinal += 1

    # -- the end of a batch ----------------------------------------------------------------

    def close(self) -> list[Output]:
        """Owners and positions that changed, and a snapshot if it is time for one."""
        effects: list[fx.Effect] = [fx.Own(*key, self._owners[key]) for key in sorted(self._owners)]
        for key in sorted(self._positions):
            group, topic, partition = key
            effects.append(
                fx.Put(
                    topic=COMMITTED,
                    key=codec.encode(key),
                    entity=group,
                    table="positions",
                    place=(topic, partition),
                    value=_committed(self._positions[key]),
                )
            )
        self._stored.world = self.world.snapshot()
        self.outputs += [route(each, self._settings.shard) for each in effects + self._pages()]
        return self.outputs

    def _pages(self) -> list[fx.Effect]:
        """A snapshot, when the clock has crossed a multiple of the heartbeat interval."""
        world, interval_ms = self.world, self.world.interval_ms
        if world.clock_ms // interval_ms == self._began_ms // interval_ms:
            return []
        pages = pages_of(
            self._stored.world, self._of.topic_id, world.partitions, world.offset, world.clock_ms
        )
        before, self._stored.pages = self._stored.pages, len(pages)
        return [*pages, *surplus(len(pages), before)]

    def encode(self) -> bytes:
        """The blob, after `close`. What counts as absent is left out, whenever it was written."""
        window = self.world.clock_ms // limits.REFUSALS_WINDOW_MS
        self._stored.refusals_of = [
            (group, each)
            for group, each in sorted(self._refusals_of.items(), key=lambda item: item[0])
            if each.window == window or each.unreported
        ]
        self._stored.clocks = [
            (client, warned_ms)
            for client, warned_ms in sorted(self._clocks.items())
            if self.world.clock_ms - warned_ms < CLOCK_WARNING_MS
        ]
        return encode_blob(self._stored)

    def status(self) -> Status:
        """No deadline and nothing owed: no ticks have to be written."""
        world = self.world
        return Status(
            shard=self._settings.shard,
            position=stored.ShardPosition(
                clock_ms=world.clock_ms,
                previous_ms=world.previous_ms,
                offsets={} if world.offset < 0 else {MESSAGES: world.offset},
                published=-1,
            ),
            cap_ms=world.cap_ms,
            has_deadline=False,
            owed=-1,
        )


def is_plain(judgement: Judgement, was_live: bool, world: World) -> bool:
    """Whether it is a sign of a live owner that leaves at most a position: nearly all are."""
    before, after = judgement.before, judgement.after
    if judgement.verdict is not _SIGN or not was_live or before is None or after is None:
        return False
    if judgement.key is None or judgement.key[0] in world.pauses:
        return False
    if before.position is None or after.position is None:
        return before.position is None
    if is_other_topic(before.topic_id, after.topic_id):
        return False
    return after.position >= before.position


def _committed(position: Position) -> stored.CommittedValue | None:
    if position is None:
        return None
    slot, time_ms, clock_ms = position
    assert slot.position is not None
    return stored.CommittedValue(
        offset=slot.position,
        leader_epoch=-1,
        metadata="",
        commit_ms=time_ms,
        commit_clock_ms=clock_ms,
        generation=0,
        member=slot.client,
        topic_id=slot.topic_id or UNSET,
    )


def _world(snapshot: bytes, where: tuple[str, int, int]) -> World:
    try:
        return World.restore(snapshot, *where)
    except UnreadableSnapshot as problem:
        raise UnknownStateVersion(str(problem)) from problem


def belongs(snapshot: Snapshot | None, settings: ShardSettings) -> bool:
    """Whether it is of this topic as it is now: a topic made anew has other offsets."""
    if snapshot is None:
        return False
    ours = coordination(settings).topic_id, settings.shards
    return (snapshot.topic_id, snapshot.partitions) == ours


def begin_at(snapshot: Snapshot) -> bytes:
    """The blob as of the snapshot's offset: the next record is the one behind it."""
    return encode_blob(StoredClaims(STATE_VERSION, snapshot.world, pages=snapshot.pages))


def begin_late(
    positions: dict[Key, tuple[int, str]], gap_from: int, settings: ShardSettings, pages: int = 0
) -> bytes:
    """The blob of a log whose next record is not there: only positions are known.

    Args:
        positions: of the newest snapshot (`positions_of`).
        gap_from: the first offset that should have come next: history says so once.
        pages: of the newest snapshot.
    """
    where = coordination(settings).topic, settings.shard, settings.shards
    world = World(*where, is_late=True, positions=positions)
    return encode_blob(
        StoredClaims(STATE_VERSION, world.snapshot(), pages=pages, gap_from=gap_from)
    )


def positions_of(world: World) -> dict[Key, tuple[int, str]]:
    """What a late reader may begin with: positions, with their topics' ids."""
    return {
        key: (slot.position, slot.topic_id)
        for key, slot in sorted(world.slots.items())
        if slot.position is not None
    }


def begun(blob: bytes, settings: ShardSettings) -> World:
    """The world in a blob. Raises UnknownStateVersion, msgspec.MsgspecError."""
    return Claims(blob, settings).world
