"""Transactions under kills of job, broker and clients, for as long as is asked for.

    COORD_CHAOS_SECONDS=3600 COORD_CHAOS_SEED=7 pytest -m chaos FILE

The load is Jepsen's list-append, and its history is checked for anomalies.  # INV-91, INV-97
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from coordlib.checking.history import write
from coordlib.local.stack import Stack
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, Scene
from tests.stack.lists import Lists
from tests.stack.recorded import HISTORY

SECONDS: Final = float(os.environ.get("COORD_CHAOS_SECONDS", "600"))
SEED: Final = int(os.environ.get("COORD_CHAOS_SEED", "1"))
NAMES: Final = ("a", "b", "c")
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
def lists(own_stack: Stack) -> Iterator[Lists]:
    with Lists(own_stack.bootstrap_servers, "lists", LISTS) as lists:
        yield lists


class Nemesis:
    """Whatever may happen to job, broker and clients, by chance."""

    def __init__(self, scene: Scene, start: Callable[[str], None], seed: int) -> None:
        self._scene, self._start, self._draw = scene, start, Random(seed)
        self.done: Counter[str] = Counter()
        self._faults: dict[str, Callable[[], None]] = {
            "the job is killed": self._kill_job,
            "the job is suspended": self._suspend_job,
            "the broker is killed": self._kill_broker,
            "a client is killed": self._kill_client,
            "a client is suspended": self._suspend_client,
            "a client and the job are killed": self._kill_both,
        }

    def strike(self) -> None:
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
    scene: Scene, lists: Lists, tell: Tell, tmp_path: Path
) -> None:
    """SIGKILL and SIGSTOP of everything in turn, while three processes append."""

    def start(name: str) -> None:
        more: dict[str, Any] = {
            "program": "tests.stack.appender",
            "sink": lists.topic,
            "lists": LISTS,
            "transactional__id": f"appender-{name}",
            "transaction__timeout__ms": TRANSACTION_TIMEOUT_MS,
            "max__poll__interval__ms": 30_000,
        }
        scene.crew.start(name, **more)

    scene.flow.per_second = PER_SECOND
    scene.start_job()
    for name in NAMES:
        start(name)
    scene.flow.begin()
    scene.crew.until("all append", lambda: all(scene.crew[name].told("ended") for name in NAMES))
    nemesis, until_s = Nemesis(scene, start, SEED), time.monotonic() + SECONDS
    with scene.supervised() as ended:
        while time.monotonic() < until_s:
            nemesis.strike()
        scene.flow.pause()
        scene.crew.until("all is copied", lambda: lists.count >= sum(scene.flow.ends.values()))
        scene.crew.stop()
        lists.read_all(GROUP, scene.flow.topic, scene.flow.partitions)
    history = lists.history(scene.crew, GROUP)
    write(tmp_path / HISTORY, history)

    transactions = sum(each.what == "begin" for each in history)
    outcomes = Counter(each.detail for each in history if each.what == "ended")
    faults = ", ".join(f"{count} times {what}" for what, count in sorted(nemesis.done.items()))
    tell(
        f"{transactions} transactions, {outcomes['ok']} committed, {outcomes['aborted']} aborted; "
        f"the job was started {len(ended)} times again; {faults}"
    )
