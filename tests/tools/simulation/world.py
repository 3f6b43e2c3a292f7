"""One seed's world: a cluster, the job's drivers and their supervisor, programs, and luck.

Everything random is drawn from streams of their own, so that leaving one fault out changes the
others as little as can be: that is what makes a failing schedule shrink.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from coordlib.core.engine.effects import OUTPUT_TOPICS, RESPONSES
from coordlib.errors import CoordError, ErrorCode, GroupError
from coordlib.kafka.layout import Place as Where
from tests.tools.simulation import settings, wishes
from tests.tools.simulation.checkpoint import Checkpoint
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.contested import Contested
from tests.tools.simulation.engine import Driver, Engine
from tests.tools.simulation.inspection import Inspector
from tests.tools.simulation.paged import Paged
from tests.tools.simulation.plan import ASSIGNED, CLASSIC, MODES, Plan
from tests.tools.simulation.program import Program
from tests.tools.simulation.scheduler import Clock, Process, Scheduler, rate_of
from tests.tools.simulation.stage import Stage
from tests.tools.simulation.teams import Team
from tests.tools.simulation.transport import Network, SimulatedTransport
from tests.tools.simulation.user import Habits
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.wishes import Wish

if TYPE_CHECKING:
    from tests.tools.simulation.fleet import Fleet
    from tests.tools.simulation.lake.members import Lake
    from tests.tools.simulation.transactions.copying import Copying
    from tests.tools.simulation.transactions.couriers import Couriers

__all__ = ["Violation", "World"]

PREFIX = "coord"
INCARNATION = "Simulat0"
REPLY_PARTITIONS = 2
#: The topics that are read; a plan says how many of them there are, and how large.
TOPICS, GROUP = ("orders", "parcels", "returns"), "readers"
BROKERS = 3
#: Worlds whose batches are judged in pages, too: they take a fifth longer.
PAGED_SHARE = 0.25
METADATA_REFRESH_MS = 5_000
MEMBERS_MAX = 8
#: Whoever found the group full is started again after this time, at the latest.
TRIES_AGAIN_MS = 8_000


class World(Stage):
    """All that there is. `run` is in `simulation.run`; faults are in `simulation.kinds`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__(Scheduler(self.stream("order")))
        self.cluster = Cluster(
            self.scheduler,
            self.stream("cluster"),
            [Clock(self.scheduler, 1.0, number * plan.broker_skew_ms) for number in range(BROKERS)],
        )
        self.cluster.marker_delay_ms = plan.marker_delay_ms
        self.topics = TOPICS[: 1 + len(plan.more_topics)]
        self._create_topics()
        self.engine = self._engine()
        self.checkpoints = 0
        self.checkpoint = self._new_checkpoint()
        self.drivers: list[Driver] = []
        #: The group that everything began with, and others with members in its shard.
        self.readers = Team(GROUP, plan.kind, read_at_rest=frozenset(self.topics))
        self.teams = [self.readers]
        self.networks: dict[str, Network] = {}
        #: Whether the supervisor starts drivers again.
        self.is_supervised = True
        #: Whether anything that a user of the group notices may still be disturbed.
        self.is_healing = False
        #: Until peace has been seen: from then on everybody is in, or will never be.
        self.takes_newcomers = True
        self.are_ticks_lost = False
        self.contested = Contested(self.scheduler, self.teams)
        #: What is looked at after everything that happens.
        self.looks = [self.contested.check]
        #: A cluster of stores; copiers and couriers, whose transactions commit offsets; or none.
        self.fleet: Fleet | None = None
        self.copying: Copying | None = None
        self.couriers: Couriers | None = None
        #: Members whose batches a Delta table decides, if there are some.
        self.lake: Lake | None = None
        self.refusals = 0
        #: Programs that were started again because the group had been full.
        self.tried_again: set[str] = set()

    def stream(self, name: str) -> Random:
        return Random(f"{self.plan.seed} {name}")

    # ---- groups -------------------------------------------------------------------------------

    @property
    def company(self) -> list[Team]:
        """All groups that have members, but the first."""
        return self.teams[1:]

    @property
    def programs(self) -> list[Program]:
        """Of the group that everything began with."""
        return self.readers.programs

    @property
    def living(self) -> list[Program]:
        """Those of them whose user has not ended them."""
        return self.readers.living

    @property
    def protocol(self) -> str:
        """What programs of it that start now take part in."""
        return self.readers.protocol

    @protocol.setter
    def protocol(self, protocol: str) -> None:
        self.readers.protocol = protocol

    @property
    def perturbations(self) -> int:
        """How much has happened after which groups may rebalance."""
        return self.readers.perturbations

    @perturbations.setter
    def perturbations(self, count: int) -> None:
        self.readers.perturbations = count

    # ---- topics -------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        shards = self.plan.shards
        for topic in ("requests", "offsets", *OUTPUT_TOPICS):
            count = REPLY_PARTITIONS if topic == RESPONSES else shards
            self.cluster.create(f"{PREFIX}.{topic}", count)
        self.cluster.create(f"{PREFIX}.progress", 1)
        for topic, count in zip(
            self.topics, (self.plan.partitions, *self.plan.more_topics), strict=True
        ):
            self.cluster.create(topic, count)
        from tests.tools.simulation.kinds import LATER_KINDS  # the table's faults need worlds

        if any(fault.kind in LATER_KINDS for fault in self.plan.faults):
            self.cluster.create_quietly(f"{PREFIX}.lag")

    def _engine(self) -> Engine:
        plan, luck = self.plan, self.stream("engine")
        layout = settings.layout(plan, PREFIX, INCARNATION, REPLY_PARTITIONS)
        shard = settings.shard(plan, INCARNATION, REPLY_PARTITIONS)
        engine = Engine(self.scheduler, self.cluster, luck, PREFIX, layout, shard)
        paging = Random(f"{plan.seed} pages")  # of its own: worlds are the same with and without
        paged = Paged(paging) if paging.random() < PAGED_SHARE else None
        engine.inspector = Inspector(plan.sizes, not plan.checks_invariants, paged)
        engine.watches = settings.watches_topics(plan)
        engine.usual_ms = lambda: luck.uniform(0.5, 1.5) * plan.batch_ms
        return engine

    # ---- the job ------------------------------------------------------------------------------

    def _new_checkpoint(self) -> Checkpoint:
        self.checkpoints += 1
        return Checkpoint(f"checkpoint-{self.checkpoints}")

    def start_driver(
        self, after_ms: float, checkpoint: Checkpoint | None = None, is_rebuild: bool = False
    ) -> Driver:
        luck = self.stream(f"driver {len(self.drivers)}")
        clock = Clock(self.scheduler, rate_of(luck), luck.randrange(10**9))
        name = f"driver-{len(self.drivers)}"
        made = Driver(
            self.engine,
            checkpoint or self.checkpoint,
            name,
            clock,
            self._driver_ended,
            is_rebuild,
        )
        made.control.is_mute = self.are_ticks_lost
        self.drivers.append(made)
        self.note("driver starts", name, "rebuild" if is_rebuild else "")
        made.start(after_ms)
        return made

    @property
    def driver(self) -> Driver | None:
        """The newest one that lives."""
        alive = [driver for driver in self.drivers if driver.is_alive]
        return alive[-1] if alive else None

    def kill_drivers(self) -> None:
        """All of them, and nobody starts one again for it."""
        self.is_supervised = False
        for driver in self.drivers:
            driver.kill()
        self.is_supervised = True

    def rebuild_into_new_checkpoint(self) -> None:
        """What an operator does when the checkpoint is gone."""
        self.checkpoint = self._new_checkpoint()
        self.start_driver(2_000, is_rebuild=True)

    def _driver_ended(self, driver: Driver) -> None:
        """A supervisor: starts it again, but for those that must not be.

        An older driver may be the one that took over last, and end when it alone is left.
        """
        self.note("driver ended", driver.name, str(driver.ended))
        is_last = not any(each.is_alive for each in self.drivers)
        is_to_run = is_last or (driver is self.drivers[-1] and not driver.was_fenced)
        if not self.is_supervised or not is_to_run:
            return
        if driver.was_refused:
            self.refusals += 1
            self.rebuild_into_new_checkpoint()
        elif driver.cannot_read_state:
            self.rebuild_into_new_checkpoint()
        else:
            luck = self.stream(f"restart {len(self.drivers)}")
            self.restart_driver(luck.uniform(500, 5_000))

    def restart_driver(self, after_ms: float) -> None:
        """On the same checkpoint; if it was never begun, as its start was meant."""
        is_new = self.checkpoint.identity() is None
        self.start_driver(after_ms, is_rebuild=is_new and self.has_history())

    def require_driver(self, after_ms: float) -> None:
        """A supervisor looks after the newest: an older one that lives may be fenced already."""
        if not self.drivers[-1].is_alive:
            self.restart_driver(after_ms)

    def has_history(self) -> bool:
        """Whether the topics have a progress marker."""
        return b"marker" in {
            record.key for record in self.cluster.partitions[(f"{PREFIX}.progress", 0)].records
        }

    # ---- members ------------------------------------------------------------------------------

    def start_program_after(
        self, delay_ms: float, instance: str | None, team: Team | None = None
    ) -> None:
        """Unless peace is made before."""

        def start() -> None:
            if not self.is_healing:
                self.start_program(instance, team=team)

        self.scheduler.after(delay_ms, start)

    def start_program(
        self,
        instance: str | None = None,
        strategy: str | None = None,
        wish: Wish | None = None,
        team: Team | None = None,
        host: Program | None = None,
    ) -> Program:
        """One more program, or one member more in a program (`host`)."""
        team = team or self.readers
        name = team.new_name()
        luck = self.stream(f"program {name}")
        plan = self.plan
        config: dict[str, Any] = {
            "group.id": team.name,
            "session.timeout.ms": plan.session_timeout_ms,
            "max.poll.interval.ms": plan.rebalance_timeout_ms,
            "heartbeat.interval.ms": plan.heartbeat_interval_ms,
            "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
            "auto.offset.reset": "earliest",
        }
        if team.protocol == ASSIGNED:
            config |= self._assigned_config(luck, team)
        else:
            mode = strategy or team.strategy or self._mode(luck)
            config["partition.assignment.strategy"] = mode
        if instance is not None:
            config["group.instance.id"] = instance
        habits = Habits(
            luck,
            poll_every_ms=luck.choice([50, 200, 500]),
            work_ms=lambda: luck.expovariate(1 / 20),
            commit_every=luck.choice([1, 5, 20]),
            config=config,
        )
        latency_ms = plan.latency_ms
        network = Network(lambda: luck.uniform(0.5, 2) * latency_ms)
        self.networks[name] = self.networks[host.name] if host else network
        clock = Clock(self.scheduler, rate_of(luck), luck.randrange(10**9))
        where = Where(PREFIX, plan.shards, REPLY_PARTITIONS, INCARNATION)

        def connect(process: Process) -> SimulatedTransport:
            if host is not None:
                return host.transport
            reply = luck.randrange(REPLY_PARTITIONS)
            return SimulatedTransport(process, self.cluster, where, reply, clock, network, luck)

        wish = wish or team.wish
        if wish is None and team.protocol == ASSIGNED:
            wish = self.draw_wish(luck)
        wish = wish or Wish(self._topics_of(instance or name))
        told, failed = self.history.append, self._program_failed
        program = Program(name, self.cluster, habits, told, connect, wish, failed, host)
        team.programs.append(program)
        self.contested.watch(program)
        return program

    def _mode(self, luck: Random) -> str:
        return luck.choice(self.plan.strategies if self.plan.kind == CLASSIC else MODES)

    def _assigned_config(self, luck: Random, team: Team) -> dict[str, Any]:
        strategy = self.plan.strategies[0] if team.strategy is None else team.strategy
        named = {"group.remote.assignor": strategy} if strategy else {}
        capacity = luck.choice([1, 1, 1, 2, 5])
        return {"group.protocol": ASSIGNED, "group.capacity": capacity, **named}

    def draw_wish(self, luck: Random) -> Wish:
        """Of a group that does not take everybody, each wants all, as in `_topics_of`."""
        return Wish(TOPICS) if self.plan.group_size_max else wishes.draw(luck, TOPICS)

    def _topics_of(self, name: str) -> tuple[str, ...]:
        """All, or some; a static member's are the same whenever it starts.

        Of a group that does not take everybody, each reads all: there is no place for one more
        that would read what nobody does.
        """
        luck = self.stream(f"topics {name}")
        if self.plan.group_size_max or luck.random() < 0.5:
            return self.topics
        return tuple(sorted(luck.sample(self.topics, luck.randint(1, len(self.topics)))))

    def _program_failed(self, program: Program, problem: CoordError) -> None:
        """Who finds the group full, or of another kind, waits a while and tries again."""
        code = problem.code if isinstance(problem, GroupError) else None
        team = next(each for each in self.teams if program in each.programs)
        is_of_other_kind = (
            self.plan.kind == ASSIGNED and code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        )
        if code is not ErrorCode.GROUP_MAX_SIZE_REACHED and not is_of_other_kind:
            return

        def again() -> None:
            # In peace only those come for whom there will be a place.
            most = self.plan.group_size_max or MEMBERS_MAX
            # Others have made the group another kind: it has a place when they are gone.
            is_theirs = is_of_other_kind and bool(team.living)
            has_place = not self.is_healing or (len(team.living) < most and not is_theirs)
            if self.takes_newcomers and has_place:
                instance = program.habits.config.get("group.instance.id")
                self.tried_again.add(self.start_program(instance, team=team).name)

        luck = self.stream(f"again {program.name}")
        self.scheduler.after(luck.uniform(0.3, 1) * TRIES_AGAIN_MS, again)

    def check(self) -> None:
        """What is always checked: it runs after everything that happens."""
        for look in self.looks:
            look()

    def heal_all(self) -> None:
        """Everything works from now on, and somebody is there to work."""
        self.is_healing = True
        self.engine.crash_at = None
        self.cluster.hidden.clear()
        self.cluster.listing_errs = 0.0
        self.end_faults()
        for team in self.teams:
            self._cover_topics(team)
        self.require_driver(1_000)

    def _cover_topics(self, team: Team) -> None:
        """Every topic has somebody who reads it, even when the first of the readers is killed."""
        living = team.living
        if team is not self.readers:
            if not living:
                self.start_program(team=team)
            return
        read = {topic for program in living[1:] or living for topic in program.wants()}
        if not living or not read >= set(self.topics):
            self.start_program(wish=Wish(self.topics))
