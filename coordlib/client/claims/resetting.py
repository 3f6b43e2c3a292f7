"""Setting positions of a group, as a state machine without IO. Source: design, section 9.

The group is paused; each slot is claimed as it becomes free, and kept alive at its old position;
once all are held, Kafka's group takes the new positions, signs stop, and each slot is released with
its new one. A step that fails ends in releases with the old positions. Then the group is resumed.
Should the admin die at any step, the pause ends by itself, its claims expire, and running it again
completes the work: Kafka has no transaction that readers of claims would honour, so the outcome is
per partition.

All positions go to Kafka's group in one commit, and one commit is under way at a time: whatever is
taken back follows the answer to what it takes back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from coordlib.client.claims import events as sg
from coordlib.client.claims.claim import Asked, Fence
from coordlib.client.claims.state import BEAT_PARTS, PASS_PARTS, SILENCE_PARTS
from coordlib.client.kit.events import TopicPartition


@dataclass(frozen=True, slots=True)
class Copy:
    """Commit these positions to Kafka's group if `Copying.begin` lets it; then feed `Copied`."""

    id: int
    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome of a commit that was begun."""

    now_ms: int
    id: int
    #: Whether Kafka's group has all of them. If not, it may have some: an answer may be lost.
    is_done: bool


@dataclass(slots=True)
class Copying:
    """The commits to Kafka's group, and their outcomes."""

    #: Whether Kafka's group has all new positions for certain.
    is_done: bool = False
    #: Whether it may have a new position that was not taken back.
    is_suspected: bool = False
    #: The commit that waits for a worker or for its answer.
    _open: Copy | None = None
    _is_begun: bool = False
    _is_return: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a commit has no outcome yet."""
        return self._open is not None

    @property
    def can_return(self) -> bool:
        """Whether a commit must be reverted, none is in flight, and no revert was tried."""
        return self.is_suspected and not self.is_open and not self._is_return

    def ask(self, copy: Copy, is_return: bool = False) -> Copy:
        """Ask for a commit of new positions, or of the former ones."""
        self._open, self._is_begun, self._is_return = copy, False, is_return
        return copy

    def begin(self, copy: Copy) -> bool:
        """Whether this commit is still wanted. If so it is under way from now on."""
        if copy is not self._open:
            return False
        self._is_begun = True
        if not self._is_return:
            self.is_suspected = True
        return True

    def drop(self) -> None:
        """Forget a commit that was not begun: later it might undo what the next owner copied."""
        if not self._is_begun:
            self._open = None

    def answered(self, event: Copied) -> None:
        if self._open is None or event.id != self._open.id:
            return
        self._open = None
        if self._is_return:
            self.is_suspected = not event.is_done
        else:
            self.is_done = event.is_done


@dataclass(frozen=True, slots=True)
class Pause:
    """Write a ReleaseGroup for so long to this coordination partition; 0 resumes the group."""

    id: int
    partition: int
    for_s: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition."""

    place: TopicPartition
    #: The position before; None: it was not found out.
    prior: int | None
    #: The position afterwards, as judged; None: it is not known to have been set.
    new: int | None
    #: Why it was not set; "": it was.
    error: str = ""
    #: Whether Kafka's group of the same name has the position, too: the new one, or the prior one
    #: where the new one was not set. False: it may differ until the next owner copies its own. All
    #: positions go in one commit, so one refusal is told of all of them.
    is_copied: bool = True


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The positions to set, and who sets them."""

    group: str
    client: str
    #: 8 hexadecimal digits.
    instance: str
    positions: Mapping[TopicPartition, int]
    #: The number of coordination partitions.
    partitions: int
    interval_ms: int
    #: The whole work is given up after this.
    timeout_ms: int

    @property
    def pause_s(self) -> int:
        """It outlives the work by the intervals in which the last claims of a dead admin expire."""
        return self.timeout_ms // 1_000 + 4 * self.interval_ms // 1_000


@dataclass(slots=True)
class Target:
    """The progress of one partition."""

    place: TopicPartition
    new: int
    prior: int | None = None
    #: Of the topic that the position before is of.
    topic_id: str = ""
    #: The position of an older snapshot, where the log has none.
    saved: int | None = None
    asked: Asked | None = None
    epoch: int | None = None
    fence: Fence | None = None
    beat_ms: int = 0
    next_ms: int = 0
    is_set: bool = False
    error: str = ""


class Step(Enum):
    """A step of the work."""

    #: action: ReleaseGroup to every coordination partition. transition: all taken -> CLAIMING
    PAUSING = "pausing the group"
    #: action: attempts and signs. transition: all held -> COPYING; too late, or one lost -> ENDING
    CLAIMING = "claiming its partitions"
    #: action: signs, and the new positions to Kafka's group, in one commit. transition: it has
    #: answered, or an interval has passed -> SETTLING
    COPYING = "copying its positions to Kafka's group"
    #: action: none, until the log has taken every sign (PR #85). transition: it has -> RELEASING
    SETTLING = "waiting for its last signs"
    #: action: releases. transition: all judged, or an interval has passed -> RESUMING
    RELEASING = "releasing its partitions"
    #: action: ReleaseGroup that has ended. transition: all taken, and where the work was given up
    #: Kafka's group has answered, or an interval has passed -> DONE
    RESUMING = "resuming the group"
    DONE = "done"


Input = sg.Input | Copied
Output = sg.Output | Pause | Copy


@dataclass(slots=True)
class Resetting:
    """One change of positions; `handle` is the only way in."""

    plan: ResetPlan
    view_of: Callable[[str], sg.View]
    rng: Random
    now_ms: int
    step: Step = Step.PAUSING
    #: Why the work was given up; "": it was not.
    failure: str = ""
    #: Whether the log has taken a pause of it.
    has_paused: bool = False
    _targets: dict[TopicPartition, Target] = field(default_factory=dict)
    _outputs: list[Output] = field(default_factory=list)
    _copying: Copying = field(default_factory=Copying)
    _ids: int = 0
    #: Pauses, and signs, that the log has not taken yet.
    _pauses: set[int] = field(default_factory=set)
    _signs: dict[int, Target] = field(default_factory=dict)
    _since_ms: int = 0
    _until_ms: int = 0

    def __post_init__(self) -> None:
        wanted = sorted(self.plan.positions.items())
        self._targets = {place: Target(place, new) for place, new in wanted}
        self._since_ms = self.now_ms
        self._until_ms = self.now_ms + self.plan.timeout_ms
        self._pause(self.plan.pause_s)

    # ---- the way in ---------------------------------------------------------------------------

    def begin(self) -> list[Output]:
        """The first outputs."""
        return self._take_outputs()

    def handle(self, event: Input) -> list[Output]:
        """Take one input; the outputs are to be done in order."""
        self.now_ms = event.now_ms
        match event:
            case sg.Judged():
                self._judged(event)
            case sg.Acknowledged():
                self._acknowledged(event)
            case sg.NotWritten():
                self._not_written(event)
            case sg.StartsFound():
                self._found(event)
            case Copied():
                self._copied(event)
            case _:
                pass
        self._go_on()
        return self._take_outputs()

    def interrupt(self, why: str, now_ms: int) -> list[Output]:
        """Give up what is not being released yet, and resume the group; the outputs as of `handle`.

        Releases that are under way are waited for: their positions may be set already.
        """
        self.now_ms = now_ms
        if self.step in (Step.PAUSING, Step.CLAIMING, Step.COPYING, Step.SETTLING):
            self._give_up(why)
        self._go_on()
        return self._take_outputs()

    def begins(self, copy: Copy) -> bool:
        """Whether this commit is still wanted; from now on Kafka's group may have it."""
        return self._copying.begin(copy)

    @property
    def is_resumed(self) -> bool:
        """Whether the log has taken the end of the pause, in every coordination partition."""
        return self.step in (Step.RESUMING, Step.DONE) and not self._pauses

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest."""
        return None if self.step is Step.DONE else self.now_ms + self.plan.interval_ms // 50

    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each partition."""
        copying = self._copying
        return tuple(
            Outcome(
                each.place,
                each.prior,
                each.new if each.is_set else None,
                self._error_of(each),
                is_copied=copying.is_done if each.is_set else not copying.is_suspected,
            )
            for each in self._targets.values()
        )

    def holders(self) -> dict[TopicPartition, str]:
        """Which client still holds each partition that this admin waits for."""
        found = {place: self._slot(place) for place, t in self._targets.items() if t.epoch is None}
        return {
            place: slot.client
            for place, slot in found.items()
            if slot is not None and slot.is_live and slot.client != self.plan.client
        }

    def _error_of(self, target: Target) -> str:
        return "" if target.is_set else target.error or self.failure or "not set"

    # ---- what was written ---------------------------------------------------------------------

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        if event.id in self._pauses:
            self._pauses.discard(event.id)
            self.has_paused = True
        signed = self._signs.pop(event.id, None)
        if signed is not None and signed.fence is not None:
            signed.fence.acknowledged(event.produced_ms)
        for target in self._targets.values():
            if target.asked is not None and target.asked.id == event.id:
                target.asked.acknowledged(event)
                self._decide(target)

    def _not_written(self, event: sg.NotWritten) -> None:
        self._signs.pop(event.id, None)
        if event.id in self._pauses:
            self._pauses.clear()
            self._give_up(f"the pause was not written: {event.why}")
        for target in self._targets.values():
            if target.asked is not None and target.asked.id == event.id:
                self._fail(target, f"its message was not written: {event.why}")

    def _judged(self, event: sg.Judged) -> None:
        target = self._targets.get(event.place)
        if target is None:
            return
        if event.is_own and target.asked is not None:
            target.asked.verdicts[event.offset] = event
            self._decide(target)
        slot = self._slot(event.place)
        is_mine = slot is not None and slot.epoch == target.epoch and not slot.is_released
        if self.step in (Step.CLAIMING, Step.COPYING) and target.epoch is not None and not is_mine:
            self._fail(target, f"client {slot.client if slot else ''} has taken it")

    def _decide(self, target: Target) -> None:
        asked = target.asked
        verdict = asked.verdict if asked is not None else None
        if asked is None or verdict is None:
            return
        target.asked = None
        if self.step is Step.RELEASING and not verdict.is_attempt:
            target.is_set = verdict.is_accepted and verdict.position == target.new
            target.error = "" if target.is_set else target.error or "its release was refused"
        elif verdict.is_accepted and verdict.is_attempt:
            self._won(target, asked, verdict)

    def _won(self, target: Target, asked: Asked, verdict: sg.Judged) -> None:
        assert asked.offset is not None
        target.epoch, target.prior = asked.offset, verdict.position
        target.saved, target.topic_id = verdict.saved_position, verdict.topic_id
        target.fence = Fence(self.plan.interval_ms, asked.produced_ms)
        if self.step is Step.RELEASING:  # it was under way when the work was given up
            self._let_go(target, gives_up=True)
        elif target.prior is None:
            self._look_up(target)
        else:
            self._sign(target)

    def _look_up(self, target: Target) -> None:
        assert target.epoch is not None
        target.next_ms = self.now_ms + self.plan.interval_ms // 6
        self._outputs.append(sg.LookUpStarts((sg.Sought(target.place, target.epoch, True),)))

    def _found(self, event: sg.StartsFound) -> None:
        for found in event.found:
            target = self._targets.get(found.place)
            if target is not None and target.epoch == found.epoch and target.prior is None:
                known = (each for each in (found.committed, target.saved) if each is not None)
                target.prior = next(known, found.log_start)
                self._sign(target)

    # ---- what follows -------------------------------------------------------------------------

    def _go_on(self) -> None:
        match self.step:
            case Step.PAUSING:
                self._go_on_pausing()
            case Step.CLAIMING | Step.COPYING:
                self._go_on_claiming()
            case Step.SETTLING:
                if not self._signs:
                    self._release()
                elif self._is_over(self.plan.interval_ms):
                    self._give_up("the log has not taken its last signs")
            case Step.RELEASING:
                self._go_on_releasing()
            case Step.RESUMING:
                is_open = self._pauses or (self.failure and self._copying.is_open)
                if not is_open or self._is_over(self.plan.interval_ms):
                    self._copying.drop()
                    self._enter(Step.DONE)
            case Step.DONE:
                pass

    def _go_on_releasing(self) -> None:
        is_open = any(each.asked is not None for each in self._targets.values())
        if not is_open or self._is_over(self.plan.interval_ms):
            self._enter(Step.RESUMING)
            self._pause(0)

    def _go_on_pausing(self) -> None:
        plan = self.plan
        by = {self.view_of(place.topic).paused_by(plan.group) for place in self._targets}
        if not self._pauses and by == {plan.client}:
            self._enter(Step.CLAIMING)
            self._go_on_claiming()
        elif self._is_over(plan.interval_ms):
            self._give_up("the pause was not written and read in time")

    def _go_on_claiming(self) -> None:
        for target in self._targets.values():
            if target.error:
                continue
            if target.epoch is None:
                self._attempt(target)
            elif self._has_lost(target):
                self._fail(target, "its claim could not be kept alive")
            elif target.prior is None and self.now_ms >= target.next_ms:
                self._look_up(target)
            elif target.prior is not None and self.now_ms >= target.beat_ms:
                self._sign(target)
        if any(each.error for each in self._targets.values()):
            self._give_up("another partition could not be set")
        elif all(each.prior is not None for each in self._targets.values()):
            self._copy()
        elif self.now_ms >= self._until_ms:
            self._name_holders()
            self._give_up("not all of its partitions became free in time")

    def _copy(self) -> None:
        """Kafka's group first. A reader that begins late, behind the last sign of a partition,
        knows no other position, and would undo the change. The outcome decides nothing here."""
        if self.step is Step.CLAIMING:
            self._enter(Step.COPYING)
            self._to_kafka({place: each.new for place, each in self._targets.items()})
        elif not self._copying.is_open or self._is_over(self.plan.interval_ms):
            self._copying.drop()
            self._enter(Step.SETTLING)

    def _copied(self, event: Copied) -> None:
        self._copying.answered(event)
        if self.failure:
            self._take_back()

    def _take_back(self) -> None:
        """Kafka's group gets the positions of before; behind the answer to a copy under way."""
        unset = [each for each in self._targets.values() if not each.is_set]
        prior = {each.place: each.prior for each in unset if each.prior is not None}
        if prior and self._copying.can_return and self.step is not Step.DONE:
            self._to_kafka(prior, is_return=True)

    def _to_kafka(self, positions: dict[TopicPartition, int], is_return: bool = False) -> None:
        self._ids += 1
        self._outputs.append(self._copying.ask(Copy(self._ids, positions), is_return))

    def _name_holders(self) -> None:
        for place, client in self.holders().items():
            self._targets[place].error = f"client {client} still holds it"

    def _has_lost(self, target: Target) -> bool:
        read_ms = self.view_of(target.place.topic).read_ms
        return target.fence is not None and target.fence.broken(self.now_ms, read_ms) is not None

    def _attempt(self, target: Target) -> None:
        """Attempt what is free; and what is not, when nobody else makes the log's time pass."""
        interval_ms, view = self.plan.interval_ms, self.view_of(target.place.topic)
        if target.asked is not None and self.now_ms - target.asked.sent_ms >= interval_ms:
            target.asked = None
        slot = self._slot(target.place)
        is_silent = self.now_ms - view.heard_ms >= interval_ms // SILENCE_PARTS
        is_free = slot is None or not slot.is_live
        if target.asked is not None or self.now_ms < target.next_ms or not view.may_act:
            return
        if is_free or is_silent:
            target.next_ms = self.now_ms + self.rng.randint(0, interval_ms // PASS_PARTS)
            target.asked = Asked(self._write(sg.Kind.ATTEMPT, target), self.now_ms)

    def _sign(self, target: Target) -> None:
        parts, most = BEAT_PARTS
        shortest_ms = self.plan.interval_ms // parts
        target.beat_ms = self.now_ms + shortest_ms + self.rng.randint(0, (most - 1) * shortest_ms)
        assert target.prior is not None
        id_ = self._write(sg.Kind.SIGN, target, target.prior, target.topic_id)
        self._signs[id_] = target

    def _fail(self, target: Target, why: str) -> None:
        target.error = target.error or why

    def _give_up(self, why: str) -> None:
        """Release what is held with its old position, and what is being won; then resume."""
        self.failure = self.failure or why
        self._copying.drop()
        self._take_back()
        self._release(gives_up=True)

    def _release(self, gives_up: bool = False) -> None:
        self._enter(Step.RELEASING)
        for target in self._targets.values():
            if target.epoch is not None and not target.is_set:
                self._let_go(target, gives_up)

    def _let_go(self, target: Target, gives_up: bool) -> None:
        """What has no position yet is left to expire: a release would have to name one."""
        target.asked = None
        if target.prior is None:
            return
        # A new position is of the topic of now, whatever was read before.
        position, topic_id = (target.prior, target.topic_id) if gives_up else (target.new, "")
        id_ = self._write(sg.Kind.RELEASE, target, position, topic_id)
        target.asked = None if gives_up else Asked(id_, self.now_ms)

    def _enter(self, step: Step) -> None:
        self.step, self._since_ms = step, self.now_ms

    def _is_over(self, time_ms: int) -> bool:
        return self.now_ms - self._since_ms >= time_ms

    # ---- small things -------------------------------------------------------------------------

    def _slot(self, place: TopicPartition) -> sg.SlotSeen | None:
        return self.view_of(place.topic).slot(self.plan.group, place)

    def _pause(self, for_s: int) -> None:
        for partition in range(self.plan.partitions):
            self._ids += 1
            self._pauses.add(self._ids)
            self._outputs.append(Pause(self._ids, partition, for_s))

    def _write(self, kind: sg.Kind, of: Target, position: int = 0, topic_id: str = "") -> int:
        self._ids += 1
        epoch = None if kind is sg.Kind.ATTEMPT else of.epoch
        self._outputs.append(sg.Write(self._ids, kind, of.place, epoch, position, topic_id))
        return self._ids

    def _take_outputs(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs
