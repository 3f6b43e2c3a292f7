"""A world of honest consumers, in true time: they keep their fence, and so one owns each partition.

Blunt beside the simulator's, and fast: no bytes of data, no transport. What it aims at is what the
fold must promise to consumers that keep their fence, whatever the broker's clock does twice: one
owner at any true time (the sum of TIME-AND-FENCING), and late readers that agree from four
heartbeat intervals on.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims
from coordlib.core.wire.claims import instance_of
from tests.tools.claims import driving

HI_MS: Final = 60_000
TICK_MS: Final = 1_000
PARTITIONS: Final = 3


class Broken(AssertionError):
    """A promise that was broken, with its number."""


@dataclass(slots=True)
class Held:
    """A claim, as its owner has it."""

    epoch: int
    #: True time of the first produce() of its newest acknowledged sign.
    produced_ms: int
    position: int
    next_beat_ms: int


@dataclass(slots=True)
class Sent:
    """A message on its way."""

    sender: "Consumer"
    partition: int
    message: claims.AnyMessage
    produced_ms: int
    arrives_ms: int


@dataclass(slots=True)
class Attempt:
    """What was written, and is not judged yet by its sender."""

    partition: int
    produced_ms: int
    offset: int


@dataclass(slots=True)
class Consumer:
    """A process."""

    client: str
    process: str
    world: World
    #: Index into the log of the next record to read.
    next_read: int
    asked_ms: int
    heard_ms: int
    held: dict[int, Held] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    under_way: int = 0
    sleeps_until_ms: int = 0
    deaf_until_ms: int = 0
    slow_until_ms: int = 0
    arrives_ms: int = 0

    def may_work(self, partition: int, now_ms: int) -> bool:
        """The fence of a claim (design, section 6)."""
        held = self.held.get(partition)
        return (
            held is not None
            and now_ms - held.produced_ms < HI_MS
            and now_ms - self.asked_ms < HI_MS
        )


class Honest:
    """Consumers of one topic, and a broker."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now_ms = 0
        self.log: list[InputRecord] = []
        self.on_the_way: list[Sent] = []
        self.exact = World(driving.TOPIC, 0, 1)
        self.late: list[World] = []
        self.reached = dict.fromkeys(range(PARTITIONS), 0)
        self.shift_ms = 0
        self.steps = self._clock_steps()
        self.names = 0
        #: How often a settled reader was asked for the owner of a slot that it is not sure of.
        self.tentative = 0
        self.consumers = [self._born(f"c{n}") for n in range(4)]

    def _clock_steps(self) -> dict[int, int]:
        """Tick -> by how much the broker's clock goes: two forward steps in two intervals."""
        begin = self.dice.randrange(300, 1_200)
        near = begin + self.dice.randrange(1, 100)
        forward = self.dice.choice((30_000, 3_600_000))
        steps = {begin: forward, near: forward, begin + 400: -self.dice.randrange(100_000)}
        return steps if self.dice.random() < 0.7 else {}

    def _born(self, client: str) -> Consumer:
        self.names += 1
        begins = 0 if self.dice.random() < 0.5 else self._eight_intervals_ago()
        process = f"{self.names:08x}"
        world = World(driving.TOPIC, 0, 1)
        return Consumer(client, process, world, begins, self.now_ms, self.now_ms)

    def _eight_intervals_ago(self) -> int:
        newest_ms = self.log[-1].timestamp_ms if self.log else 0
        return next(
            (n for n, each in enumerate(self.log) if each.timestamp_ms >= newest_ms - 8 * HI_MS), 0
        )

    # -- time ------------------------------------------------------------------------------

    def run(self, ticks: int = 1_500) -> None:
        """Raises Broken."""
        for tick in range(ticks):
            self.now_ms = tick * TICK_MS
            self.shift_ms += self.steps.get(tick, 0)
            self._deliver()
            for consumer in self.consumers:
                if self.now_ms >= consumer.sleeps_until_ms:
                    self._turn(consumer)
            self._check_owners()
            self._fate()
        self._check_late(is_all=True)

    def _fate(self) -> None:
        dice = self.dice
        if dice.random() < 0.02:
            who = dice.choice(self.consumers)
            until_ms = self.now_ms + dice.randrange(1, 3 * HI_MS)
            name = dice.choice(("sleeps_until_ms", "deaf_until_ms", "slow_until_ms"))
            setattr(who, name, until_ms)
        if dice.random() < 0.003:
            place = dice.randrange(len(self.consumers))
            self.consumers[place] = self._born(self.consumers[place].client)
        if dice.random() < 0.005 and len(self.late) < 6:
            self.late.append(World(driving.TOPIC, 0, 1, is_late=True))

    def _deliver(self) -> None:
        arrived = [each for each in self.on_the_way if each.arrives_ms <= self.now_ms]
        self.on_the_way = [each for each in self.on_the_way if each.arrives_ms > self.now_ms]
        for sent in arrived:
            stamp_ms = driving.START_MS + self.now_ms + self.shift_ms
            self.log.append(driving.record(len(self.log), stamp_ms, sent.message))
            self._judge(self.log[-1])
            self._acknowledge(sent, len(self.log) - 1)

    def _judge(self, each: InputRecord) -> None:
        self.exact.judge(each)
        for world in self.late:
            world.judge(each)
        self._check_late(is_all=False)

    def _acknowledge(self, sent: Sent, offset: int) -> None:
        who, message = sent.sender, sent.message
        held = who.held.get(sent.partition)
        if message.instance == who.process:  # an attempt or a reclaim
            who.under_way -= 1
            who.attempts.append(Attempt(sent.partition, sent.produced_ms, offset))
        elif held and message.instance == instance_of(who.process, held.epoch):
            held.produced_ms = max(held.produced_ms, sent.produced_ms)

    # -- a consumer ------------------------------------------------------------------------

    def _turn(self, who: Consumer) -> None:
        if self.now_ms >= who.deaf_until_ms:
            self._read(who)
        self._keep_fence(who)
        self._settle_attempts(who)
        if not who.world.is_settled:
            self._fill_silence(who)
            return
        for partition, held in list(who.held.items()):
            held.position += self.dice.randrange(3)
            self.reached[partition] = max(self.reached[partition], held.position)
            if self.now_ms >= held.next_beat_ms:
                self._sign(who, partition, "Heartbeat")
            elif self.dice.random() < 0.003:
                self._sign(who, partition, "ReleasingPartition")
                del who.held[partition]
        self._want(who)

    def _read(self, who: Consumer) -> None:
        for each in self.log[who.next_read :]:
            who.world.judge(each)
            who.heard_ms = self.now_ms
        who.next_read, who.asked_ms = len(self.log), self.now_ms

    def _keep_fence(self, who: Consumer) -> None:
        for partition, held in list(who.held.items()):
            slot = who.world.slots.get(("g", "t", partition))
            is_mine = slot and (slot.client, slot.epoch) == (who.client, held.epoch)
            if not is_mine or not who.may_work(partition, self.now_ms):
                del who.held[partition]

    def _settle_attempts(self, who: Consumer) -> None:
        left = []
        for each in who.attempts:
            if who.world.offset < each.offset:
                left.append(each)
                continue
            slot = who.world.owner(("g", "t", each.partition))
            if slot and slot.epoch == each.offset and self.now_ms - each.produced_ms < HI_MS:
                self._won(who, each, slot.position or 0)
        who.attempts = left

    def _won(self, who: Consumer, attempt: Attempt, position: int) -> None:
        if position > self.reached[attempt.partition]:
            raise Broken(f"INV-49: {attempt} begins at {position}, nobody has read so far")
        beat_ms = self.now_ms
        who.held[attempt.partition] = Held(attempt.offset, attempt.produced_ms, position, beat_ms)

    def _want(self, who: Consumer) -> None:
        if who.under_way or who.attempts or self.dice.random() < 0.6:
            return
        for partition in self.dice.sample(range(PARTITIONS), PARTITIONS):
            slot = who.world.owner(("g", "t", partition))
            if slot is None and len(who.held) < 2:
                self._send(who, partition, "ClaimingPartition", who.process)
                return
            if slot and slot.client == who.client and partition not in who.held:
                self._send(who, partition, "Heartbeat", who.process, 10**9)  # a reclaim
                return
        self._fill_silence(who)

    def _fill_silence(self, who: Consumer) -> None:
        """An attempt that is ignored moves the clock all the same."""
        if not who.under_way and self.now_ms - who.heard_ms >= HI_MS // 5:
            place = self.dice.randrange(PARTITIONS)
            if place not in who.held:
                self._send(who, place, "ClaimingPartition", who.process)

    def _sign(self, who: Consumer, partition: int, kind: str) -> None:
        held = who.held[partition]
        held.next_beat_ms = self.now_ms + self.dice.randrange(HI_MS // 4, HI_MS * 3 // 4)
        self._send(who, partition, kind, instance_of(who.process, held.epoch), held.position)

    def _send(
        self, who: Consumer, partition: int, kind: str, instance: str, offset: int | None = None
    ) -> None:
        fields: dict[str, object] = {
            "client": who.client,
            "instance": instance,
            "partition": partition,
        }
        made = driving.message(
            kind, self.now_ms, fields | ({} if offset is None else {"offset": offset})
        )
        who.under_way += instance == who.process
        slow_ms = HI_MS if self.now_ms < who.slow_until_ms else 2
        who.arrives_ms = max(who.arrives_ms, self.now_ms + self.dice.randrange(slow_ms))
        self.on_the_way.append(Sent(who, partition, made, self.now_ms, who.arrives_ms))

    # -- promises --------------------------------------------------------------------------

    def _check_owners(self) -> None:
        for partition in range(PARTITIONS):
            working = [
                each
                for each in self.consumers
                if self.now_ms >= each.sleeps_until_ms and each.may_work(partition, self.now_ms)
            ]
            if len(working) > 1:
                names = [(each.client, each.process) for each in working]
                raise Broken(f"INV-45: {names} work on {partition} at {self.now_ms}")

    def _check_late(self, *, is_all: bool) -> None:
        """Owners of settled readers; at the end, of consumers that have read everything too."""
        readers = [world for world in self.late if world.is_settled and world.offset >= 0]
        if is_all:
            for each in self.consumers:
                self._read(each)
            readers += [each.world for each in self.consumers if each.world.is_settled]
        for world in readers:
            for partition in range(PARTITIONS):
                key = ("g", "t", partition)
                expected, found = self.exact.owner(key), world.owner(key)
                if found is not None and found.is_tentative:
                    self.tentative += 1
                elif _who(expected) != _who(found):
                    raise Broken(
                        f"INV-62: {found} owns {partition} at {world.offset}, for others {expected}"
                    )


def _who(slot: object) -> tuple[object, object] | None:
    return None if slot is None else (getattr(slot, "client", ""), getattr(slot, "epoch", -1))
