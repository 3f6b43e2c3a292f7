"""Processes that a supervisor keeps running, each under a name, and the group that they share."""

from abc import abstractmethod
from functools import partial
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from coordlib.kafka.layout import Place as Where
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.scheduler import Clock, rate_of
from tests.tools.simulation.transport import Network
from tests.tools.simulation.world import INCARNATION, PREFIX, REPLY_PARTITIONS, World

SUPERVISOR_LOOKS_MS: Final = 1_000
#: How soon a process is started again, at the most.
AGAIN_MS: Final = 8_000
FOR_EVER_MS: Final = 10**9


class Supervised(Protocol):
    """A process that a supervisor may start again."""

    name: str
    is_alive: bool
    is_stopped: bool
    #: Set when its user wants it to end.
    is_ending: bool

    @property
    def is_done(self) -> bool:
        """Whether its user has ended it, or it is dead."""

    def kill(self) -> None:
        """At whatever it is."""


ProcessT = TypeVar("ProcessT", bound=Supervised)


class Crew(Generic[ProcessT]):
    """All of them, and the newest of each name.

    Args:
        luck: draws when the next process of a name starts.
    """

    def __init__(self, world: World, luck: Random) -> None:
        self.world, self.luck = world, luck
        #: All processes; and the newest of each transactional id.
        self.processes: list[ProcessT] = []
        self.newest: dict[str, ProcessT] = {}
        self._is_ending = False

    @abstractmethod
    def start(self, name: str) -> ProcessT:
        """A process more; another one of this transactional id is fenced by it."""

    def started(self, name: str, process: ProcessT) -> ProcessT:
        """It runs from now on, and is the newest of its name."""
        self.processes.append(process)
        self.newest[name] = process
        self.world.note("started", process.name)
        return process

    def start_first(self, name: str, within_ms: int) -> None:
        """The first one of a name, some time later."""
        self.world.scheduler.after(self.luck.uniform(0, within_ms), partial(self._start, name))

    def _start(self, name: str) -> None:
        self.start(name)

    @property
    def living(self) -> list[ProcessT]:
        """The newest process of each id that runs."""
        return [each for each in self.newest.values() if not each.is_done]

    def look_after(self) -> bool:
        """A supervisor: what has ended is started again some time later."""
        for name, process in list(self.newest.items()):
            if process.is_done and not process.is_ending:
                process.is_ending = True  # seen
                after_ms = self.luck.choice([100, 2_000, AGAIN_MS])
                self.world.scheduler.after(after_ms, partial(self._start_again, name, process))
        return True

    def _start_again(self, name: str, before: ProcessT) -> None:
        if self.newest.get(name) is before and not self._is_ending:
            self.start(name)

    def heal(self) -> None:
        """Everything works from now on. Processes of before may still be stopped: they are gone."""
        for process in self.processes:
            if process.is_alive and process is not self.newest.get(process.name.split("-")[0]):
                process.kill()

    def end(self) -> None:
        """Their user ends them in good order."""
        self._is_ending = True
        for process in self.processes:
            process.is_ending = True

    def kill(self) -> None:
        """The world is over: no thread stays."""
        self._is_ending = True
        for process in self.processes:
            process.kill()

    def one_more(self, name: str) -> Lasting:
        """Beside the others, for a while: their group rebalances."""
        self.start(name)
        yield
        self.newest.pop(name).is_ending = True

    def somebody(self, luck: Random) -> ProcessT | None:
        """One of those that run."""
        running = [each for each in self.living if not each.is_stopped]
        return luck.choice(running) if running else None

    # ---- what each process has -----------------------------------------------------------------

    def network(self, luck: Random) -> Network:
        """Its own way to the brokers."""
        return Network(lambda: luck.uniform(0.5, 2) * self.world.plan.latency_ms)

    def clock(self, luck: Random) -> Clock:
        """Its own clock."""
        return Clock(self.world.scheduler, rate_of(luck), luck.randrange(10**9))

    @property
    def where(self) -> Where:
        """The job's topics."""
        return Where(PREFIX, self.world.plan.shards, REPLY_PARTITIONS, INCARNATION)

    def config(self, group: str, strategy: str | None) -> dict[str, Any]:
        """Of a member's consumer; without a strategy the coordinator assigns."""
        plan = self.world.plan
        kind: dict[str, Any] = {"partition.assignment.strategy": strategy}
        if strategy is None:
            kind = {"group.protocol": ASSIGNED}
        return kind | {
            "group.id": group,
            "session.timeout.ms": plan.session_timeout_ms,
            "max.poll.interval.ms": plan.rebalance_timeout_ms,
            "heartbeat.interval.ms": plan.heartbeat_interval_ms,
            "topic.metadata.refresh.interval.ms": 5_000,
            "auto.offset.reset": "earliest",
        }
