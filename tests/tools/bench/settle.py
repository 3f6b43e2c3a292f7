"""How long a running group takes to settle when one member joins, and when one leaves.

Ours and the broker's own coordinator do the same work on the same broker, in turns: members that
run, one more that joins, a pause of random length (so that no heartbeat interval is hit always at
the same point), and its leaving. Only the side whose turn it is has members.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.cli.kit.where import Where
from coordlib.errors import CannotReach
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.batches import Batches
from tests.tools.bench.figures import percentile, spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.settle_members import ASSIGNED
from tests.tools.bench.settle_sides import OURS, Running, Start, Work, chosen_light
from tests.tools.bench.settled import Ownership
from tests.tools.bench.stand import Stand, standing

LIMIT_S: Final = 60.0
#: More for each member that is started at first: their connections alone take a while.
FILL_S_PER_MEMBER: Final = 2.0
CALM_S: Final = 4.0
PAUSE_S: Final = (1.0, 4.0)


@dataclass(slots=True)
class Times:
    """One side's figures, seconds; what did not settle in time is counted, not left out."""

    joins: list[float] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)
    unsettled: int = 0
    #: The machine's load average (1 min) at each repeat.
    loads: list[float] = field(default_factory=list)

    def note(self, kind: list[float], took_s: float | None) -> None:
        if took_s is None:
            self.unsettled += 1
        else:
            kind.append(took_s)


class Turn:
    """A side's group while it has its turn."""

    def __init__(self, work: Work, start: Start) -> None:
        self._work, self._start_member = work, start
        self._ownership = Ownership(work.partitions)
        self._members: list[Running] = []
        self._joined = 0

    def fill(self) -> float | None:
        """Start all members; seconds until they have settled."""
        began = time.monotonic()
        for _ in range(self._work.members):
            self._start()
        limit_s = LIMIT_S + FILL_S_PER_MEMBER * self._work.members
        return self._wait(self._work.members, began, limit_s)

    def join_one(self) -> tuple[Running, float | None]:
        began = time.monotonic()
        member = self._start()
        return member, self._wait(self._work.members + 1, began)

    def let_go(self, member: Running) -> float | None:
        """Seconds from the decision to leave until the others have settled."""
        began = time.monotonic()
        self._members.remove(member)
        member.stop()
        member.join()
        return self._wait(self._work.members, began)

    def end(self) -> None:
        for member in self._members:
            member.stop()
        for member in self._members:
            member.join()

    def _start(self) -> Running:
        self._joined += 1
        member = self._start_member(self._joined, self._ownership)
        self._members.append(member)
        return member

    def _wait(self, members: int, began: float, limit_s: float = LIMIT_S) -> float | None:
        since = self._ownership.wait(members, limit_s)
        failure = next((each.failure for each in self._members if each.failure), None)
        if failure is not None:
            raise failure
        return None if since is None else round(since - began, 3)


@contextmanager
def turn(work: Work, name: str, stand: Stand) -> Iterator[Turn]:
    """A side's group, filled and calm."""
    with work.side(name, stand) as start:
        running = Turn(work, start)
        try:
            time.sleep(CALM_S)  # members of the turn before have said that they leave, no more
            fill(running, work, name, stand)
            yield running
        finally:
            running.end()


def await_topic(work: Work, stand: Stand) -> None:
    """Until the job divides the topic: it looks for new ones at an interval of its own.

    Whoever joins before is given nothing until then, and that would be the time of the first fill.
    """
    with phase(to_stderr, "The job finds the topic"), work.side(OURS, stand) as start:
        ownership = Ownership(work.partitions)
        member = start(0, ownership)
        since = ownership.wait(1, LIMIT_S)
        member.stop()
        member.join()
    if since is None:
        raise CannotReach("The job does not divide the topic", work.topic)


def fill(running: Turn, work: Work, name: str, stand: Stand) -> None:
    """Start all, and tell how long it took and what it cost; of ours, in which batches too."""
    costs = Costs(stand.stack)
    batches = Batches(stand.config, stand.prefix) if name == OURS else None
    try:
        if batches is not None:
            batches.begin()
        costs.begin()
        initial_s = running.fill()
        if initial_s is None:
            raise CannotReach(f"The group of {name} never settled", f"{work.members} members")
        spent = costs.figures() | (batches.figures() if batches is not None else {})
    finally:
        if batches is not None:
            batches.close()
    tell(
        "settle",
        "filled",
        side=name,
        members=work.members,
        light=work.is_light and name == OURS,
        initial_s=initial_s,
        load_1m=load_1m(),
        **spent,
    )


def load_1m() -> float:
    """The machine's load average."""
    return round(os.getloadavg()[0], 2)


def warm_up(running: Turn, stand: Stand) -> None:
    """Joins and leaves that are not counted, until the job's code is compiled."""
    if stand.is_warm():
        return
    with phase(to_stderr, "Warming up the job"):
        while not stand.is_warm():
            member, _ = running.join_one()
            running.let_go(member)


def measure(running: Turn, name: str, repeats: int, times: Times) -> None:
    """Let one join and leave, so many times."""
    time.sleep(CALM_S)
    for _ in range(repeats):
        member, join_s = running.join_one()
        time.sleep(random.uniform(*PAUSE_S))
        leave_s = running.let_go(member)
        times.note(times.joins, join_s)
        times.note(times.leaves, leave_s)
        times.loads.append(load_1m())
        tell(
            "settle",
            "repeat",
            side=name,
            join_s=join_s,
            leave_s=leave_s,
            load_1m=times.loads[-1],
        )
        time.sleep(random.uniform(*PAUSE_S))


def summarise(times: dict[str, Times], work: Work) -> None:
    """A line per side, and how ours compares."""
    for name, each in times.items():
        tell(
            "settle",
            "summary",
            side=name,
            protocol=work.protocol,
            members=work.members,
            light=work.is_light and name == OURS,
            partitions=work.partitions,
            heartbeat_ms=work.heartbeat_ms(name),
            repeats=len(each.joins),
            unsettled=each.unsettled,
            join_s=spread(each.joins, 0.5, 0.9),
            leave_s=spread(each.leaves, 0.5, 0.9),
            load_1m=spread(each.loads, 0.0, 0.5, 1.0),
        )
    for peer, theirs in times.items():
        if peer != OURS and theirs.joins and times[OURS].joins:
            ratio = percentile(times[OURS].joins, 0.5) / percentile(theirs.joins, 0.5)
            tell("settle", "ratio", peer=peer, join_p50_ours_to_peer=round(ratio, 2))


def run(  # a command line's options
    *,
    where: Where,
    members: int,
    partitions: int,
    repeats: int,
    block: int,
    peers: Sequence[str],
    protocol: str,
    peer_heartbeat_ms: int | None,
    light: bool | None = None,
) -> int:
    """Both sides in turns, until each has done its repeats. Raises SetupError, CannotReach."""
    is_light = chosen_light(light, members, protocol, peers)
    tell_machine("settle")
    if is_light:
        to_stderr(
            f"{members} light members: real members, but they share one transport and one polling "
            "thread, and have no data consumer. A join begins with the Subscribe."
        )
    with standing(where) as stand:
        work = Work(
            members=members,
            partitions=partitions,
            topic=f"settle-{uuid4().hex[:8]}",
            protocol=protocol,
            peer_heartbeat_ms=peer_heartbeat_ms,
            is_light=is_light,
        )
        admin = AdminClient({**stand.config, "log_level": 2})
        admin.create_topics([NewTopic(work.topic, partitions, 1)])[work.topic].result(30)
        if protocol == ASSIGNED:
            await_topic(work, stand)
        times = {name: Times() for name in peers}
        for begun in range(0, repeats, block):
            for name in peers:
                to_stderr(f"Repeats {begun + 1} to {min(begun + block, repeats)} of {name}")
                with turn(work, name, stand) as running:
                    if name == OURS:
                        warm_up(running, stand)
                    measure(running, name, min(block, repeats - begun), times[name])
        summarise(times, work)
    return 0
