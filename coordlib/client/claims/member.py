"""One consumer's state machine over a transport: threads outside, no messages of the user here.

The marshaler's instance stands in all that it writes. Callbacks come only from the thread that
polls or closes; whatever the transport's threads feed in is noted until then.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from coordlib.client.claims import events as sg
from coordlib.client.claims.machine import ClaimMachine
from coordlib.client.claims.options import ConsumerOptions, Settings
from coordlib.client.claims.state import Identity
from coordlib.client.claims.transport import LogView, Transport
from coordlib.client.kit.calls import Callbacks, UserCall, uninterrupted, weakly
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Judgement
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.errors import CannotReach, CoordError

_log = logging.getLogger("coordlib.client")


def find_starts(
    transport: Transport, group: str, sought: Sequence[sg.Sought]
) -> tuple[sg.Found, ...]:
    """Bounds and committed offsets; nothing where Kafka does not answer. May block."""
    unknown = [each.place for each in sought if each.needs_committed]
    committed: Mapping[TopicPartition, int] = {}
    try:
        # First: if the topic is made anew meanwhile, its records are read under the former id.
        known = transport.describe({each.place.topic for each in sought})
        ids = {topic: each.topic_id for topic, each in known.items()}
        bounds = transport.bounds([each.place for each in sought])
        if unknown:
            committed = transport.committed(group, unknown)
    except CannotReach as problem:  # the state machine asks again
        _log.info("group %s: starts are not known: %s", group, problem.what)
        return ()
    return tuple(
        sg.Found(
            each.place,
            each.epoch,
            committed.get(each.place),
            *bounds[each.place],
            ids.get(each.place.topic, ""),
        )
        for each in sought
        if each.place in bounds
    )


_MADE: Final[Mapping[sg.Kind, Callable[..., AnyMessage]]] = {
    sg.Kind.ATTEMPT: claims.ClaimingPartition,
    sg.Kind.SIGN: claims.Heartbeat,
    sg.Kind.RELEASE: claims.ReleasingPartition,
    sg.Kind.PROPOSAL: claims.ClaimingMessages,
}


def made_of(write: sg.Write, instance: str, client: str, group: str) -> Callable[[int], AnyMessage]:
    """Makes the message from the time of day in seconds."""
    epoch = claims.BARE if write.epoch is None else write.epoch
    names = (claims.instance_of(instance, epoch, write.topic_id), client, group, *write.place)
    tail = () if write.kind is sg.Kind.ATTEMPT else (write.position,)

    def made(time_s: int) -> AnyMessage:
        return _MADE[write.kind](claims.OUR_VERSION, time_s, *names, *tail)

    return made


def commit(transport: Transport, group: str, positions: Mapping[TopicPartition, int]) -> bool:
    """Commit to Kafka's group; whether it has taken them all. May block; raises NotAllowed."""
    try:
        transport.commit(group, positions, is_awaited=True)
    except CannotReach as problem:
        _log.warning("group %s: Kafka's group has no commit: %s", group, problem.what)
        return False
    return True


WAIT_S: Final = 0.05
#: A close that was interrupted waits so long still.
CLOSE_SLICE_S: Final = 0.2


class Owner(Protocol):
    """What is done before and after the user's callbacks."""

    def before(self, call: sg.Call) -> None:
        """What comes before a callback; done whole."""

    def users_of(self, call: sg.Call) -> UserCall:
        """The user's callback, which is called in the user's thread."""

    def after(self, call: sg.Call) -> None:
        """What comes after a callback, also after one that raised; done whole."""


class ClaimingMember:
    """The part of a consumer that claims; the transport's handler.

    Args:
        instance: the marshaler's 8 hexadecimal digits.
    """

    def __init__(
        self,
        settings: Settings,
        topics: tuple[str, ...],
        options: ConsumerOptions,
        transport: Transport,
        instance: str,
        owner: Owner,
    ) -> None:
        self._transport, self._after = transport, weakly(owner.after)
        self.topics = topics
        self.identity = Identity(
            settings.group,
            settings.client,
            instance,
            topics,
            transport.place.interval_ms,
            settings.begins_at_end,
        )
        #: Waited upon by `poll` and `close`; its lock is the transport's.
        self.changed = threading.Condition(transport.lock)
        self.life = ClaimMachine(self.identity, options, transport.view_of, transport.rng())
        self._callbacks = Callbacks(
            weakly(owner.users_of), weakly(self._called_back), weakly(owner.before)
        )
        self._answers: dict[int, CoordError | None] = {}
        self._tickets = 0
        self._is_counting = False
        #: Topics that are not there, and were told of.
        self._missing: frozenset[str] = frozenset()
        #: Set when it failed: no message is handed out from then on.
        self.failure: CoordError | None = None
        self.is_over = False
        #: Whether `close` has returned.
        self._has_left = False
        self._attach()

    @uninterrupted
    def _attach(self) -> None:
        self._transport.attach(self)

    # ---- the user's thread --------------------------------------------------------------------

    def run_calls(self) -> bool:
        """Run the callbacks that are due; whether there was one. Raises what has failed."""
        self._transport.check()
        was_one = False
        while True:
            self._give(sg.Polled(self._transport.now_ms()))
            if self.failure is not None:
                raise self.failure
            if not self._callbacks.run():
                return was_one
            was_one = True

    @uninterrupted
    def wait(self, timeout_s: float, is_so: Callable[[], bool] = lambda: False) -> bool:
        """Wait until something has happened, or until this is so; whether it is."""
        with self.changed:
            if is_so():
                return True
            self.changed.wait(timeout_s)
            return is_so()

    def flush(self, timeout_s: float) -> None:
        """Write positions that have moved, and wait until the log has them. Raises CannotReach."""
        until, ticket = monotonic() + timeout_s, self._begin_flush()
        while not self.wait(min(WAIT_S, until - monotonic()), lambda: ticket in self._answers):
            if monotonic() >= until:
                self._forget_flush(ticket)
                raise CannotReach(
                    "The log has not taken all positions in time.", self.where, "Flush again."
                )
        error = self._answers.pop(ticket)
        if error is not None:
            raise error

    @uninterrupted
    def _begin_flush(self) -> int:
        with self.changed:
            self._tickets += 1
            self.feed(sg.Flush(self._transport.now_ms(), self._tickets))
            return self._tickets

    @uninterrupted
    def _forget_flush(self, ticket: int) -> None:
        with self.changed:
            self.life.forget_flush(ticket)

    def close(self, releases: bool, timeout_s: float) -> bool:
        """Let go, with callbacks; whether the log has taken all of it in time.

        What it has not goes on without the user, until it is done or an interval has passed, but
        no longer than the transport is open: an attempt that is under way may win, and what it
        wins is released, too.
        """
        until, raised = monotonic() + timeout_s, None
        self._begin_close(releases, threading.get_ident())
        while not self.is_over and self.failure is None:
            try:
                if self._callbacks.run():
                    continue
            except Exception as problem:  # noqa: BLE001  # raised when all else is done
                raised = raised or problem
                continue
            left_s = until - monotonic()
            if left_s <= 0:
                break
            self.wait(min(left_s, CLOSE_SLICE_S), lambda: self.is_over or self._callbacks.is_ready)
        self._leave()
        if raised is not None:
            raise raised
        return self.is_over

    @uninterrupted
    def _begin_close(self, releases: bool, thread: int) -> None:
        inside = self._callbacks.end_this(thread)
        if inside is not None:
            self._after(inside)
        self.feed(sg.Close(self._transport.now_ms(), releases, inside))

    @uninterrupted
    def _leave(self) -> None:
        with self.changed:
            self._has_left = True
            self.feed(sg.Left(self._transport.now_ms()))
            if self.failure is not None:
                self._transport.detach(self)
            elif not self.is_over:
                self._transport.keep(self)

    def warn(self, sentence: str) -> None:
        """Write to the program's log."""
        _log.warning("%s: %s", self.where, sentence)

    @property
    def where(self) -> str:
        return f"group {self.identity.group}, client {self.identity.client}"

    def _called_back(self, call: sg.Call, _has_raised: bool) -> None:
        self._after(call)
        self.feed(sg.CalledBack(self._transport.now_ms(), call))

    # ---- the transport's side -----------------------------------------------------------------

    def feed(self, event: sg.Input) -> None:
        """Take what happened."""
        with self.changed:
            if self.failure is not None:
                return
            for output in self.life.handle(event):
                self._do(output)
            self.changed.notify_all()

    #: The same from the user's thread: a step that was interrupted is done all the same.
    _give = uninterrupted(feed)

    def judged(self, view: LogView, judgement: Judgement) -> None:
        message, key = judgement.message, judgement.key
        if key is None or message is None:
            if judgement.until_ms is not None and message is not None:
                self.feed(sg.ReadToEnd(self._transport.now_ms()))
            return
        identity = self.identity
        if key[0] == identity.group and key[1] in self.topics:
            now_ms = self._transport.now_ms()
            self.feed(view.signal(judgement, identity.client, identity.instance, now_ms))

    def wake_ms(self) -> int | None:
        return self.life.wake_ms() if self.failure is None else None

    def fail(self, problem: Exception) -> None:
        """Stop for good. Claims end by themselves: no sign of life follows."""
        with self.changed:
            if self.failure is None:
                hint = "Close the consumer, and make a new one. Its claims end by themselves."
                if isinstance(problem, CoordError):
                    self.failure = problem
                else:
                    what = f"The consumer has failed: {problem!r}"
                    self.failure = CoordError(what, self.where, hint)
                    self.failure.__cause__ = problem
            if self._has_left:  # nobody polls it any more
                self._transport.detach(self)
            self.changed.notify_all()

    # ---- outputs ------------------------------------------------------------------------------

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Write():
                self._write(output)
            case sg.Call():
                self._callbacks.due.append(output)
            case sg.Warned(sentence):
                self.warn(sentence)
            case sg.Answer(ticket, error):
                self._answers[ticket] = error
            case sg.Closed():
                self.is_over = True
                self._transport.detach(self)
            case _:
                self._do_in_background(output)

    def _do_in_background(self, output: Any) -> None:
        transport, group = self._transport, self.identity.group
        match output:
            case sg.CountPartitions():
                if not self._is_counting:
                    self._is_counting = True
                    transport.in_background(self, self._count)
            case sg.LookUpStarts(sought):
                transport.in_background(self, lambda: self._find_starts(sought))
            case sg.LookUpEnds(places):
                transport.in_background(self, lambda: self._find_ends(places))
            case sg.CommitToKafka(place, position, _, False):
                transport.commit(group, {place: position}, is_awaited=False)
            case sg.CommitToKafka():
                transport.in_background(self, lambda: self._commit(output))

    def _write(self, output: sg.Write) -> None:
        identity = self.identity
        made = made_of(output, identity.instance, identity.client, identity.group)
        partitions = self._transport.place.partitions
        shard = claims.partition_of(output.place.topic, partitions)
        self._transport.send(self, output.id, shard, made)

    # ---- beside: these may block --------------------------------------------------------------

    def _count(self) -> None:
        try:
            found = self._transport.describe(self.topics)
        except CannotReach as problem:
            _log.info("%s: partitions are not counted: %s", self.where, problem.what)
            return
        finally:
            self._is_counting = False
        self._tell_missing(found)
        counts = {topic: each.partitions for topic, each in found.items()}
        ids = {topic: each.topic_id for topic, each in found.items()}
        self.feed(sg.Counted(self._transport.now_ms(), counts, ids))

    def _tell_missing(self, found: Collection[str]) -> None:
        """Once for each topic that is not there: it is misspelt, or comes later."""
        absent = [each for each in self.topics if each not in found]
        if fresh := [each for each in absent if each not in self._missing]:
            _log.warning("%s: topics that are not there: %s", self.where, ", ".join(fresh))
        self._missing = frozenset(absent)

    def _find_starts(self, sought: tuple[sg.Sought, ...]) -> None:
        found = find_starts(self._transport, self.identity.group, sought)
        self.feed(sg.StartsFound(self._transport.now_ms(), found))

    def _find_ends(self, places: sg.Places) -> None:
        try:
            bounds = self._transport.bounds(places)
        except CannotReach as problem:  # the next look asks again
            _log.info("%s: log ends are not known: %s", self.where, problem.what)
            return
        ends = {place: each.end for place, each in bounds.items()}
        self.feed(sg.EndsFound(self._transport.now_ms(), ends))

    def _commit(self, asked: sg.CommitToKafka) -> None:
        transport, place, end = self._transport, asked.place, asked.position
        is_done = commit(transport, self.identity.group, {place: end})
        self.feed(sg.Committed(transport.now_ms(), place, asked.epoch, end, is_done))
