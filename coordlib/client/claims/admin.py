"""`ClaimsAdmin`: pause a group, resume it, set its positions; `Survey` for those who only look."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from coordlib import limits
from coordlib.client.claims import events as sg
from coordlib.client.claims.consumer import COORDINATION_TOPIC
from coordlib.client.claims.kafka import find_coordination
from coordlib.client.claims.member import commit, find_starts, made_of
from coordlib.client.claims.options import read_settings
from coordlib.client.claims.reading import Beginnings, LogReader, LogRecord
from coordlib.client.claims.resetting import (
    Copied,
    Copy,
    Input,
    Outcome,
    Output,
    Pause,
    ResetPlan,
    Resetting,
    Step,
)
from coordlib.client.claims.transport import Coordination, LogView, Transport
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.process import Closing, boottime_ms
from coordlib.core.claims.slots import Judgement
from coordlib.core.claims.snapshots import Snapshot
from coordlib.core.claims.world import World
from coordlib.core.wire import claims
from coordlib.errors import CannotReach, CoordError, NotAllowed, SetupError

_SILENCE_S: Final = 20.0
#: Told of every record that is read: its coordination partition, the record, what became of it.
OnRecord = Callable[[int, LogRecord, Judgement], None]


class Survey:
    """The coordination topic as it stands.

    Args:
        options: confluent-kafka's, with `bootstrap.servers`.
        prefix: of the engine's topics, whose snapshots make it quick.

    Raises SetupError: the topic cannot be used. CannotReach: no broker answers.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, prefix: str) -> None:
        self._reader = LogReader(options, "coord-claims", topic)
        self.place: Coordination = find_coordination(self._reader.admin, topic, options)
        self._beginnings = Beginnings(options, self.place, prefix)

    def read(
        self,
        partitions: Collection[int] | None = None,
        *,
        is_whole: bool = False,
        newest_max: int | None = None,
        on_record: OnRecord = lambda *_: None,
    ) -> dict[int, LogView]:
        """Read the log up to the ends that were seen first.

        Args:
            partitions: of the coordination topic; None: all.
            is_whole: from where each log begins, without a snapshot.
            newest_max: with `is_whole`: judge no more than so many records of each.
        """
        numbers = range(self.place.partitions) if partitions is None else sorted(partitions)
        views: dict[int, LogView] = {}
        self._reader.know()
        for number in numbers:
            views[number] = self._begin(number, is_whole, newest_max)
            self._reader.add(number, views[number].position)
        try:
            self._read_to_ends(views, on_record)
        finally:
            for number in views:
                self._reader.drop(number)
        return views

    def _read_to_ends(self, views: Mapping[int, LogView], on_record: OnRecord) -> None:
        missing, heard_s = set(views), time.monotonic()
        while missing:
            self._reader.ask(boottime_ms())
            for number, record in self._reader.read():
                on_record(number, record, views[number].judge(record, boottime_ms()))
                if number in missing:  # others go on for ever
                    heard_s = time.monotonic()
            for number, asked_ms in self._reader.ended():
                views[number].read_to_end(asked_ms)
                missing.discard(number)
            if time.monotonic() - heard_s > _SILENCE_S:
                raise CannotReach(
                    "The coordination topic is not read to its end.",
                    f"{self.place.topic}, partitions {sorted(missing)}",
                    "Check that its leaders are up, then try again.",
                )

    def snapshot(self, partition: int) -> Snapshot | None:
        """The engine's newest one of a coordination partition. Raises as `Beginnings.begin`."""
        return self._beginnings.snapshot(self._reader.admin, partition)

    def restored(self, snapshot: Snapshot, partition: int) -> World:
        """The world of a snapshot."""
        return self._beginnings.restored(snapshot, partition)

    def close(self) -> None:
        self._reader.close()

    def _begin(self, partition: int, is_whole: bool, newest_max: int | None) -> LogView:
        if not is_whole:
            return self._beginnings.begin(self._reader.admin, partition, boottime_ms())
        bounds = self._beginnings.bounds(self._reader.admin, partition)
        first = bounds.start
        if newest_max is not None:
            first = max(first, bounds.end - newest_max)
        world = World(self.place.topic, partition, self.place.partitions, is_late=first > 0)
        view = LogView(world, boottime_ms())
        view.position = first
        return view


_log = logging.getLogger("coordlib.client")

#: How long a change of positions waits for consumers to let go.
PAUSE_TIMEOUT_S: Final = 900.0
PAUSE_MAX_S: Final = limits.PAUSE_MAX_MS // 1_000
ANSWER_TIMEOUT_S: Final = 30.0
#: How long one that was interrupted waits until the log has taken the end of its pause.
UNDO_TIMEOUT_S: Final = 30.0
_SLICE_S: Final = 0.05


class NotSet(CoordError):
    """Positions were not set, or not all of them. `outcomes` says what became of each."""

    def __init__(self, group: str, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = tuple(outcomes)
        failed = [each for each in outcomes if each.error]
        super().__init__(
            f"Positions were not set: {len(failed)} of {len(outcomes)} partitions.",
            f"group {group}: "
            + "; ".join(f"{e.place.topic}:{e.place.partition}: {e.error}" for e in failed),
            "The group continues. Run it again: partitions that are set stay so.",
        )


class StillPaused(CoordError):
    """A change of positions has ended in the middle, and could not undo its pause."""

    def __init__(self, group: str, for_s: int, interval_s: int) -> None:
        super().__init__(
            "Positions were not set, and the group may still be paused.",
            f"group {group}, for at most {for_s} s",
            f"End the pause: coord claims resume {group}. Claims of this command end by themselves "
            f"within {2 * interval_s} s. Then run it again: partitions that are set stay so.",
        )


class ClaimsAdmin(Closing):
    """Works on groups of claims under a client id of its own, on Kafka alone.

    Args:
        config: confluent-kafka's keys, with a `client.id` that no consumer has.
        coordination_topic, transport: as of `Marshaler`.

    Raises SetupError, CannotReach.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        coordination_topic: str = COORDINATION_TOPIC,
        transport: Transport | None = None,
    ) -> None:
        self._settings = read_settings({"group.id": "unused", **config})
        self._owns_transport = transport is None
        if transport is None:
            from coordlib.client.claims.kafka import KafkaClaims

            transport = KafkaClaims(
                self._settings.common,
                coordination_topic,
                client=self._settings.client,
                prefix=self._settings.prefix,
                is_committing=False,
            )
        self._transport: Transport = transport
        self._instance = transport.new_instance()

    def pause(self, group: str, for_s: float) -> None:
        """Let the group's consumers release everything, and claim nothing for so long.

        The time runs on the log's clock. A pause may be replaced by a longer or shorter one.
        Raises SetupError for a time that no pause can have, CannotReach.
        """
        if not 1 <= for_s <= PAUSE_MAX_S:
            raise SetupError(
                "A pause lasts from one second to seven days.", f"{for_s} s", "Pause it again then."
            )
        self._write_pauses(group, round(for_s))

    def resume(self, group: str) -> None:
        """End the group's pause. Raises CannotReach."""
        self._write_pauses(group, 0)

    def set_positions(
        self,
        group: str,
        positions: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        *,
        timeout_s: float = PAUSE_TIMEOUT_S,
        on_waiting: Callable[[Mapping[TopicPartition, str]], None] = lambda _: None,
    ) -> tuple[Outcome, ...]:
        """Pause the group, set these positions once all of its consumers have let go, resume it.

        Kafka's group of the same name takes them first. Where it does not, they are set all the
        same, and `Outcome.is_copied` says so: the next owner copies them with its first sign.

        Args:
            positions: (topic, partition) -> next offset to read.
            timeout_s: until when all must have let go.
            on_waiting: called with who still holds what, whenever that changes.

        Raises:
            NotSet: some or all were not set. Consumers go on from what `outcomes` says.
            StillPaused: it ended in the middle, and could not resume the group.
            SetupError: nothing to set, or no offset that Kafka has: below 0, or beyond 64 bits.
            NotAllowed, CannotReach: the coordination topic cannot be read or written.

        Whatever ends it, also Ctrl-C, the group is resumed first, with the positions of before
        where no new ones are set, and Kafka's group gets those back. A note of the exception says
        so, and how many Kafka's group has perhaps not taken back.
        """
        wanted = {TopicPartition(*place): offset for place, offset in positions.items()}
        good = range(limits.INT64_MAX + 1)
        wrong = [f"{place}: {offset}" for place, offset in wanted.items() if offset not in good]
        if wrong or not wanted:
            what = "Positions are offsets of 0 or more within 64 bits, at least one."
            raise SetupError(what, ", ".join(wrong))
        work = _Work(self._transport, self._plan(group, wanted, timeout_s))
        outcomes = work.run(timeout_s + 3 * ANSWER_TIMEOUT_S, on_waiting)
        if any(each.error for each in outcomes):
            raise NotSet(group, outcomes)
        return outcomes

    def close(self) -> None:
        """End. Nothing that was written is undone."""
        if self._owns_transport:
            self._owns_transport = False
            self._transport.close()

    def _plan(
        self, group: str, wanted: Mapping[TopicPartition, int], timeout_s: float
    ) -> ResetPlan:
        place = self._transport.place
        return ResetPlan(
            group,
            self._settings.client,
            self._instance,
            wanted,
            place.partitions,
            place.interval_ms,
            round(timeout_s * 1_000),
        )

    def _write_pauses(self, group: str, for_s: int) -> None:
        """To all coordination partitions: the group's topics may hash to any."""
        plan = self._plan(group, {}, 0.0)
        awaited = _Awaited(self._transport)
        for partition in range(plan.partitions):
            awaited.ids.add(partition)
            pause = Pause(partition, partition, for_s)
            self._transport.send(awaited, partition, partition, _made_of(plan, pause))
        awaited.wait(ANSWER_TIMEOUT_S)


class _Awaited:
    """A handler for messages of which only the acknowledgement counts."""

    topics: Sequence[str] = ()

    def __init__(self, transport: Transport) -> None:
        self._changed = threading.Condition(transport.lock)
        self._transport = transport
        self.ids: set[int] = set()
        self._problem = ""
        self._refusal: CoordError | None = None

    def feed(self, event: sg.Input) -> None:
        with self._changed:
            if isinstance(event, sg.Acknowledged):
                self.ids.discard(event.id)
            elif isinstance(event, sg.NotWritten):
                self._problem = event.why or "not written"
            self._changed.notify_all()

    def judged(self, view: LogView, judgement: Judgement) -> None:
        """Ignored: no judgement is waited for."""

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        with self._changed:
            self._problem = repr(problem)
            self._refusal = problem if isinstance(problem, CoordError) else None
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until the log has taken all. Raises CannotReach, NotAllowed."""
        self._transport.flush(timeout_s)
        with self._changed:
            self._changed.wait_for(lambda: bool(self._problem or not self.ids), timeout_s)
            if self._refusal is not None:
                raise self._refusal
            if self._problem or self.ids:
                raise CannotReach(
                    "The coordination topic has not taken the message.",
                    self._problem or f"coordination partitions {sorted(self.ids)}",
                    "Check that this client may write it, then try again.",
                )


class _Work:
    """A `Resetting` over a transport."""

    def __init__(self, transport: Transport, plan: ResetPlan) -> None:
        self._transport, self._plan = transport, plan
        self.topics = tuple(sorted({place.topic for place in plan.positions}))
        self._changed = threading.Condition(transport.lock)
        self._problem: Exception | None = None
        self._is_undoing = False
        # Before the transport has it: its threads feed whatever is attached, at once.
        self._machine = Resetting(plan, transport.view_of, transport.rng(), transport.now_ms())
        transport.attach(self)
        with transport.lock:
            self._do(self._machine.begin())

    @property
    def is_over(self) -> bool:
        return self._machine.step is Step.DONE or self._problem is not None

    def run(
        self, timeout_s: float, on_waiting: Callable[[Mapping[TopicPartition, str]], None]
    ) -> tuple[Outcome, ...]:
        """Wait for the end. Raises what has failed, once it is undone; StillPaused: it is not."""
        try:
            self._await(timeout_s, on_waiting)
        except BaseException as reason:
            self._undo(reason)
            raise
        finally:
            self._transport.detach(self)
        if not self._machine.is_resumed:
            raise self._still_paused()
        return self._machine.outcomes()

    def _await(
        self, timeout_s: float, on_waiting: Callable[[Mapping[TopicPartition, str]], None]
    ) -> None:
        until, reported = monotonic() + timeout_s, None
        while not self.is_over and monotonic() < until:
            with self._changed:
                self._changed.wait(_SLICE_S)
                holders = self._machine.holders()
            self._transport.check()
            if holders != reported:
                reported = holders
                on_waiting(holders)
        if self._problem is not None:
            raise self._problem

    def _undo(self, reason: BaseException) -> None:
        """Resume the group; `reason` gets a note of what became of it. Raises StillPaused."""
        with self._changed:
            self._problem, self._is_undoing = None, True
            self._do(self._machine.interrupt("it was interrupted", self._transport.now_ms()))
        try:
            with self._changed:
                self._changed.wait_for(lambda: self.is_over, UNDO_TIMEOUT_S)
        except KeyboardInterrupt as again:  # of somebody who does not want to wait
            if not self._machine.is_resumed:
                raise self._still_paused() from again
        outcomes = self._machine.outcomes()
        done = sum(not each.error for each in outcomes)
        if self._machine.is_resumed:
            behind = sum(not each.is_copied for each in outcomes)
            copies = (
                f"Kafka's group may have {behind} positions that differ, until their next owners "
                "copy them. "
            )
            reason.add_note(
                f"{done} of {len(outcomes)} positions are set, the others are as before. "
                f"{copies if behind else ''}The group continues."
            )
        elif self._machine.has_paused or not isinstance(reason, NotAllowed):
            raise self._still_paused() from reason

    def _still_paused(self) -> StillPaused:
        plan = self._plan
        return StillPaused(plan.group, plan.pause_s, plan.interval_ms // 1_000)

    def feed(self, event: Input) -> None:
        with self._changed:
            self._do(self._machine.handle(event))
            self._changed.notify_all()

    def judged(self, view: LogView, judgement: Judgement) -> None:
        key, now_ms = judgement.key, self._transport.now_ms()
        if key is None:
            self.feed(sg.ReadToEnd(now_ms))
        elif key[0] == self._plan.group and key[1] in self.topics:
            self.feed(view.signal(judgement, self._plan.client, self._plan.instance, now_ms))

    def wake_ms(self) -> int | None:
        return self._machine.wake_ms()

    def fail(self, problem: Exception) -> None:
        with self._changed:
            if not self._is_undoing:  # another of its questions may fail, and the resume be written
                self._problem = problem
            self._changed.notify_all()

    def _do(self, outputs: Sequence[Output]) -> None:
        transport, plan = self._transport, self._plan
        for output in outputs:
            if isinstance(output, Pause):
                transport.send(self, output.id, output.partition, _made_of(plan, output))
            elif isinstance(output, sg.Write):
                shard = claims.partition_of(output.place.topic, plan.partitions)
                made = made_of(output, plan.instance, plan.client, plan.group)
                transport.send(self, output.id, shard, made)
            elif isinstance(output, sg.LookUpStarts):
                sought = output.sought
                transport.in_background(self, lambda sought=sought: self._find(sought))  # type: ignore[misc]
            elif isinstance(output, Copy):
                transport.in_background(self, partial(self._copy, output))

    def _find(self, sought: tuple[sg.Sought, ...]) -> None:
        found = find_starts(self._transport, self._plan.group, sought)
        self.feed(sg.StartsFound(self._transport.now_ms(), found))

    def _copy(self, asked: Copy) -> None:
        """A right that is missing is no reason to leave the group as it is: the log decides."""
        transport, group = self._transport, self._plan.group
        with self._changed:
            if not self._machine.begins(asked):  # it waited too long for a worker
                return
        is_done = False
        try:
            is_done = commit(transport, group, asked.positions)
        except NotAllowed as denied:
            _log.warning("Positions are not copied to Kafka's group %s. %s", group, denied.what)
        self.feed(Copied(transport.now_ms(), asked.id, is_done))


def _made_of(plan: ResetPlan, pause: Pause) -> Callable[[int], claims.AnyMessage]:
    def made(time_s: int) -> claims.AnyMessage:
        names = (plan.instance, plan.client, plan.group)
        return claims.ReleaseGroup(claims.OUR_VERSION, time_s, *names, "", 0, time_s + pause.for_s)

    return made
