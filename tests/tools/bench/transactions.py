"""How long a transaction takes with the offsets of a group in it, and how long a successor waits.

`committed_s` is from begin to committed. `wait_s` is from the end of a transaction, or from the
kill of its process between acceptance and commit, until a successor that was open by then knows
for certain where to begin. After a kill that is so when another process of the same transactional
id has started, or by the timeout alone; brokers look every 10 s whose time is over, unless they are
configured otherwise.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from coordlib.cli.kit.where import Where
from coordlib.errors import CannotReach
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.batches import Batches
from tests.tools.bench.figures import percentile, spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.settle import load_1m
from tests.tools.bench.stand import Stand, standing
from tests.tools.bench.transactions_load import TIMEOUT_MS, Done, Worker, all_work, open_workers
from tests.tools.bench.transactions_sides import (
    KAFKAS,
    OURS,
    Copier,
    Failed,
    Side,
    Successor,
    opened,
)

BENCH: Final = "transactions"
PARTITIONS: Final = 4
#: Of a transaction whose process is killed.
KILLED_TIMEOUT_MS: Final = 6_000
CLEAN_ENDS: Final = 10
_WARM_SLICE_S: Final = 5.0
#: A job without batches, or one that is too slow to warm up, is measured as it is.
_WARM_LIMIT_S: Final = 90.0
_MODULE: Final = "tests.tools.bench.transactions_killed"
_ROOT: Final = Path(__file__).parents[3]


class Turn:
    """One side while it is measured."""

    def __init__(self, name: str, side: Side, stand: Stand, way: str, topic: str) -> None:
        self.name, self._side, self._stand, self._backend = name, side, stand, way
        self._topic = topic
        self._token = uuid4().hex[:8]

    def load(self, producers: int, records: int, seconds: float) -> float | None:
        """Producers at work, all at once; the median of begin to committed, None without any."""
        names = [f"{self._token}-{number}" for number in range(producers)]
        with phase(to_stderr, f"{producers} producers of {self.name} begin"):
            workers = open_workers(self._side, names, self._topic, records)
        try:
            self._warm_up(workers)
            with phase(to_stderr, f"They work for {seconds:g} s"):
                done, more = self._measure(workers, seconds)
        finally:
            for each in workers:
                each.close()
        self._tell(
            "load",
            producers=producers,
            records=records,
            transactions=len(done.took_s),
            per_s=round(len(done.took_s) / more.pop("spent_s"), 2),
            committed_s=spread(done.took_s, 0.5, 0.99, 1.0),
            failed=dict(done.failed),
            **more,
        )
        return percentile(done.took_s, 0.5) if done.took_s else None

    def _warm_up(self, workers: Sequence[Worker]) -> None:
        if self.name != OURS or self._stand.is_warm():
            return
        until_s = time.monotonic() + _WARM_LIMIT_S
        with phase(to_stderr, "Warming up the job"):
            while not self._stand.is_warm() and time.monotonic() < until_s:
                all_work(workers, _WARM_SLICE_S)

    def _measure(self, workers: Sequence[Worker], seconds: float) -> tuple[Done, dict[str, Any]]:
        costs = Costs(self._stand.stack)
        batches = Batches(self._stand.config, self._stand.prefix) if self.name == OURS else None
        try:
            if batches is not None:
                batches.begin()
            costs.begin()
            began = time.monotonic()
            done = all_work(workers, seconds)
            more: dict[str, Any] = {"spent_s": time.monotonic() - began, **costs.figures()}
            if batches is not None:
                more |= batches.figures()
            return done, more
        finally:
            if batches is not None:
                batches.close()

    # ---- successors ---------------------------------------------------------------------------

    def successors(self, kills: int) -> None:
        """How long each waits, after an end in order and after kills."""
        with phase(to_stderr, f"Successors of {self.name}"):
            self.after_commits()
            self.after_restarts(kills)
            waits = [self._after_timeout(number) for number in range(kills)]
            self._tell_waits("kill, by the timeout", waits, timeout_ms=KILLED_TIMEOUT_MS)

    def after_commits(self) -> None:
        self._tell_waits("commit", [self._after_commit(number) for number in range(CLEAN_ENDS)])

    def after_restarts(self, kills: int) -> None:
        waits = [self._after_restart(number) for number in range(kills)]
        self._tell_waits("kill, and the same id again", waits)

    def _after_commit(self, number: int) -> float:
        name = f"{self._token}-commit-{number}"
        copier = self._opened(name, TIMEOUT_MS)
        try:
            copier.begin(self._topic, 1, 1)
            with closing(self._side.successor(name)) as successor:
                copier.commit()
                return self._wait(name, successor, time.monotonic(), 1)
        finally:
            copier.close()

    def _after_restart(self, number: int) -> float:
        name = f"{self._token}-restart-{number}"
        with self._victim(name) as victim, closing(self._side.successor(name)) as successor:
            began = _kill(victim)
            with closing(self._opened(name, KILLED_TIMEOUT_MS)):
                return self._wait(name, successor, began, -1)

    def _after_timeout(self, number: int) -> float:
        name = f"{self._token}-timeout-{number}"
        with self._victim(name) as victim, closing(self._side.successor(name)) as successor:
            return self._wait(name, successor, _kill(victim), -1)

    def _wait(self, name: str, successor: Successor, began: float, wanted: int) -> float:
        """Seconds from then until a successor, which is open, knows its position: this one."""
        found = successor.position(self._topic)
        took_s = time.monotonic() - began
        if found != wanted:
            raise CannotReach(f"A successor was told {found}, not {wanted}", f"{self.name}, {name}")
        return took_s

    @contextmanager
    def _victim(self, name: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A process of this name that has come to acceptance; it is killed at the end of this."""
        given = (self.name, json.dumps(self._stand.config), self._stand.prefix, self._backend)
        command = [sys.executable, "-m", _MODULE, *given, name, self._topic, str(KILLED_TIMEOUT_MS)]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT)
        try:
            assert victim.stdout is not None
            if victim.stdout.readline() != b"accepted\n":
                raise CannotReach("A producer that was to be killed has failed", name)
            yield victim
        finally:
            victim.kill()
            victim.wait()

    def _opened(self, name: str, timeout_ms: int) -> Copier:
        copier = self._side.copier(name, timeout_ms)
        copier.init()
        return copier

    def _tell_waits(self, after: str, waits: Sequence[float], **more: Any) -> None:
        waits_s = spread(waits, 0.5, 0.99, 1.0)
        self._tell("successor", after=after, times=len(waits), wait_s=waits_s, **more)

    def _tell(self, what: str, **fields: Any) -> None:
        tell(BENCH, what, side=self.name, way=self._backend, load_1m=load_1m(), **fields)


def _kill(victim: "subprocess.Popen[bytes]") -> float:
    """Kill a process; when that was, monotonic."""
    began = time.monotonic()
    victim.kill()
    return began


def run(
    *,
    where: Where,
    way: str,
    producers: int,
    records: int,
    seconds: float,
    kills: int,
    peers: Sequence[str],
) -> int:
    """Load, then successors, of one side after the other. Raises CannotReach."""
    tell_machine(BENCH)
    medians: dict[str, float | None] = {}
    with standing(where) as stand:
        topic = f"transactions-{uuid4().hex[:8]}"
        create_topic(stand.config, topic, PARTITIONS)
        for name in peers:
            side = opened(name, stand.config, stand.prefix, way)
            try:
                turn = Turn(name, side, stand, way if name == OURS else KAFKAS, topic)
                medians[name] = turn.load(producers, records, seconds)
                turn.successors(kills)
            except Failed as problem:
                raise CannotReach(f"A transaction of {name} failed", str(problem)) from problem
            finally:
                side.close()
    ours, theirs = medians.get(OURS), medians.get(KAFKAS)
    if ours and theirs:
        tell(BENCH, "ratio", peer=KAFKAS, committed_p50_ours_to_peer=round(ours / theirs, 1))
    return 0 if all(medians.values()) else 1
