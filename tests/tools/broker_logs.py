"""Random lives of a cluster: processes that start, die, stall and stop, and operators.

    life = Life(seed)
    life.run(300)         # raises AssertionError where a promise is broken

Every record is judged at once; what processes know may be old. Records come again at random.
"""

from collections import Counter
from random import Random
from typing import Any

from coordlib.core.controller import step
from coordlib.core.engine.effects import RESPONSES
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from coordlib.core.wire.stored import PartitionValue
from tests.tools import clusters as c
from tests.tools.broker_processes import Disk, Process
from tests.tools.cluster_soundness import (
    changes,
    expected_metadata,
    faults,
    published,
    shortened,
)
from tests.tools.driving import Conversation

BROKERS = range(1, 6)


class Life:
    """One cluster, its processes, and what they have committed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.talk = Conversation()
        self.processes: list[Process] = []
        #: Newest process, by broker: it holds the lock of its folder.
        self.newest: dict[int, Process] = {}
        self.answers: list[bytes] = []
        self._seen = 0
        self._writes = 0
        #: By topic id and partition: what was committed. None: an unclean election, or lost disks.
        self.committed: dict[tuple[int, int], set[int] | None] = {}
        self._led: set[tuple[int, int, int]] = set()
        self._rows: dict[Place, Any] = {}
        self._published: dict[bytes, PartitionValue] = {}
        self._checked = 0
        self.met: Counter[str] = Counter()
        self._count = 0

    def run(self, steps: int) -> None:
        """All brokers come; then so many things happen."""
        for broker in BROKERS:
            self.start(broker)
        self.tick()
        for process in self.processes:
            process.hear(self.answers)
            self.say(c.beat(*self._known(process), client=process.client, id=self._id()))
        acts = {
            self.start: 2,
            self.live: 25,
            self.read: 30,
            self.want: 15,
            self.let_go: 8,
            self.change_isr: 12,
            self.replicate: 30,
            self.delete_replicas: 4,
            self.kill: 1,
            self.operate: 6,
            self.remove: 2,
            self.repeat: 3,
            self.tick: 8,
            self.end_batch: 2,
        }
        names, weights = list(acts), list(acts.values())
        for _ in range(steps):
            pause_ms = self.random.choice((0, 0, 100, 100, 300, 800))
            self._wait(pause_ms)
            self.random.choices(names, weights)[0]()
            self.check()

    def _wait(self, duration_ms: int) -> None:
        self.talk.now_ms += duration_ms
        for process in self.processes:
            process.tell_time(self.talk.now_ms)

    # -- what happens ----------------------------------------------------------------------

    def say(self, request: Any) -> int:
        """Write a record; where it stands."""
        offset = self.talk.next_offset
        self.talk.send(request)
        self._listen()
        return offset

    def _listen(self) -> None:
        new = self.talk.outputs[self._seen :]
        self._seen = len(self.talk.outputs)
        self.answers += [o.value for o in new if o.topic == RESPONSES and o.value is not None]

    def _id(self) -> str:
        self._count += 1
        return f"q{self._count}"

    def _one(self, *, acting: bool = False) -> Process | None:
        found = [p for p in self.processes if p.is_alive and not p.is_removed]
        found = [p for p in found if p.acting()] if acting else found
        return self.random.choice(found) if found else None

    def start(self, broker: int | None = None) -> None:
        """A process starts: after the one before it has ended, beside it, or on a new disk."""
        broker = broker or self.random.choice(BROKERS)
        former, chance = self.newest.get(broker), self.random.random()
        previous, disk = -1, Disk(f"d{self.talk.next_offset}")
        if former is not None and chance < 0.9:
            disk = former.disk
            former.is_alive = chance >= 0.6  # else it has ended, or its machine has
            previous = former.incarnation if chance < 0.5 else -1  # the lock was free, and is kept
        client = f"b{broker}-{self.talk.next_offset}"
        request = c.register(
            broker, client=client, storage=disk.name, previous=previous, id=self._id()
        )
        begun = len(self.answers)
        offset = self.say(request)
        process = Process(
            broker, client, offset, f"{client}-t-0-{offset}", disk, self.talk.now_ms, begun
        )
        self.processes.append(process)
        self.newest[broker] = process

    def live(self) -> None:
        """Most that are there heartbeat; some are suspended for a while."""
        for process in self._some():
            process.beat_ms = self.talk.now_ms
            self.say(c.lives(process.client, process.member))

    def read(self) -> None:
        """Most read all that there is."""
        for process in self._some():
            if self.random.random() < 0.7:
                process.hear(self.answers)

    def _some(self) -> list[Process]:
        there = [p for p in self.processes if p.is_alive and not p.is_removed]
        return [p for p in there if self.random.random() < 0.8 and p is not self._slow(there)]

    def _slow(self, there: list[Process]) -> Process | None:
        """Who is suspended: another one every thirty seconds, and often nobody."""
        turn = self.talk.now_ms // 30_000
        return there[turn // 2 % len(there)] if turn % 2 else None

    def want(self) -> None:
        """Those that are not Active want to be; now and then another stops, or has stopped."""
        for each in self._some():
            if each.since >= 0 and each.state == "Inactive" and not each.awaits:
                self._say_target(each, "Active")
        process = self._one()
        if process is not None and process.state in ("Active", "Stopping"):
            target = self.random.choices(("Active", "Stopping", "Inactive"), (10, 4, 1))[0]
            self._say_target(process, target)

    def _say_target(self, process: Process, target: str) -> None:
        name = self._id()
        if target == "Inactive":
            process.give_up()
            process.awaits, process.demands = name, {}
        process.beat_ms = self.talk.now_ms
        self.say(c.beat(*self._known(process), target, client=process.client, id=name))

    def _known(self, process: Process) -> tuple[int, int, int]:
        return process.broker, process.incarnation, process.since

    def let_go(self) -> None:
        """The user's code has stopped; then the Release is written."""
        process = self._one()
        if process is None or not process.demands:
            return
        cause = min(process.demands)
        places, _ = process.demands.pop(cause)
        for place in places:
            if place in process.rows:
                row = process.rows[place]
                process.over.add((row.topic_id, row.partition, row.leader_epoch))
        self.say(c.lets_go(process.client, process.member, cause))

    def change_isr(self) -> None:
        """A leader drops a follower, or adds one that has everything."""
        process = self._one(acting=True)
        if process is None:
            return
        place, row = self.random.choice(sorted(process.acting().items()))
        got = process.has.get((place, row.leader_epoch), {})
        length, isr = len(process.log(row)), {process.broker: process.incarnation}
        for broker in sorted({*row.replicas} - {process.broker}):
            has, incarnation = got.get(broker, (-1, process.brokers.get(broker, -1)))
            is_wanted = incarnation >= 0 and (broker in row.isr or has == length)
            if is_wanted and self.random.random() < 0.9:
                isr[broker] = incarnation
        epoch, named = process.named.get(place, (-1, set()))
        named = named if epoch == row.partition_epoch else set()
        process.named[place] = row.partition_epoch, named | isr.keys()
        rows = {place: (row.leader_epoch, row.partition_epoch, tuple(sorted(isr.items())))}
        request = c.alter(
            process.broker, process.incarnation, rows, client=process.client, recovered=True
        )
        self.say(c.with_fields(request, id=self._id()))

    def replicate(self) -> None:
        """Leaders append, followers fetch, and what all counted have is committed."""
        leader = self._one(acting=True)
        if leader is None:
            return
        for row in leader.acting().values():
            self._writes += 1
            leader.log(row).append(self._writes)
        for process in self.processes:
            if process is not leader and process.is_alive and self.random.random() < 0.9:
                process.fetch(leader)
        for row in leader.acting().values():
            known = self.committed.setdefault((row.topic_id, row.partition), set())
            if known is not None:
                known |= {*leader.committed(row)}
                self.met["committed"] += 1

    def delete_replicas(self) -> None:
        process = self._one()
        if process is None:
            return
        rows = [row for row in process.rows.values() if process.broker in row.deleting]
        if rows:
            row = self.random.choice(rows)
            process.disk.logs.pop((row.topic_id, row.partition), None)
            error = self.random.choice(("NONE", "NONE", "KAFKA_STORAGE_ERROR"))
            told = api.DeletedReplica(
                topic=row.topic,
                topic_id=row.topic_id,
                partition=row.partition,
                error=error,  # type: ignore[arg-type]  # one of two
            )
            self.say(c.deleted(process.broker, process.incarnation, told, client=process.client))

    def kill(self) -> None:
        if process := self._one():
            process.is_alive = False

    def operate(self) -> None:
        """An operator makes, extends, deletes or moves topics, or elects."""
        roll, name = self.random.randrange(8), self.random.choice("tu")
        place = (name, self.random.randrange(3))
        some = tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))
        if roll <= 2:
            count = self.random.randint(1, 3)
            self.say(c.create(c.new_topic(name, assignment=[some] * count)))
        elif roll == 3:
            self.say(c.about(api.CreatePartitions, topic=name, count=3))
        elif roll == 4:
            self.say(c.about(api.DeleteTopics, topics=(name,)))
        elif roll == 5:
            self.say(c.elect(self.random.choice(("preferred", "preferred", "unclean"))))
        elif roll == 6:
            self.say(c.move(place, some))
        else:
            self.say(c.move(place, None))

    def remove(self) -> None:
        """An operator removes a broker, or forgets one."""
        if self.random.random() < 0.5 and (process := self._one()):
            self.say(c.leaves("ops", process.member))
        else:
            broker = self.random.choice(BROKERS)
            self.say(c.about(api.UnregisterBroker, broker=broker))

    def repeat(self) -> None:
        """A record comes again, however late."""
        value = self.random.choice(self.talk.log).value if self.talk.log else None
        if value is not None and b'"Tick"' not in value:
            self.say(value)

    def tick(self) -> None:
        """The driver has seen that all can be read."""
        self._wait(self.random.choice((0, 500, 1_000)))
        self.talk.tick()
        self._listen()

    def end_batch(self) -> None:
        self.talk.end_batch_raw()
        self._listen()

    # -- what must hold --------------------------------------------------------------------

    def check(self) -> None:
        """All promises that can be checked at any place of the log."""
        acting = Counter(
            (row.topic_id, row.partition) for p in self.processes for row in p.acting().values()
        )
        assert max(acting.values(), default=0) <= 1, f"INV-71: {acting.most_common(1)}"
        if ("cluster", "g") not in self.talk.shard.rows:
            return
        shard = self.talk.shard
        assert not c.row_of(shard).is_quarantined, self.talk.outputs[-3:]
        cluster, topics = c.cluster_of(shard), c.topics_of(shard)
        rows = c.partitions_of(shard)
        found = list(faults(cluster, topics, rows))
        found += changes(self._published, self.talk.outputs[self._checked :])
        assert found == [], found
        self._checked = len(self.talk.outputs)
        self._note(rows)
        self._check_logs()
        self._rows = rows

    def _note(self, rows: dict[Place, Any]) -> None:
        for place, row in rows.items():
            former = self._rows.get(place)
            if former is None or former.topic_id != row.topic_id:
                continue
            if row.recovering or not row.isr:
                self.committed[row.topic_id, place[1]] = None
                self.met["unclean" if row.recovering else "empty ISR"] += 1
            self.met["guard"] += row.guard >= 0
            self.met["demand"] += former.asked < 0 <= row.asked
            self.met["moved"] += bool(former.removing and not row.removing)

    def _check_logs(self) -> None:
        """INV-78: whoever begins to lead has what was committed."""
        for process in self.processes:
            for row in process.acting().values():
                led = (row.topic_id, row.partition, row.leader_epoch)
                if led in self._led:
                    continue
                self._led.add(led)
                self.met["led"] += 1
                known = self.committed.get((row.topic_id, row.partition), set())
                if known is not None:
                    lost = known - {*process.log(row)}
                    assert not lost, f"INV-78: {row}, {sorted(lost)[:3]}"

    def check_metadata(self) -> None:
        """INV-79: what others read is what was decided, at the end of a batch."""
        shard = self.talk.shard
        self._check_beliefs()
        found = shortened(published(self.talk.outputs))
        told = expected_metadata(c.cluster_of(shard), c.topics_of(shard), c.partitions_of(shard))
        assert found == told

    def _check_beliefs(self) -> None:
        """What a registered broker has read to the end of is what the rows say."""
        shard = self.talk.shard
        brokers, rows = c.cluster_of(shard).brokers, c.partitions_of(shard)
        for process in self.processes:
            known = brokers.get(process.broker)
            if known is None or known.incarnation != process.incarnation or not process.is_alive:
                continue
            process.hear(self.answers)
            for place, row in rows.items():
                if process.broker in row.replicas:
                    assert process.rows[place] == step.replica_row(place, row), place
                    self.met["beliefs"] += 1
