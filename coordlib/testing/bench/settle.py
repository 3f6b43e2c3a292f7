"""How long a running group takes to settle when one member joins, and when one leaves.

Ours and the broker's own coordinator do the same work on the same broker, in turns: members that
run, one more that joins, a pause of random length (so that no heartbeat interval is hit always at
the same point), and its leaving. Only the side whose turn it is has members.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.cli.where import Where
from coordlib.errors import CannotReach
from coordlib.local.progress import phase, to_stderr
from coordlib.testing.bench import settle_members
from coordlib.testing.bench.figures import percentile, spread, tell, tell_machine
from coordlib.testing.bench.settle_members import Member, Open
from coordlib.testing.bench.settled import Ownership
from coordlib.testing.bench.stand import Stand, standing

LIMIT_S: Final = 60.0
#: More for each member that is started at first: their connections alone take a while.
FILL_S_PER_MEMBER: Final = 2.0
CALM_S: Final = 4.0
PAUSE_S: Final = (1.0, 4.0)
OURS: Final = "ours"
#: Of both clients (librdkafka's heartbeat.interval.ms, and ours).
HEARTBEAT_DEFAULT_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every side does."""

    members: int
    partitions: int
    topic: str
    protocol: str
    peer_heartbeat_ms: int | None

    def side(self, name: str, stand: Stand) -> Open:
        """How members of a side are made, in a group of a new name."""
        config: dict[str, Any] = {**stand.config, "group.id": f"settle-{uuid4().hex[:8]}"}
        config["log_level"] = 2  # connections of closed clients end with the broker, not before
        if name == OURS:
            config["coord.prefix"] = stand.prefix
            return settle_members.ours(config, self.topic, self.protocol)
        if self.peer_heartbeat_ms is not None:
            config["heartbeat.interval.ms"] = self.peer_heartbeat_ms
        return settle_members.kafkas(config, self.topic, self.protocol)

    def heartbeat_ms(self, name: str) -> int:
        """Heartbeat interval of a side's members."""
        if name == OURS or self.peer_heartbeat_ms is None:
            return HEARTBEAT_DEFAULT_MS
        return self.peer_heartbeat_ms


@dataclass(slots=True)
class Times:
    """One side's figures, seconds; what did not settle in time is counted, not left out."""

    joins: list[float] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)
    unsettled: int = 0

    def note(self, kind: list[float], took_s: float | None) -> None:
        if took_s is None:
            self.unsettled += 1
        else:
            kind.append(took_s)


class Running:
    """A side's group while it has its turn."""

    def __init__(self, work: Work, open_consumer: Open) -> None:
        self._work, self._open = work, open_consumer
        self._ownership = Ownership(work.partitions)
        self._members: list[Member] = []
        self._joined = 0

    def fill(self) -> float | None:
        """Start all members; seconds until they have settled."""
        began = time.monotonic()
        for _ in range(self._work.members):
            self._start()
        limit_s = LIMIT_S + FILL_S_PER_MEMBER * self._work.members
        return self._wait(self._work.members, began, limit_s)

    def join_one(self) -> tuple[Member, float | None]:
        began = time.monotonic()
        member = self._start()
        return member, self._wait(self._work.members + 1, began)

    def let_go(self, member: Member) -> float | None:
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

    def _start(self) -> Member:
        self._joined += 1
        member = Member(self._joined, self._ownership, self._open)
        self._members.append(member)
        return member

    def _wait(self, members: int, began: float, limit_s: float = LIMIT_S) -> float | None:
        since = self._ownership.wait(members, limit_s)
        failure = next((each.failure for each in self._members if each.failure), None)
        if failure is not None:
            raise failure
        return None if since is None else round(since - began, 3)


@contextmanager
def turn(work: Work, name: str, stand: Stand) -> Iterator[Running]:
    """A side's group, filled and calm."""
    running = Running(work, work.side(name, stand))
    try:
        initial_s = running.fill()
        if initial_s is None:
            raise CannotReach(f"The group of {name} never settled", f"{work.members} members")
        tell("settle", "filled", side=name, members=work.members, initial_s=initial_s)
        yield running
    finally:
        running.end()


def warm_up(running: Running, stand: Stand) -> None:
    """Joins and leaves that are not counted, until the job's code is compiled."""
    if stand.is_warm():
        return
    with phase(to_stderr, "Warming up the job"):
        while not stand.is_warm():
            member, _ = running.join_one()
            running.let_go(member)


def measure(running: Running, name: str, repeats: int, times: Times) -> None:
    """Let one join and leave, so many times."""
    time.sleep(CALM_S)
    for _ in range(repeats):
        member, join_s = running.join_one()
        time.sleep(random.uniform(*PAUSE_S))
        leave_s = running.let_go(member)
        times.note(times.joins, join_s)
        times.note(times.leaves, leave_s)
        tell("settle", "repeat", side=name, join_s=join_s, leave_s=leave_s)
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
            partitions=work.partitions,
            heartbeat_ms=work.heartbeat_ms(name),
            repeats=len(each.joins),
            unsettled=each.unsettled,
            join_s=spread(each.joins, 0.5, 0.9),
            leave_s=spread(each.leaves, 0.5, 0.9),
        )
    for peer, theirs in times.items():
        if peer != OURS and theirs.joins and times[OURS].joins:
            ratio = percentile(times[OURS].joins, 0.5) / percentile(theirs.joins, 0.5)
            tell("settle", "ratio", peer=peer, join_p50_ours_to_peer=round(ratio, 2))


def run(  # noqa: PLR0913  # a command line's options
    *,
    where: Where,
    members: int,
    partitions: int,
    repeats: int,
    block: int,
    peers: Sequence[str],
    protocol: str,
    peer_heartbeat_ms: int | None,
) -> int:
    """Both sides in turns, until each has done its repeats."""
    tell_machine("settle")
    with standing(where) as stand:
        work = Work(
            members=members,
            partitions=partitions,
            topic=f"settle-{uuid4().hex[:8]}",
            protocol=protocol,
            peer_heartbeat_ms=peer_heartbeat_ms,
        )
        admin = AdminClient(dict(stand.config))
        admin.create_topics([NewTopic(work.topic, partitions, 1)])[work.topic].result(30)
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
