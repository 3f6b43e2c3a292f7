"""Programs with one consumer of claims each, over a coordination topic in memory. HI is 6 s."""

import itertools
from typing import Any

from coordlib.client.claims.consumer import MarshalConsumer, Marshaler
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import claims as marshal
from tests.client.claims.fake_claims import EPOCH_MS, FakeClaimsLog, FakeClaimsTransport, FakeReader

HI_MS = 6_000
GROUP = "billing"


def t(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


def marshaler_of(
    log: FakeClaimsLog, transport: FakeClaimsTransport | None = None, **config: Any
) -> Marshaler:
    """A client whose log, and whose data, are in memory."""
    return Marshaler(
        {"group.id": "g", "client.id": "c", **config},
        transport=transport or log.transport(),
        data_consumer=FakeReader(log),
    )


class User:
    """A process with one consumer, which works on what it reads, and commits it."""

    def __init__(
        self,
        log: FakeClaimsLog,
        client: str,
        topics: list[str],
        options: ConsumerOptions,
        begins: dict[int, int] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.log, self.client = log, client
        self.transport = log.transport()
        self.transport.begins = begins or {}
        named = {"group.id": GROUP, "client.id": client, **(config or {})}
        self.marshaler = marshaler_of(log, self.transport, **named)
        self.consumer: MarshalConsumer = self.marshaler.consumer(topics, options)
        self.told: list[tuple[str, Any]] = []
        self.consumer.on_claimed = lambda some: self.told.append(("claimed", some))
        self.consumer.on_released = lambda some: self.told.append(("released", some))
        self.consumer.on_lost = lambda some: self.told.append(("lost", some))
        self.consumer.on_topic_claims = lambda some: self.told.append(("topics", some))
        #: What it has read: (partition, offset, epoch), and the messages themselves.
        self.read: list[tuple[TopicPartition, int, int]] = []
        self.messages: list[Any] = []
        self.is_busy = self.is_dead = False
        self.commits = True
        self.reads_per_poll = 10

    @property
    def claims(self) -> tuple[TopicPartition, ...]:
        return self.consumer.claims()

    def poll(self) -> None:
        """One round of its loop."""
        if self.is_busy or self.is_dead or self.transport.is_stopped:
            return
        for _ in range(self.reads_per_poll):
            message = self.consumer.poll(0)
            if message is None:
                return
            place = TopicPartition(message.topic(), message.partition())
            self.read.append((place, message.offset(), self.consumer.token(message)))
            self.messages.append(message)
            if self.commits:
                self.consumer.commit(message)

    def offsets(self, partition: int, topic: str = "t") -> list[int]:
        return [at for place, at, _ in self.read if place == (topic, partition)]

    def die(self) -> None:
        """Like SIGKILL: nothing is written from now on."""
        self.is_dead = self.transport.is_stopped = True


class World:
    """Some users, and time. Two owners of a partition are refused at any time."""

    def __init__(self, topics: dict[str, int] | None = None, **more: Any) -> None:
        self.log = FakeClaimsLog(topics or {"t": 4}, **more)
        self.users: list[User] = []

    def enter(self, client: str, topics: list[str] | None = None, **more: Any) -> User:
        """A user whose consumer has these options; `begins`, `config` are its process's."""
        rest = {key: more.pop(key) for key in ("begins", "config") if key in more}
        user = User(self.log, client, topics or ["t"], ConsumerOptions(**more), **rest)
        self.users.append(user)
        return user

    def run(self, for_ms: int) -> None:
        self.log.pump()
        self.log.advance(for_ms, self.round)

    def round(self) -> None:
        for user in self.users:
            user.poll()
        self.check()

    def check(self) -> None:
        """One owner at a time, by what each may work on at this very moment."""
        held = [each for user in self.users if not user.is_dead for each in user.claims]
        assert len(held) == len(set(held)), f"two owners: {sorted(held)}"

    def close(self, user: User, release: bool = True) -> None:
        user.consumer.close(release, timeout=0)
        self.users.remove(user)
        user.is_dead = True
        self.log.pump()

    def all_read(self, partition: int, topic: str = "t") -> list[int]:
        return sorted(itertools.chain(*(user.offsets(partition, topic) for user in self.users)))

    # ---- other processes, by their messages ---------------------------------------------------

    def marshals(self, kind: type[Any], client: str, partition: int, *tail: int) -> int:
        """A message of Marshal's own client."""
        time_s = (EPOCH_MS + self.log.now_ms) // 1_000
        return self.log.say(kind(1, time_s, "goclient", client, GROUP, "t", partition, *tail))

    def position(self, partition: int, topic: str = "t") -> int | None:
        slot = self.log.world(topic).slots.get((GROUP, topic, partition))
        return None if slot is None else slot.position

    def kinds(self, topic: str = "t") -> list[str]:
        return [type(each).__name__ for each in self.log.messages_of(topic)]


HEARTBEAT, CLAIM, RELEASE = marshal.Heartbeat, marshal.ClaimingPartition, marshal.ReleasingPartition
