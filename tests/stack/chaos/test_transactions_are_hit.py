"""Transactions under kills of job, broker and clients, for as long as is asked for.

    COORD_CHAOS_SECONDS=3600 COORD_CHAOS_SEED=7 pytest -m chaos FILE

The load is Jepsen's list-append, and its history is checked for anomalies. Kafka decides about the
transactions of three processes, the coordinator about those of a fourth one in the same group, and
a Delta table about the batches of a Spark query in a group of its own.  # INV-91, INV-97, INV-100
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from coordlib.core.wire.offsets import COORDINATOR, KAFKA
from coordlib.demo.history import Happened, write
from coordlib.local.stack import Stack
from tests.stack.acts.table_facts import rows_in
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, Scene
from tests.stack.lists import Lists, fetched, history_of, read_table
from tests.stack.recorded import HISTORY
from tests.stack.spark_crew import ASSIGNED

SECONDS: Final = float(os.environ.get("COORD_CHAOS_SECONDS", "600"))
SEED: Final = int(os.environ.get("COORD_CHAOS_SEED", "1"))
BY_KAFKA: Final = ("a", "b", "c")
BY_COORDINATOR: Final = "d"
BY_DELTA: Final = "e"
NAMES: Final = (*BY_KAFKA, BY_COORDINATOR, BY_DELTA)
#: Of the query.
LAKE: Final = "lake"
LISTS: Final = 3
#: Records a second.
PER_SECOND: Final = 30
#: Between the end of a fault and the next one.
CALM_S: Final = (4.0, 12.0)
TRANSACTION_TIMEOUT_MS: Final = 8_000
pytestmark = [
    pytest.mark.stack,
    pytest.mark.fault,
    pytest.mark.chaos,
    pytest.mark.timeout(int(SECONDS) + 900),
]


@pytest.fixture
def lists(own_stack: Stack) -> Iterator[dict[str, Lists]]:
    """By who decides about what is appended."""
    servers = own_stack.bootstrap_servers
    with (
        Lists(servers, "lists", LISTS) as of_kafka,
        Lists(servers, "lists-of-ours", LISTS, COORDINATOR) as of_ours,
    ):
        yield {KAFKA: of_kafka, COORDINATOR: of_ours}


class Nemesis:
    """Whatever may happen to job, broker and clients, by chance."""

    def __init__(self, scene: Scene, start: Callable[[str], None], seed: int) -> None:
        self._scene, self._start, self._draw = scene, start, Random(seed)
        self.done: Counter[str] = Counter()
        self._faults: dict[str, Callable[[], None]] = {
            "the job is killed": self._kill_job,
            "the job is suspended": self._suspend_job,
            "the broker is killed": self._kill_broker,
            "the broker is suspended": self._suspend_broker,
            "a client is killed": self._kill_client,
            "a client is suspended": self._suspend_client,
            "a client and the job are killed": self._kill_both,
        }

    def maybe_crash(self) -> None:
        """One fault from its begin to its end; each kind once before any comes again."""
        least = min(self.done[each] for each in self._faults)
        left = [each for each in self._faults if self.done[each] == least]
        what = self._draw.choice(left)
        self._scene.note("fault", what)
        self._faults[what]()
        self._scene.note("healed", what)
        self.done[what] += 1
        time.sleep(self._draw.uniform(*CALM_S))

    def _kill_job(self) -> None:
        self._scene.stack.job.kill()  # who supervises it starts it again
        self._job_runs()

    def _suspend_job(self) -> None:
        self._scene.suspend_job()
        time.sleep(self._draw.uniform(2.0, 12.0))
        self._scene.resume_job()

    def _kill_broker(self) -> None:
        broker = self._scene.stack.broker
        broker.kill()
        time.sleep(self._draw.uniform(0.0, 5.0))
        broker.start()
        self._job_runs()

    def _suspend_broker(self) -> None:
        """Requests wait in its sockets, are sent again, and are taken when it wakes up."""
        program = self._scene.stack.broker.program
        assert program is not None
        program.signal(signal.SIGSTOP)
        try:
            time.sleep(self._draw.uniform(2.0, 12.0))
        finally:
            program.signal(signal.SIGCONT)  # a suspended one could not be stopped
        self._job_runs()

    def _kill_client(self) -> None:
        name = self._draw.choice(NAMES)
        self._scene.crew.kill(name)
        time.sleep(self._draw.choice((0.0, 3.0, 12.0)))
        self._start(name)

    def _suspend_client(self) -> None:
        """Shorter than a session, longer than it, longer than the transaction's timeout."""
        name = self._draw.choice(NAMES)
        self._scene.crew.suspend(name)
        time.sleep(self._draw.choice((2.0, 7.5, 20.0)))
        self._scene.crew.resume(name)

    def _kill_both(self) -> None:
        name = self._draw.choice(NAMES)
        self._scene.crew.kill(name)
        self._kill_job()
        self._start(name)

    def _job_runs(self) -> None:
        scene = self._scene
        before = scene.batch()
        scene.crew.until("the job goes on", lambda: _is_beyond(scene, before))


def _is_beyond(scene: Scene, before: int) -> bool:
    return scene.stack.job.is_running and scene.batch() > before


def test_transactions_are_whole_whatever_is_killed(
    scene: Scene, lists: dict[str, Lists], tell: Tell, tmp_path: Path
) -> None:
    """SIGKILL and SIGSTOP of everything in turn, while five processes append."""
    table = tmp_path / "table"

    def start(name: str) -> None:
        if name == BY_DELTA:
            config = {**ASSIGNED, "group__id": LAKE, "table": str(table)}
            scene.crew.start(name, program="tests.stack.lake_appender", **config)
            return
        decider = COORDINATOR if name == BY_COORDINATOR else KAFKA
        more: dict[str, Any] = {
            "program": "tests.stack.copier",
            "sink": lists[decider].topic,
            "lists": LISTS,
            "coord__decided__by": decider,
            "transactional__id": f"appender-{name}",
            "transaction__timeout__ms": TRANSACTION_TIMEOUT_MS,
            "max__poll__interval__ms": 30_000,
        }
        scene.crew.start(name, **more)

    def is_copied() -> bool:
        records = sum(scene.flow.ends.values())
        is_in_lists = sum(each.count for each in lists.values()) >= records
        return is_in_lists and rows_in(table) >= records

    scene.flow.per_second = PER_SECOND
    scene.start_job()
    for name in NAMES:
        start(name)
    scene.flow.begin()
    scene.crew.until("all append", lambda: all(scene.crew[name].told("ended") for name in NAMES))
    nemesis, until_s = Nemesis(scene, start, SEED), time.monotonic() + SECONDS
    with scene.supervised() as ended:
        while time.monotonic() < until_s:
            nemesis.maybe_crash()
        scene.flow.pause()
        scene.crew.until("all is copied", is_copied)
        scene.crew.stop()
        told = _told(scene, lists.values(), table)
    history = history_of(scene.crew, told)
    write(tmp_path / HISTORY, history)

    deciders = Counter(_decider(each.member) for each in history if each.what == "begin")
    transactions = ", ".join(f"{count} by {name}" for name, count in sorted(deciders.items()))
    outcomes = Counter(each.detail for each in history if each.what == "ended")
    faults = ", ".join(f"{count} times {what}" for what, count in sorted(nemesis.done.items()))
    tell(
        f"transactions: {transactions}; {outcomes['ok']} committed, {outcomes['aborted']} aborted; "
        f"the job was started {len(ended)} times again; {faults}"
    )


def _told(scene: Scene, lists: Iterable[Lists], table: Path) -> list[Happened]:
    """By readers, at the end: everything was read, and is committed."""
    told = read_table(table)
    for each in lists:
        each.read_all()
        told += each.told
    flow = scene.flow
    servers = scene.stack.bootstrap_servers
    return told + [fetched(servers, each, flow.topic, flow.partitions) for each in (GROUP, LAKE)]


def _decider(member: str) -> str:
    return {BY_COORDINATOR: "the coordinator", BY_DELTA: "Delta"}.get(member, "Kafka")
