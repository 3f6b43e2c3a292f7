"""One seed's world of claims: a cluster, consumers, and perhaps the job that reads along.

Everything random is drawn from streams of their own, as in the worlds of groups.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import KafkaException

from coordlib.client.claims import reading
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.claims.transport import Coordination
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Verdict
from coordlib.core.wire import claims
from coordlib.demo.history import Happened
from coordlib.errors import CannotReach, LogCut
from tests.tools.simulation.checkpoint import Checkpoint
from tests.tools.simulation.claims.engine import PREFIX, TOPIC_ID, ClaimsDriver, engine_of
from tests.tools.simulation.claims.ledger import ClaimsLedger
from tests.tools.simulation.claims.logs import SimulatedAdmin
from tests.tools.simulation.claims.plan import Plan
from tests.tools.simulation.claims.program import Habits, Program
from tests.tools.simulation.claims.transport import ClaimsTransport
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.engine import Driver
from tests.tools.simulation.scheduler import Clock, Process, Scheduler
from tests.tools.simulation.stage import Stage
from tests.tools.simulation.transport import Network
from tests.tools.simulation.violation import Violation

GROUP: Final = "billing"
TOPICS: Final = ("orders", "parcels")
ADMIN: Final = "admin"
RATE_ERROR = 0.002
BROKERS = 3


class ClaimsWorld(Stage):
    """All that there is. `play` is in `claims.run`; faults are in `claims.faults`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__(Scheduler(self.stream("order")))
        skew = plan.broker_skew_ms
        self.brokers = [Clock(self.scheduler, 1.0, number * skew) for number in range(BROKERS)]
        self.cluster = Cluster(self.scheduler, self.stream("cluster"), self.brokers)
        self.cluster.create(plan.topic, plan.partitions)
        self.topics = TOPICS[: len(plan.topics)]
        for topic, count in zip(self.topics, plan.topics, strict=True):
            self.cluster.create(topic, count)
        self.ledger = ClaimsLedger(
            self.cluster, plan.topic, plan.partitions, GROUP, self._position_moved
        )
        luck = self.stream("engine")
        self.engine = engine_of(self.cluster, luck, plan.topic, plan.partitions, self.ledger)
        self.engine.usual_ms = lambda: luck.uniform(0.5, 1.5) * plan.batch_ms
        self.place = Coordination(plan.topic, plan.partitions, TOPIC_ID, plan.interval_ms)
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.programs: list[Program] = []
        #: Other processes: admins, and readers that only look.
        self.others: list[Process] = []
        self.drivers: list[ClaimsDriver] = []
        self.checkpoints = 0
        self.checkpoint = self.new_checkpoint()
        #: Whether drivers are started again.
        self.is_supervised = bool(plan.has_job)
        self.is_healing = False
        self._names = 0
        #: What several were told to have.
        self._contested: dict[TopicPartition, list[Program]] = {}

    def stream(self, name: str) -> Random:
        return Random(f"claims {self.plan.seed} {name}")

    # ---- the job ------------------------------------------------------------------------------

    def new_checkpoint(self) -> Checkpoint:
        self.checkpoints += 1
        return Checkpoint(f"checkpoint-{self.checkpoints}")

    def start_driver(self, after_ms: float, is_rebuild: bool = False, is_cut: bool = False) -> None:
        luck = self.stream(f"driver {len(self.drivers)}")
        clock = Clock(self.scheduler, _rate(luck), luck.randrange(10**9))
        name = f"driver-{len(self.drivers)}"
        made = ClaimsDriver(
            self.engine, self.checkpoint, name, clock, self._driver_ended, is_rebuild
        )
        made.is_cut = is_cut
        self.drivers.append(made)
        self.note("driver starts", name, "rebuild" if is_rebuild else "")
        made.start(after_ms)

    @property
    def driver(self) -> ClaimsDriver | None:
        """The newest one that lives."""
        alive = [driver for driver in self.drivers if driver.is_alive]
        return alive[-1] if alive else None

    def kill_drivers(self) -> None:
        was, self.is_supervised = self.is_supervised, False
        for driver in self.drivers:
            driver.kill()
        self.is_supervised = was

    def rebuild(self, after_ms: float) -> None:
        """Begin a new checkpoint."""
        self.checkpoint = self.new_checkpoint()
        self.start_driver(after_ms, is_rebuild=True)

    def _driver_ended(self, driver: Driver) -> None:
        """A supervisor, as `ClaimsWatch`: not for one that was fenced by a newer one."""
        self.note("driver ended", driver.name, str(driver.ended))
        is_last = not any(each.is_alive for each in self.drivers)
        if not self.is_supervised or not is_last:
            return
        delay_ms = self.stream(f"restart {len(self.drivers)}").uniform(500, 5_000)
        if driver.was_refused or driver.cannot_read_state:
            self.rebuild(delay_ms)
            return
        is_new = self.checkpoint.identity() is None
        self.start_driver(delay_ms, is_new, isinstance(driver.ended, LogCut))

    # ---- consumers ----------------------------------------------------------------------------

    @property
    def living(self) -> list[Program]:
        """Those whose user has not ended them."""
        return [program for program in self.programs if program.is_in]

    def options(self, luck: Random, covers: bool) -> ConsumerOptions:
        plan = self.plan
        return ConsumerOptions(
            claim_entire_topic=bool(plan.entire_topic),
            greedy_claims=bool(plan.greedy),
            maximum_claims=0 if covers else plan.maximum,
            strict_ordering=bool(plan.strict),
            release_claims_if_behind=bool(plan.releases_if_behind),
            delivery=plan.delivery,
            max_message_queue=luck.choice([5, 50, 1_000]),
            fast_reclaim=luck.random() < 0.8,
        )

    def start_program(
        self,
        client: str | None = None,
        topics: list[str] | None = None,
        covers: bool = False,
    ) -> None:
        """One more consumer; `covers`: it takes all that it can get.

        As a supervisor it tries again when no broker answers.
        """
        self._names += 1
        client = client or f"c{self._names}"
        name = f"{client}.{self._names}"
        luck = self.stream(f"program {name}")
        chosen = topics or self._topics_of(client)
        habits = Habits(
            luck,
            poll_every_ms=luck.choice([100, 300, 800]),
            work_ms=lambda: luck.expovariate(1 / 5),
            takes=luck.choice([1, 5, 50]),
            commits_later=bool(self.plan.commits_later),
            config={"group.id": GROUP},
        )
        try:
            program = Program(
                name,
                client,
                self.cluster,
                habits,
                self.options(luck, covers),
                chosen,
                lambda process: self.connect(process, luck),
                self.history.append,
                self.ledger,
                lambda failed: self._again(failed.client, failed.topics, covers, luck),
            )
        except (CannotReach, KafkaException):
            self._again(client, chosen, covers, luck)
            return
        program.covers = covers or not self.plan.maximum
        self.programs.append(program)

    def _again(self, client: str, topics: list[str], covers: bool, luck: Random) -> None:
        delay_ms = luck.uniform(0.05, 0.5) * self.plan.interval_ms
        self.scheduler.after(delay_ms, lambda: self.start_program(client, topics, covers))

    def _topics_of(self, client: str) -> list[str]:
        """All where whole topics are claimed, else one."""
        if self.plan.entire_topic:
            return list(self.topics)
        return [self.stream(f"topic of {client}").choice(self.topics)]

    def connect(self, process: Process, luck: Random) -> ClaimsTransport:
        latency_ms = self.plan.latency_ms
        network = Network(lambda: luck.uniform(0.5, 2) * latency_ms)
        clock = Clock(self.scheduler, _rate(luck), luck.randrange(10**9))
        skew_s = luck.choice([-1, 1]) * self.plan.skew_s if luck.random() < 0.5 else 0
        return ClaimsTransport(
            process,
            self.cluster,
            self.place,
            PREFIX,
            clock,
            network,
            luck,
            skew_s,
            self.committed,
            self.ledger,
        )

    def _position_moved(self, client: str, place: TopicPartition, offset: int) -> None:
        """The log has a new position; an admin's is a rewind."""
        name = f"{place.topic}-{place.partition}"
        now_ms = self.scheduler.now_ms
        if client.startswith(ADMIN):
            self.ledger.set_back(place, offset)
            line = Happened(now_ms, "rewound", group=GROUP, partitions=(name,), offset=offset)
        else:
            offsets = {name: offset}
            line = Happened(now_ms, "committed", member=client, group=GROUP, offsets=offsets)
        self.history.append(line)

    # ---- all the time -------------------------------------------------------------------------

    def check(self) -> None:
        """INV-51, after everything that happens: two processes never both may work on one.

        Only what two were told to have is looked at, and that changes when one is told.
        """
        if self.ledger.has_news:
            self.ledger.has_news = False
            self._contested = self._told_to_many()
        for place, programs in list(self._contested.items()):
            there = [each for each in programs if each.is_in and each.is_told_of(place)]
            if len(there) < 2:
                del self._contested[place]
            else:
                self._check_alone(place, there)

    def _told_to_many(self) -> dict[TopicPartition, list[Program]]:
        told: dict[TopicPartition, list[Program]] = {}
        for program in self.living:
            for place in program.told():
                told.setdefault(place, []).append(program)
        return {place: programs for place, programs in told.items() if len(programs) > 1}

    def _check_alone(self, place: TopicPartition, programs: list[Program]) -> None:
        working = [each for each in programs if each.may_work_on(place)]
        working.sort(key=lambda each: each.life.me.claims[place].epoch)
        for older, newer in pairwise(working):
            if not self._has_just_lost_to_a_twin(place, older):
                raise Violation(
                    f"INV-51: {older.name} and {newer.name} may both work on {place} at "
                    f"{self.scheduler.now_ms} ms"
                )
            self.ledger.counts["twins overlap"] += 1

    def _has_just_lost_to_a_twin(self, place: TopicPartition, older: Program) -> bool:
        """Whether a newer process of its client id has taken its claim over, and it cannot have
        read so: an interval later at the latest it has, or has stopped (design, section 6)."""
        number = claims.partition_of(place.topic, self.plan.partitions)
        epoch = older.life.me.claims[place].epoch
        end = self.ledger.end_of((GROUP, *place), number, epoch)
        if end is None or end.message is None:
            return False
        since_ms = self.scheduler.now_ms - self.ledger.times[number][end.offset]
        is_twin = end.verdict is Verdict.RECLAIMED and end.message.client == older.client
        return is_twin and since_ms <= self.plan.interval_ms * (1 + RATE_ERROR)

    def places(self) -> list[TopicPartition]:
        """All partitions that are to be claimed."""
        return [
            TopicPartition(topic, number)
            for topic in self.topics
            for number in range(self.cluster.count(topic))
        ]

    def heal_all(self) -> None:
        """Everything works from now on, and two are there for all that is to be claimed."""
        self.is_healing = True
        self.engine.crash_at = None
        self.end_faults()
        for other in self.others:
            other.kill()
        wanted = [list(self.topics)] if self.plan.entire_topic else [[each] for each in self.topics]
        for topics in wanted:
            there = [p for p in self.living if p.covers and p.topics == topics]
            for _ in range(2 - len(there)):
                self.start_program(topics=topics, covers=True)
        if self.plan.has_job and self.driver is None:
            self.start_driver(100, self.checkpoint.identity() is None)


def _rate(luck: Random) -> float:
    return 1 + luck.uniform(-RATE_ERROR, RATE_ERROR)


def _newest_by_key(options: dict[str, Any], topic: str, partition: int) -> dict[bytes, bytes]:
    """As a client reads the snapshots."""
    cluster: Cluster = options["cluster"]
    return cluster.newest_by_key(topic, partition)


def _look_up(admin: SimulatedAdmin, topics: Sequence[str], *_: Any) -> dict[str, Any]:
    """Those of the topics that exist."""
    return {name: each for name, each in admin.list_topics().topics.items() if name in topics}


@contextmanager
def beginnings_of(plan: Plan) -> Iterator[None]:
    """While it lasts, clients begin to read by what the simulated cluster says."""
    with (
        patch.object(reading, "newest_by_key", _newest_by_key),
        patch.object(reading, "look_up", _look_up, create=True),
        patch.object(reading, "FROM_START_MAX", plan.from_start_max),
        patch.object(reading, "LATE_MAX", min(reading.LATE_MAX, plan.from_start_max)),
    ):
        yield
