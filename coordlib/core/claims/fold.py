"""The engine's part: the same World as every client's, and what is remembered of its judgements.

    fold(blob, records, settings) -> (blob, outputs, status)

is pure, and judges as every client does.  # INV-61

History tells every change with its cause, in the order of the log. What only the newest
value of counts (owners, positions, snapshots) is written once per batch: its last value is the
same for any cut.  # INV-02
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.claims import history
from coordlib.core.claims.agenda import Agenda, Due
from coordlib.core.claims.blob import (
    MESSAGES,
    STATE_VERSION,
    StoredClaims,
    coordination,
    decode_blob,
    encode_blob,
)
from coordlib.core.claims.pages import pages_of, surplus
from coordlib.core.claims.slot import Judgement, Key, Slot, Verdict, is_other_topic
from coordlib.core.claims.snapshot import UnreadableSnapshot
from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import UNTRUSTED_TIME_MS, World
from coordlib.core.engine import effect as fx
from coordlib.core.engine.blob import Fold, InputRecord, ShardSettings, Status, UnknownStateVersion
from coordlib.core.engine.refusal_lines import Refusals
from coordlib.core.engine.routing import COMMITTED, Output, route
from coordlib.core.engine.transition import At, event_of
from coordlib.core.wire import codec, stored
from coordlib.core.wire.marshal import AnyMessage

#: History warns of a client's clock once in this time of the log.
CLOCK_TOLD_MS: Final = 3_600_000
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
            of, world = self._record, self.world
            self._at = self._settings.at(MESSAGES, of.offset, self._time_ms, world.clock_ms)
        return self._at

    @property
    def _time_ms(self) -> int:
        """A record without a stamp stands still at the time before it."""
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
        """One that moved, or that was forgotten meanwhile."""
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
        """What was lost before the record, and what time alone has brought."""
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
        told_ms = self._clocks.get(message.client)
        if told_ms is None and len(self._clocks) >= limits.CLOCKS_TOLD_MAX:
            return
        if told_ms is None or at.clock_ms - told_ms >= CLOCK_TOLD_MS:
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
            if each.window == window or each.untold
        ]
        self._stored.clocks = [
            (client, told_ms)
            for client, told_ms in sorted(self._clocks.items())
            if self.world.clock_ms - told_ms < CLOCK_TOLD_MS
        ]
        return encode_blob(self._stored)

    def status(self) -> Status:
        """No deadline and nothing owed: nobody has to write ticks."""
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
