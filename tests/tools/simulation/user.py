"""The user of a consumer: reads messages, works on each for a while, acts, and commits.

It asks whether it may act before it does, and commits when partitions are revoked. `user_faults.py`
makes users do more; `program.py` ends their programs.
"""

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client import AssignedMember, AssignmentFailed
from coordlib.client.groups.assignors import AssignorFailed
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.state import State
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from tests.tools.simulation import waiting
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.data import DataConsumer, Message
from tests.tools.simulation.scheduler import Gone, Process
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.wishes import Wish

#: How long a user who waits for an answer does so.
PATIENCE_S = 5.0
RAISES, CLOSES = "raises", "closes"


class UserError(Exception):
    """What a user's own code raises."""


@dataclass
class Habits:
    """How a user behaves; drawn by the seed."""

    luck: Random
    poll_every_ms: int = 100
    work_ms: Callable[[], float] = lambda: 5.0
    commit_every: int = 5
    #: While set, its thread is stuck in something and does not poll.
    is_busy: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    #: How many messages it asks for at once; 1: it polls.
    takes: int = 1
    #: Whether it waits for the answers to its commits.
    waits: bool = False
    #: Whether it gives up the futures of its commits.
    cancels: bool = False
    #: What the next callback does in the end: RAISES, CLOSES, or nothing.
    next_callback: str = ""


class User(Process):
    """One consumer, and whoever uses it; all that he does is written down."""

    def __init__(
        self,
        cluster: Cluster,
        habits: Habits,
        record: Callable[[Happened], None],
        transport: SimulatedTransport,
        wish: Wish,
    ) -> None:
        # The process is there already: its transport runs in it.
        self._cluster, self.habits, self._record = cluster, habits, record
        self.transport = transport
        #: What it subscribes to, and since when, newest last.
        self.wishes: list[tuple[int, Wish]] = [(cluster.scheduler.now_ms, wish)]
        self.group = str(habits.config["group.id"])
        own = {"client.id": self.name, "on_commit": self._committed, "enable.auto.commit": False}
        self.consumer = CoordinatedConsumer(
            {**habits.config, **own},
            transport=transport,
            data_consumer=DataConsumer(cluster),
        )
        waiting.install(self.consumer.member, self)
        self._ownership = self.consumer.member._machine.held
        #: What it believes to be its own, by what it was told.
        self.held: set[TopicPartition] = set()
        self._since_commit = 0
        #: The messages that are being worked on, and that are not begun.
        self._pending: deque[Message] = deque()
        self.acts = 0
        #: What else it has met.
        self.counts: Counter[str] = Counter()
        self.tell("started", detail=str(habits.config.get("group.instance.id") or ""))
        self.begin()
        self.after(1, self._turn)

    @abstractmethod
    def _must_end(self) -> bool:
        """Whether it was ended, or is to be, since its thread last looked."""

    @abstractmethod
    def _fail(self, problem: CoordError) -> None:
        """Its client cannot go on."""

    @abstractmethod
    def _close_in_callback(self) -> None:
        """A callback ends its own consumer."""

    def tell(self, what: str, **fields: Any) -> None:
        now_ms = self.scheduler.now_ms
        self._record(Happened(now_ms, what, member=self.name, group=self.group, **fields))

    # ---- what it wants ------------------------------------------------------------------------

    @property
    def is_assigned(self) -> bool:
        """Whether it is a member of a server-assigned group."""
        return isinstance(self.consumer.member, AssignedMember)

    @property
    def wish(self) -> Wish:
        """What it wants now."""
        return self.wishes[-1][1]

    @property
    def told(self) -> Partitions | None:
        """What its client has told it to own, and it has not let go of."""
        return self._ownership.delivered

    def wants(self) -> tuple[str, ...]:
        """The topics that exist and that it subscribes to."""
        return self.wish.among(self._cluster.listing())

    def fences(self) -> dict[TopicPartition, int | None]:
        """What it may work on now, each with its fencing token."""
        return {each: self._fence_of(each) for each in self.consumer.member.assignment}

    def begin(self) -> None:
        """Its user says what it wants, with its callbacks."""
        wish, member = self.wish, self.consumer.member
        is_assigned = isinstance(member, AssignedMember)
        # Of an expression of a server-assigned group the consumer can say this much only.
        names = list(wish.names) or [f"^{wish.pattern}"] if is_assigned else wish.words()
        self.consumer.subscribe(names, self._assigned, self._revoked, self._lost)
        if isinstance(member, AssignedMember) and wish != Wish(tuple(names)):
            wish.tell(member)

    def say(self, wish: Wish) -> None:
        """Its user wants this from now on; a consumer of a classic group cannot exclude topics."""
        wish = wish if self.is_assigned else replace(wish, exclude=None)
        if wish != self.wish:
            self.wishes.append((self.scheduler.now_ms, wish))
        member = self.consumer.member
        if isinstance(member, AssignedMember):
            wish.tell(member)
        else:
            self.begin()

    def rewind(self, place: TopicPartition, offset: int) -> None:
        """Its user wants to see everything of a partition again from there on."""
        self._drop({place})
        self.consumer.seek(KafkaTopicPartition(*place, offset))
        self.tell("rewound", partitions=(_name(place),), offset=offset)

    def behind(self) -> dict[TopicPartition, int]:
        """How far it is done with each partition that it may work on: where it could seek to."""
        rows = self.consumer.position(self.consumer.assignment())
        done = {TopicPartition(each.topic, each.partition): each.offset for each in rows}
        for message in reversed(self._pending):
            if _place(message) in done:
                done[_place(message)] = message.offset()
        return {place: offset for place, offset in done.items() if offset > 0}

    def may_act_on(self) -> Partitions:
        """What it may work on now, by what it was told and by its fence.

        Not by asking the member: its answer takes note of the time, and who is asked all the time
        behaves better than who is not.
        """
        held = self._ownership
        if held.delivered and held.fence.is_open(self.transport.now_ms()):
            return held.delivered
        return ()

    # ---- the user's thread --------------------------------------------------------------------

    def _turn(self) -> None:
        if self.habits.is_busy:
            self.after(self.habits.poll_every_ms, self._turn)
            return
        fetched = self._ask(self._fetch)  # its callbacks may drop what is pending
        if fetched is not None:
            self._pending.extend(fetched)
            self._go_on()

    def _ask(self, ask: Callable[[], list[Message]]) -> list[Message] | None:
        """What its client has for it; None: its user has come to an end."""
        found: list[Message] = []
        try:
            found = ask()
        except Gone:
            return None
        except CoordError as problem:
            if self._is_out(problem):
                if not self._must_end():
                    self._fail(problem)
                return None
        except UserError:
            pass  # its own: it goes on
        return None if self._must_end() else found

    def _fetch(self) -> list[Message]:
        try:
            if self.habits.takes > 1:
                messages: list[Any] = self.consumer.consume(self.habits.takes, 0)
                self.counts["many"] += len(messages) > 1
                return messages
            message: Any = self.consumer.poll(0)
        except RuntimeError as problem:
            raise Violation(f"INV-29: {self.name} polls and is told {problem!r}") from problem
        return [] if message is None else [message]

    def _poll_member(self) -> list[Message]:
        self.consumer.member.poll()
        return []

    def _go_on(self) -> None:
        """With the next message, or by looking for one."""
        if self._pending:
            message = self._pending[0]
            self.after(self.habits.work_ms(), lambda: self._act(message))
        else:
            self.after(self.habits.poll_every_ms, self._turn)

    def _act(self, message: Message) -> None:
        """The work is done; its effect on the world comes now, or later, or not at all.

        A fence that closes may open again, and then nobody else has done this. So the message is
        kept until the member may act, or is told that it has lost the partition.
        """
        place = _place(message)
        if not self._pending or self._pending[0] is not message:
            self._go_on()  # it has lost the partition meanwhile
            return
        if place not in self.consumer.member.assignment:
            self._wait_for_word(place, message)
            return
        self.acts += 1
        self._pending.popleft()
        self.tell(
            "act",
            partitions=(_name(place),),
            offset=message.offset(),
            generation=self.consumer.member.generation,
            fence=_or_none(self._fence_of(place)),
        )
        self._since_commit += 1
        try:
            if self._since_commit >= self.habits.commit_every:
                self._commit()
        except Gone:
            return
        if self._must_end():
            return
        if self._pending:
            self._go_on()
        else:
            self.after(0, self._turn)

    def _fence_of(self, place: TopicPartition) -> int | None:
        member = self.consumer.member
        if isinstance(member, AssignedMember):
            return member.fence_of(*place)
        return member.fence_token

    def _wait_for_word(self, place: TopicPartition, message: Message) -> None:
        if self._ask(self._poll_member) is None:
            return
        if place in self.held and self._pending and self._pending[0] is message:
            self.after(50, lambda: self._act(message))
            return
        self._drop({place})
        self.after(50, self._go_on if self._pending else self._turn)

    def _drop(self, gone: set[TopicPartition]) -> None:
        """Of what is lost nothing is worked on any more."""
        kept = deque(each for each in self._pending if _place(each) not in gone)
        self.counts["dropped"] += len(self._pending) - len(kept)
        self._pending = kept

    def _is_out(self, problem: CoordError) -> bool:
        """Whether this is the end; the group has no assignment for now otherwise."""
        state = self.consumer.member._machine.state
        return state is State.FAILED or not isinstance(problem, AssignmentFailed | AssignorFailed)

    def _commit(self, leaving: list[KafkaTopicPartition] | None = None) -> None:
        """All that is done: not the messages that are being worked on.

        Of a server-assigned group's just what it lets go of: that goes with the Release.
        """
        self._since_commit = 0
        rows = self.consumer.position(self.consumer.assignment())
        if leaving is not None and self.is_assigned:
            rows = self.consumer.position(leaving)
        undone: dict[tuple[str, int], int] = {}
        for message in self._pending:
            undone.setdefault((message.topic(), message.partition()), message.offset())
        for row in rows:
            row.offset = undone.get((row.topic, row.partition), row.offset)
        offsets = {f"{row.topic}-{row.partition}": row.offset for row in rows if row.offset >= 0}
        try:
            self._write_commit(rows, leaving)
        except CoordError as problem:
            self.tell("commit_failed", detail=str(problem))
        else:
            if offsets:
                generation = self.consumer.member.generation
                self.tell("commit", offsets=offsets, generation=generation)

    def _write_commit(
        self, rows: list[KafkaTopicPartition], leaving: list[KafkaTopicPartition] | None
    ) -> None:
        """As this user does it: without waiting, waiting for the answer, or giving it up."""
        named = rows if self._pending else None
        if self.habits.cancels:
            known = {
                TopicPartition(row.topic, row.partition): row.offset
                for row in rows
                if row.offset >= 0
            }
            future = self.consumer.member.commit_async(known)
            self.after(self.habits.luck.choice([0, 5, 50]), lambda: _ignore(future.cancel()))
            self.tell("commit_failed", detail="given up by its user")
        elif self.habits.waits and not self.scheduler.is_waited:
            self.counts["waited"] += 1
            self.counts["waited in a callback"] += leaving is not None
            with waiting.on_virtual_time(self):
                done = self.consumer.commit(offsets=named, asynchronous=False, timeout_s=PATIENCE_S)
            self._committed(None, done or [])
        else:
            self.consumer.commit(offsets=named)

    def _committed(self, error: Any, partitions: list[KafkaTopicPartition]) -> None:
        offsets = {f"{each.topic}-{each.partition}": each.offset for each in partitions}
        what = "committed" if error is None else "commit_failed"
        self.tell(what, offsets=offsets, detail="" if error is None else str(error))

    def _assigned(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        self.held |= _ours(some)
        self.tell("assigned", partitions=_names(some))
        self._end_callback()

    def _revoked(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        if self.habits.next_callback == RAISES:
            self.tell("commit_failed", detail="its callback raises before it commits")
        else:
            self._commit(some)
        self.held -= _ours(some)
        self._drop(_ours(some))
        self.tell("revoked", partitions=_names(some))
        self._end_callback()

    def _lost(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        self.held -= _ours(some)
        self._drop(_ours(some))
        self.tell("lost", partitions=_names(some))
        self._end_callback()

    def _end_callback(self) -> None:
        """Whatever else its user does in there."""
        does, self.habits.next_callback = self.habits.next_callback, ""
        if does == RAISES:
            self.tell("callback_raised")
            raise UserError
        if does == CLOSES:
            self._close_in_callback()


def _ignore(outcome: object) -> None:
    """What a user who gives something up does not look at."""


def _place(message: Message) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _names(some: list[KafkaTopicPartition]) -> tuple[str, ...]:
    return tuple(f"{each.topic}-{each.partition}" for each in some)


def _ours(some: list[KafkaTopicPartition]) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in some}


def _or_none(fence: int | None) -> int:
    return -1 if fence is None else fence
