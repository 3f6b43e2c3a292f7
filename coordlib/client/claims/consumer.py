"""`Marshaler`, one process's part in a group that shares partitions by claims; `MarshalConsumer`.

A message counts as handed out when it is taken: its claim holds the position back for it, or, with
delivery at most once, has moved beyond it. It stays here until the line that returns it, which
calls nothing: what an interrupted call has taken is returned by the next one.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from coordlib.client.claims import events as sg
from coordlib.client.claims import state
from coordlib.client.claims.claim import Batch, Claim, CommitToken, Phase
from coordlib.client.claims.events import ClaimLost, ForeignToken, UnseenOffset
from coordlib.client.claims.member import ClaimingMember
from coordlib.client.claims.options import (
    ConsumerOptions,
    Data,
    Settings,
    data_consumer_of,
    read_settings,
    topics_wanted,
)
from coordlib.client.claims.transport import Transport
from coordlib.client.kit.calls import OnePoller, UserCall, uninterrupted
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.process import Closing
from coordlib.errors import CoordError, SetupError


class Handing(NamedTuple):
    """Messages that are to be returned, and what stays."""

    messages: list[Any]
    rest: list[tuple[Claim | None, Any]]


class Taking:
    """The messages that one consumer takes and hands out. To be called uninterrupted."""

    def __init__(
        self,
        data: Data,
        member: ClaimingMember,
        options: ConsumerOptions,
        now_ms: Callable[[], int],
    ) -> None:
        self._data, self._member, self._options, self._now_ms = data, member, options, now_ms
        #: Taken, and not handed out yet; error events are of no claim.
        self.out: list[tuple[Claim | None, Any]] = []
        #: What the newest call is about to return; None: something has changed since.
        self.handing: Handing | None = None
        #: Partitions that have too many uncommitted messages, and were warned of.
        self.full: set[TopicPartition] = set()

    def take(self, count: int) -> Handing:
        """Take what may be handed out now. With the lock: after a loss nothing is handed out."""
        with self._member.changed:
            now_ms, life = self._now_ms(), self._member.life
            # Taken by a call that was interrupted: they go first, unless the claim is gone.
            self.out = [
                (claim, message)
                for claim, message in self.out
                if claim is None or life.claim_of(claim.place, now_ms) is claim
            ]
            while self._data.errors and len(self.out) < count:
                self.out.append((None, self._data.errors.popleft()))
            for place, queue in self._data.turns():
                claim = life.claim_of(place, now_ms)
                if claim is not None and claim.phase is Phase.HELD:
                    self._take_of(claim, queue, count)
        messages = [message for _, message in self.out[:count]]
        self.handing = Handing(messages, self.out[count:])
        return self.handing

    def forget(self) -> None:
        """Drop all messages that were not handed out."""
        self.handing, self.out = None, []

    def _take_of(self, claim: Claim, queue: deque[Any], count: int) -> None:
        while queue and len(self.out) < count:
            offset = queue[0].offset()
            if offset < claim.next_offset:
                queue.popleft()  # the fetcher began a little earlier
                continue
            if not self._may_hand_out(claim, offset):
                return
            if not self._options.is_at_most_once:
                claim.tracker.handed_out(offset)
            claim.next_offset, claim.active_ms = offset + 1, self._now_ms()
            self.out.append((claim, queue.popleft()))

    def _may_hand_out(self, claim: Claim, offset: int) -> bool:
        options, open_ = self._options, claim.tracker.outstanding
        if options.is_at_most_once:
            return offset < claim.allowed_end
        if options.strict_ordering and open_:
            return False
        if open_ < options.max_message_queue:
            self.full.discard(claim.place)
            return True
        if claim.place not in self.full:
            self.full.add(claim.place)
            self._member.warn(f"{claim.where}: {open_} messages are not committed; no more come.")
        return False


SLICE_S: Final = 0.1  # how long one wait for a message lasts
CONSUME_MAX: Final = 1_000_000
OnPlaces = Callable[[tuple[TopicPartition, ...]], None]
OnTopics = Callable[[tuple[str, ...]], None]


class Offsets(NamedTuple):
    """Of one claimed partition, each the next offset to read or to be written."""

    earliest: int
    latest: int
    #: Kafka's committed offset of the group of the same name; None: there is none.
    committed: int | None
    #: The claim's position.
    current: int


class MarshalConsumer(Closing):
    """Reads what it has claimed. Made by `Marshaler.consumer`; one thread polls.

    `poll`, `consume` and `close` run the callbacks; all other methods may be called from any
    thread, also while a message is worked on.
    """

    def __init__(
        self,
        settings: Settings,
        topics: tuple[str, ...],
        options: ConsumerOptions,
        transport: Transport,
        instance: str,
        reader: Any,
    ) -> None:
        self._transport, self._options, self._instance = transport, options, instance
        self.topics = topics
        self._data = Data(reader, settings.common, topics)
        #: Called with the partitions, or topics, inside `poll` and `close`.
        self.on_claimed: OnPlaces | None = None
        self.on_released: OnPlaces | None = None
        self.on_lost: OnPlaces | None = None
        #: Called with all topics that are claimed whole, whenever they have changed.
        self.on_topic_claims: OnTopics | None = None
        self._is_closed = False
        self._poller = OnePoller()
        self._on_closed: Callable[[MarshalConsumer], None] = lambda _: None
        self._member = ClaimingMember(settings, topics, options, transport, instance, self)
        self._taking = Taking(self._data, self._member, options, transport.now_ms)

    # ---- messages -----------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Any:
        """The next message, or one with `error()`; None when there is none in time.

        Args:
            timeout: seconds; None or negative: until there is one.

        Raises:
            CoordinationTopicChanged: the coordination topic is another one now.
            NotAllowed: the brokers refuse it: a right is missing.
            CannotReach: the transport has failed.
            CoordError: the consumer is closed, or has failed, or another thread is polling.
        """
        while True:
            handing = self._next(1, timeout)
            if not handing.messages:
                return None
            message, taking = handing.messages[0], self._taking
            if taking.handing is handing: taking.out = handing.rest; return message  # noqa: E701, E702  # fmt: skip

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Any]:
        """Up to `num_messages` messages; returns as soon as there is one, or when time is up.

        A message may be worked on while `may_work(message)` holds. Raises as `poll`.
        """
        if not 0 <= num_messages <= CONSUME_MAX:
            raise ValueError(f"num_messages must be between 0 and {CONSUME_MAX:,}")
        while True:
            handing = self._next(num_messages, timeout)
            messages, taking = handing.messages, self._taking
            if not messages:
                return messages
            if taking.handing is handing: taking.out = handing.rest; return messages  # noqa: E701, E702  # fmt: skip

    def _next(self, count: int, timeout: float | None) -> Handing:
        """What is to be returned. It is handed out by the line that returns it, without a call."""
        return self._poller.run(lambda: self._wait_for(count, timeout))

    def _wait_for(self, count: int, timeout: float | None) -> Handing:
        if self._is_closed:
            raise CoordError("The consumer is closed.", self._member.where)
        until = None if timeout is None or timeout < 0 else monotonic() + timeout
        while True:
            self._member.run_calls()
            if self._is_closed:
                return Handing([], [])  # in one of the callbacks
            left_s = SLICE_S if until is None else max(0.0, until - monotonic())
            handing = self._turn(count, min(SLICE_S, left_s))
            if self._data.denied is not None:
                denied = self._data.denied
                self._data.denied = None
                raise denied
            if handing.messages or not count or (until is not None and monotonic() >= until):
                return handing

    @uninterrupted
    def _turn(self, count: int, wait_s: float) -> Handing:
        """Prepare what may be handed out, and wait a moment if there is nothing."""
        if not self._taking.take(count).messages and count:
            self._fetch(wait_s)
            self._taking.take(count)
        handing = self._taking.handing
        assert handing is not None, "just prepared"
        return handing

    def _fetch(self, wait_s: float) -> None:
        if self._data.waiting:
            has_waiting = any(self._data.waiting.values())
            self._data.fetch(0.0 if has_waiting else wait_s)
            if has_waiting:
                self._announce()
                self._member.wait(min(wait_s, 0.02))
        else:
            self._member.wait(wait_s)
        for place in self._data.out_of_range:
            self._member.feed(sg.OutOfRange(self._transport.now_ms(), place))
        self._data.out_of_range.clear()

    def _announce(self) -> None:
        """At most once: what waits is announced in the log before any of it is handed out."""
        if not self._options.is_at_most_once:
            return
        for place, queue in self._data.turns():
            claim = self._member.life.me.claims.get(place)
            if claim is not None and claim.batch is Batch.NONE:
                first = queue[0].offset()
                last = queue[min(len(queue), self._options.max_message_queue) - 1].offset()
                if first >= claim.allowed_end:
                    now_ms = self._transport.now_ms()
                    self._member.feed(sg.Buffered(now_ms, place, claim.epoch, last + 1))

    # ---- what is done -------------------------------------------------------------------------

    @uninterrupted
    def commit(self, message: Any) -> None:
        """Note that a message is done; its position is written with the next sign of life.

        The position moves over messages that are done without a gap. With delivery at most once
        there is nothing to note.

        Raises:
            ClaimLost: the partition may not be worked on any more.
            UnseenOffset: the message was not handed out under the present claim.
        """
        place, offset = _place_of(message)
        with self._member.changed:
            self._commit(self._claim(place), offset)

    @uninterrupted
    def commit_by_token(self, token: CommitToken) -> None:
        """As `commit`, without the message.

        Raises:
            ForeignToken: another consumer made it, or it is of another claim.
            ClaimLost, UnseenOffset: as `commit`.
        """
        where = f"{token.topic}-{token.partition}, offset {token.offset}, epoch {token.epoch}"
        with self._member.changed:
            if token.instance != self._instance:
                raise ForeignToken(where)
            claim = self._claim(token.place)
            if claim.epoch != token.epoch:
                raise ForeignToken(where)
            self._commit(claim, token.offset)

    def commit_token(self, message: Any) -> CommitToken:
        """A token to commit this message by, here and under the present claim. Raises ClaimLost."""
        place, offset = _place_of(message)
        return CommitToken(*place, offset, self.token(message), self._instance)

    @uninterrupted
    def token(self, message: Any) -> int:
        """The claim's epoch, for systems that refuse writes with a smaller one. Raises ClaimLost.

        Epochs of a partition rise for as long as the coordination topic lives.
        """
        with self._member.changed:
            return self._claim(_place_of(message)[0]).epoch

    @uninterrupted
    def may_work(self, message: Any) -> bool:
        """Whether acting on this message is safe at this moment."""
        place, offset = _place_of(message)
        with self._member.changed:
            if self._is_closed or self._member.failure is not None:
                return False
            claim = self._member.life.claim_of(place, self._transport.now_ms())
            if claim is None or offset >= claim.next_offset:
                return False
            return self._options.is_at_most_once or claim.tracker.has(offset)

    def flush(self, timeout: float = 10.0) -> None:
        """Write positions that have moved, and wait until the log has them. Raises CannotReach."""
        self._member.flush(timeout)

    def _claim(self, place: TopicPartition) -> Claim:
        where = f"{place.topic}-{place.partition}"
        if self._member.failure is not None:
            raise ClaimLost(where, "the consumer has failed") from self._member.failure
        now_ms, life = self._transport.now_ms(), self._member.life
        claim = None if self._is_closed else life.claim_of(place, now_ms)
        if claim is not None:
            return claim
        known = life.me.claims.get(place)
        stop = known and known.fence.broken(now_ms, life.me.view(place).read_ms)
        raise ClaimLost(where, stop.value) if stop else ClaimLost(where)

    def _commit(self, claim: Claim, offset: int) -> None:
        if self._options.is_at_most_once:
            is_seen = offset < claim.next_offset
        else:
            is_seen = claim.tracker.commit(offset)
        if not is_seen:
            raise UnseenOffset(claim.where, offset)
        self._member.changed.notify_all()

    # ---- what it has --------------------------------------------------------------------------

    @uninterrupted
    def claims(self) -> tuple[TopicPartition, ...]:
        """What may be worked on at this moment."""
        with self._member.changed:
            if self._member.failure is not None:
                return ()
            now_ms, life = self._transport.now_ms(), self._member.life
            return tuple(p for p in sorted(life.me.claims) if life.claim_of(p, now_ms) is not None)

    @uninterrupted
    def topic_claims(self) -> tuple[str, ...]:
        """With `claim_entire_topic`: the topics whose key, partition 0, is claimed here."""
        with self._member.changed:
            return state.topics_claimed(self._member.life.me)

    @property
    def fast_forwards(self) -> int:
        """How often a claim began behind its position, because that was deleted unread."""
        return self._member.life.me.fast_forwards

    def current_load(self) -> int:
        """The number of claims."""
        return len(self.claims())

    def current_lag(self) -> int:
        """Records that wait in all claimed partitions. Raises CannotReach."""
        offsets = self.partition_offsets().values()
        return sum(max(0, each.latest - each.current) for each in offsets)

    def partition_offsets(self) -> Mapping[TopicPartition, Offsets]:
        """Offsets of the claimed partitions, asked for now. Raises CannotReach."""
        places = self.claims()
        if not places:
            return {}
        bounds = self._transport.bounds(places)
        committed = self._transport.committed(self._member.identity.group, places)
        positions = self._positions()
        return {
            place: Offsets(each.start, each.end, committed.get(place), positions[place])
            for place, each in bounds.items()
            if place in positions
        }

    @uninterrupted
    def _positions(self) -> dict[TopicPartition, int]:
        with self._member.changed:
            return {place: each.position for place, each in self._member.life.me.claims.items()}

    # ---- the end ------------------------------------------------------------------------------

    def close(self, release: bool = True, timeout: float = 10.0) -> None:
        """Let go (on_released or on_lost is called), and end. A second call does nothing.

        Args:
            release: others may claim at once. False: a last sign of life is written, for a new
                process of the same client id to reclaim within the heartbeat interval.
            timeout: seconds until the log must have taken it; else claims end by themselves. What
                is under way goes on for an interval at most, while the marshaler is open. A close
                that was interrupted goes on when it is called again.
        """
        if self._is_closed:
            return
        raised: Exception | None = None
        try:
            if not self._member.close(release, timeout):
                self._member.warn("It was closed before the log had taken all of its releases.")
        except Exception as problem:  # noqa: BLE001  # of a callback; raised when all else is done
            raised = problem
        self._end()
        if raised is not None:
            raise raised

    @uninterrupted
    def _end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._taking.forget()
            self._data.close()
            self._on_closed(self)

    def on_closed(self, call: Callable[["MarshalConsumer"], None]) -> None:
        """Set what is called once at the end, for the marshaler."""
        self._on_closed = call

    # ---- callbacks ----------------------------------------------------------------------------

    def before(self, call: sg.Call) -> None:
        """What comes before a callback of the user."""
        if call.callback is sg.Callback.CLAIMED:
            self._data.begin(call.starts)

    def users_of(self, call: sg.Call) -> UserCall:
        """The callback of the user."""
        match call.callback:
            case sg.Callback.CLAIMED:
                return self.on_claimed, (call.places,)
            case sg.Callback.TOPICS:
                return self.on_topic_claims, (call.topics,)
            case sg.Callback.RELEASED:
                return self.on_released, (call.places,)
            case sg.Callback.LOST:
                return self.on_lost, (call.places,)

    @uninterrupted
    def after(self, call: sg.Call) -> None:
        """What comes after a callback of the user."""
        if call.callback in (sg.Callback.RELEASED, sg.Callback.LOST):
            self._taking.full.difference_update(call.places)
            self._data.end(call.places)


def _place_of(message: Any) -> tuple[TopicPartition, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if message.error() is not None or topic is None or partition is None or offset is None:
        raise ValueError("An error event has no position.")
    return TopicPartition(topic, partition), offset


COORDINATION_TOPIC = "__marshal"


class Marshaler(Closing):
    """Makes consumers that claim partitions under one group and client id.

    Args:
        config: confluent-kafka's keys. `group.id` and `client.id` are required; a client id is for
            one process at a time, and outlives its restarts. `auto.offset.reset` is `earliest`
            unless given. Everything else goes to all Kafka clients.
        coordination_topic: its name says the heartbeat interval: `__marshal` 60 s, `__marshal.6s`
            6 s. All clients of a group use the same one.
        transport: shared with other marshalers of this program; None: one of its own.

    Raises:
        SetupError: a key that is missing, wrong or not offered; a topic that cannot be used.
        NotAllowed: the brokers refuse it: a right is missing.
        CannotReach: no broker, or no coordination topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        coordination_topic: str = COORDINATION_TOPIC,
        transport: Transport | None = None,
        data_consumer: Any = None,
    ) -> None:
        self._settings: Settings = read_settings(config)
        self._owns_transport = transport is None
        self._transport = transport or _open(self._settings, coordination_topic)
        self._data_consumer = data_consumer
        self.instance = self._transport.new_instance()
        #: One that the program has dropped is collected, and its claims end by themselves.
        self._consumers: WeakSet[MarshalConsumer] = WeakSet()

    def consumer(
        self, topics: Sequence[str], options: ConsumerOptions | None = None
    ) -> MarshalConsumer:
        """A consumer of these topics; it begins to claim at once.

        Raises:
            SetupError: names that cannot be claimed, or another consumer here has a topic.
            NotAllowed, CannotReach: the coordination topic cannot be read.
        """
        options = options or ConsumerOptions()
        wanted = topics_wanted(topics, options)
        taken = {topic for each in self._consumers for topic in each.topics}
        if both := sorted(taken & set(wanted)):
            # Both would have one name in the log: neither could know whose a claim is.
            raise SetupError(
                "Another consumer of this marshaler has the topic.",
                ", ".join(both),
                "Make another marshaler, with a client id of its own.",
            )
        reader = self._data_consumer or data_consumer_of(
            self._settings.common, self._settings.client, options
        )
        try:
            made = MarshalConsumer(
                self._settings, wanted, options, self._transport, self.instance, reader
            )
        except CoordError:
            reader.close()
            raise
        self._consumers.add(made)
        made.on_closed(self._consumers.discard)
        return made

    def claims(self) -> tuple[TopicPartition, ...]:
        """What the consumers of this marshaler may work on at this moment."""
        return tuple(sorted(place for each in self._consumers for place in each.claims()))

    @uninterrupted
    def state(self) -> dict[str, Any]:
        """All slots of the topics that are read here, as far as they are read, to be printed."""
        with self._transport.lock:
            topics = {topic for each in self._consumers for topic in each.topics}
            return {topic: self._state_of(topic) for topic in sorted(topics)}

    def _state_of(self, topic: str) -> dict[str, Any]:
        view = self._transport.view_of(topic)
        found = view.slots(self._settings.group, topic)
        return {
            "as_of_offset": view.position - 1,
            "paused_by": view.paused_by(self._settings.group),
            "slots": {number: slot._asdict() for number, slot in sorted(found.items())},
        }

    def close(self, release: bool = False, timeout: float = 10.0) -> None:
        """Close its consumers, then the transport if it is its own.

        With the transport ends what a consumer did not finish within its timeout. An attempt of it
        that wins after that keeps its partition for two heartbeat intervals, as after a crash.

        Args:
            release: False, as in Marshal: claims stay for a quick restart under this client id.
            timeout: seconds for each consumer.
        """
        for each in list(self._consumers):
            each.close(release, timeout)
        if self._owns_transport:
            self._owns_transport = False
            self._transport.close()


def _open(settings: Settings, coordination_topic: str) -> Transport:
    from coordlib.client.claims.kafka import KafkaClaims

    return KafkaClaims(
        settings.common,
        coordination_topic,
        client=settings.client,
        prefix=settings.prefix,
    )
