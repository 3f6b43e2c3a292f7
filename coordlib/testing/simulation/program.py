"""A consumer program in the simulated world: the real client, a user who works, and a witness.

It reads one message, works on it for a while, asks whether it may still act, acts, and commits from
time to time. When partitions are revoked it commits first. It writes down all it did.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client import AssignedMember, AssignmentFailed
from coordlib.client.consumer import CoordinatedConsumer
from coordlib.client.division import AssignorFailed
from coordlib.client.signals import Partitions, TopicPartition
from coordlib.client.steps import State
from coordlib.errors import CoordError
from coordlib.testing.simulation.cluster import Cluster
from coordlib.testing.simulation.history import Happened
from coordlib.testing.simulation.scheduler import Process
from coordlib.testing.simulation.transport import SimulatedTransport
from coordlib.testing.simulation.wishes import Wish


class Message:
    """As much of a confluent-kafka Message as a consumer looks at."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int:
        return 0

    def error(self) -> None:
        return None


class DataConsumer:
    """As much of a confluent-kafka Consumer as `Reading` uses: partitions, positions, poll."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._positions: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()

    def incremental_assign(self, partitions: list[KafkaTopicPartition]) -> None:
        for each in partitions:
            start = 0 if each.offset == OFFSET_BEGINNING else each.offset
            self._positions[(each.topic, each.partition)] = start

    def incremental_unassign(self, partitions: list[KafkaTopicPartition]) -> None:
        for each in partitions:
            del self._positions[(each.topic, each.partition)]

    def unassign(self) -> None:
        self._positions.clear()

    def poll(self, timeout: float) -> Message | None:
        for place, position in list(self._positions.items()):
            if place in self._paused or position >= self._cluster.partitions[place].end:
                continue
            if place[0] in self._cluster.hidden:
                continue
            # To the end of the row: the next partition has its turn first.
            del self._positions[place]
            self._positions[place] = position + 1
            return Message(*place, position)
        return None

    def seek(self, partition: KafkaTopicPartition) -> None:
        self._positions[(partition.topic, partition.partition)] = partition.offset

    def pause(self, partitions: list[KafkaTopicPartition]) -> None:
        self._paused |= {(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: list[KafkaTopicPartition]) -> None:
        self._paused -= {(each.topic, each.partition) for each in partitions}

    def close(self) -> None:
        self._positions.clear()


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


class Program(Process):
    """One process with one consumer."""

    def __init__(  # noqa: PLR0913, PLR0917  # all that one process is
        self,
        name: str,
        cluster: Cluster,
        habits: Habits,
        record: Callable[[Happened], None],
        connect: Callable[["Program"], SimulatedTransport],
        topics: tuple[str, ...],
        failed: Callable[["Program", CoordError], None] = lambda program, problem: None,
        wish: Wish | None = None,
    ) -> None:
        self._cluster, self.habits, self._record = cluster, habits, record
        #: What it subscribes to, by name.
        self.topics = topics
        #: The same of a member of a server-assigned group; None: it is none.
        self.wish = wish
        self._failed = failed
        super().__init__(cluster.scheduler, name)
        self.transport = connect(self)
        self.group = str(habits.config["group.id"])
        self.consumer = CoordinatedConsumer(
            {**habits.config, "client.id": name, "on_commit": self._committed},
            transport=self.transport,
            data_consumer=DataConsumer(cluster),
        )
        self._ownership = self.consumer.member._membership.held
        #: What it believes to be its own, by what it was told.
        self.held: set[TopicPartition] = set()
        self._since_commit = 0
        #: The message that is being worked on.
        self._pending: Message | None = None
        self.acts = 0
        #: Whether its user has ended it; it may still be writing.
        self.is_done = False
        self.tell("started", detail=str(habits.config.get("group.instance.id") or ""))
        names = list(topics) if wish is None else _first_word(wish)
        self.consumer.subscribe(names, self._assigned, self._revoked, self._lost)
        if wish is not None and wish != Wish(tuple(names)):
            self.say(wish)
        self.after(1, self._turn)

    @property
    def told(self) -> Partitions | None:
        """What its client has told it to own, and it has not let go of."""
        return self._ownership.told

    def wants(self) -> tuple[str, ...]:
        """The topics that exist and that it subscribes to."""
        if self.wish is None:
            return self.topics
        return self.wish.among(self._cluster.listing())

    def fences(self) -> dict[TopicPartition, int | None]:
        """What it may work on now, each with its fencing token."""
        return {each: self._fence_of(each) for each in self.consumer.member.assignment}

    def say(self, wish: Wish) -> None:
        """Its user wants this from now on."""
        member = self.consumer.member
        if isinstance(member, AssignedMember):
            self.wish = wish
            wish.tell(member)

    def may_act_on(self) -> Partitions:
        """What it may work on now, by what it was told and by its fence.

        Not by asking the member: its answer takes note of the time, and who is asked all the time
        behaves better than who is not.
        """
        held = self._ownership
        if held.told and held.fence.is_open(self.transport.now_ms()):
            return held.told
        return ()

    # ---- the user's thread --------------------------------------------------------------------

    def _turn(self) -> None:
        if self.habits.is_busy:
            self.after(self.habits.poll_every_ms, self._turn)
            return
        try:
            message: Any = self.consumer.poll(0)
        except CoordError as problem:
            if not self._is_out(problem):
                self.after(self.habits.poll_every_ms, self._turn)
                return
            self._fail(problem)
            return
        if message is None:
            self.after(self.habits.poll_every_ms, self._turn)
        else:
            self._pending = message
            self.after(self.habits.work_ms(), lambda: self._act(message))

    def _act(self, message: Message) -> None:
        """The work is done; its effect on the world comes now, or later, or not at all.

        A fence that closes may open again, and then nobody else has done this. So the message is
        kept until the member may act, or is told that it has lost the partition.
        """
        place = TopicPartition(message.topic(), message.partition())
        if place not in self.consumer.member.assignment:
            self._wait_for_word(place, message)
            return
        self.acts += 1
        self._pending = None
        self.tell(
            "act",
            partitions=(_name(place),),
            offset=message.offset(),
            generation=self.consumer.member.generation,
            fence=_or_none(self._fence_of(place)),
        )
        self._since_commit += 1
        if self._since_commit >= self.habits.commit_every:
            self._commit()
        self.after(0, self._turn)

    def _fence_of(self, place: TopicPartition) -> int | None:
        member = self.consumer.member
        if isinstance(member, AssignedMember):
            return member.fence_of(*place)
        return member.fence_token

    def _wait_for_word(self, place: TopicPartition, message: Message) -> None:
        try:
            self.consumer.member.poll()
        except CoordError as problem:
            if self._is_out(problem):
                self._fail(problem)
                return
        if place in self.held:
            self.after(50, lambda: self._act(message))
        else:
            self._pending = None
            self.after(50, self._turn)

    def _is_out(self, problem: CoordError) -> bool:
        """Whether this is the end; the group has no assignment for now otherwise."""
        is_told_once = isinstance(problem, AssignmentFailed | AssignorFailed)
        return not is_told_once or self.consumer.member._membership.state is State.FAILED

    def _commit(self, leaving: list[KafkaTopicPartition] | None = None) -> None:
        """All that is done: not the message that is being worked on.

        Of a server-assigned group's just what it lets go of: that goes with the Release.
        """
        self._since_commit = 0
        rows = self.consumer.position(self.consumer.assignment())
        if leaving is not None and self.wish is not None:
            rows = self.consumer.position(leaving)
        if self._pending is not None:
            for row in rows:
                if (row.topic, row.partition) == (self._pending.topic(), self._pending.partition()):
                    row.offset = self._pending.offset()
        offsets = {f"{row.topic}-{row.partition}": row.offset for row in rows if row.offset >= 0}
        try:
            self.consumer.commit(offsets=rows if self._pending is not None else None)
        except CoordError as problem:
            self.tell("commit_failed", detail=str(problem))
        else:
            if offsets:
                generation = self.consumer.member.generation
                self.tell("commit", offsets=offsets, generation=generation)

    def _committed(self, error: Any, partitions: list[KafkaTopicPartition]) -> None:
        offsets = {f"{each.topic}-{each.partition}": each.offset for each in partitions}
        what = "committed" if error is None else "commit_failed"
        self.tell(what, offsets=offsets, detail="" if error is None else str(error))

    # ---- callbacks ----------------------------------------------------------------------------

    def _assigned(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        self.held |= _ours(some)
        self.tell("assigned", partitions=_names(some))

    def _revoked(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        self._commit(some)
        self.held -= _ours(some)
        self.tell("revoked", partitions=_names(some))

    def _lost(self, consumer: CoordinatedConsumer, some: list[KafkaTopicPartition]) -> None:
        self.held -= _ours(some)
        self.tell("lost", partitions=_names(some))

    # ---- ends ---------------------------------------------------------------------------------

    def close(self) -> None:
        """The user ends it in good order; what is still on its way gets its time."""
        self.end("closed")

    def _fail(self, problem: CoordError) -> None:
        """Its client cannot go on, and its user ends it; perhaps somebody starts it again."""
        self.end(f"failed: {problem}")
        self._failed(self, problem)

    def end(self, how: str) -> None:
        if not self.is_alive:
            return
        self.consumer.close(timeout_s=0)
        self.tell("ended", detail=how)
        # The process goes when its producer has written everything, as flush() does.
        self.is_done = True
        self.after(5_000, self.kill)

    def kill(self) -> None:
        if self.is_alive:
            self.transport.close()
            super().kill()
            self.tell("ended", detail="killed")

    def tell(self, what: str, **fields: Any) -> None:
        now_ms = self.scheduler.now_ms
        self._record(Happened(now_ms, what, member=self.name, group=self.group, **fields))


def _first_word(wish: Wish) -> list[str]:
    """What `subscribe` of the consumer can say of it."""
    return list(wish.names) or [f"^{wish.pattern}"]


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _names(some: list[KafkaTopicPartition]) -> tuple[str, ...]:
    return tuple(f"{each.topic}-{each.partition}" for each in some)


def _ours(some: list[KafkaTopicPartition]) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in some}


def _or_none(fence: int | None) -> int:
    return -1 if fence is None else fence
