"""Two cells as two applications of one standalone cluster, of which one is killed."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from coordlib.local.processes import Program
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import MEMBER, TOLD
from tests.stack.clustered import PATIENCE_S, READY_TIMEOUT_S, confs, flags
from tests.stack.conftest import JOB_ARGS
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.test_cells import HIGH, LOW, status
from tests.stack.truths import generations, holds, outputs_are_exactly_once
from tests.stack.wire import Wire
from tests.tools.standalone import Standalone

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

#: A cell leaves the other core of the cluster to the other cell; it has one shard, so one task.
OF_A_CELL: Final = {"spark.cores.max": "1", "spark.sql.shuffle.partitions": "1"}
#: What waits for a dead cell waits longer than anything waits for one that answers.
LONG_MS: Final = 30_000


class Half:
    """A cell that is an application of the cluster, and the processes of a group of its shard."""

    def __init__(self, broker: Stack, cluster: Standalone, folder: Path, group: str) -> None:
        shard = (LOW, HIGH).index(group)
        self.group, self.shards, self._cluster = group, f"{shard}-{shard}", cluster
        self._names = [f"{name}-{shard}" for name in "abc"]
        self.stack = Stack(folder / f"cell-{shard}")
        self.stack.broker = broker.broker
        servers = broker.bootstrap_servers
        self._open = ExitStack()
        self.flow = self._open.enter_context(Flow(servers, f"records-{shard}", 6))
        config = MEMBER | {"bootstrap.servers": servers, "group.id": group}
        self.crew = self._open.enter_context(Crew(folder, self.flow.topic, config))
        self._marks: dict[str, int] = {}

    def launch(self) -> None:
        arguments = (*JOB_ARGS, "--without-archive", "--shards", self.shards)
        self.stack.launch_job(arguments, [*flags(self._cluster), *confs(OF_A_CELL)])

    def wait_until_ready(self) -> None:
        self.stack.job.wait_until_ready(READY_TIMEOUT_S)

    def kill(self) -> list[Program]:
        """SIGKILL to the driver and its JVM; its executors are left to themselves."""
        left = self.executors()
        self.crew.note("fault", f"the cell {self.shards} is killed")
        self.stack.kill_job()
        return left

    def close(self) -> None:
        self._open.close()
        self.stack.kill_job()

    @property
    def application(self) -> str:
        return self._cluster.application(f"coord-coordinator-{self.shards}")

    def executors(self) -> list[Program]:
        return self._cluster.executors_of(self.application)

    def goes_on(self) -> None:
        """Wait until it has committed further batches."""
        before = self.batch()
        wait_until(f"batches of {self.shards}", lambda: self.batch() > before + 1, PATIENCE_S)

    def batch(self) -> int:
        return int(self.stack.job.last_status().get("batch_id") or -1)

    # -- its group ---------------------------------------------------------------------------

    def two_work(self) -> None:
        self.crew.start(*self._names[:2])
        self.flow.begin()
        self.crew.until_shared(self.flow.places, *self._names[:2])
        self.reads_on()

    def a_third_joins(self) -> float:
        """Returns how many seconds that took, with its process's start."""
        began_s = time.monotonic()
        self.crew.start(self._names[2])
        self.crew.until_shared(self.flow.places, *self._names)
        self.reads_on()
        return time.monotonic() - began_s

    def reads_on(self) -> None:
        """Wait until each member has read more than now."""
        self.crew.read_on()
        seen = {name: len(each.readings) for name, each in self.crew.members.items()}
        self.crew.until(
            "all read on", lambda: all(len(self.crew[n].readings) > k for n, k in seen.items())
        )

    def mark(self) -> None:
        self.crew.read_on()
        self._marks = {name: each.mark() for name, each in self.crew.members.items()}

    def is_undisturbed(self) -> None:
        """Nobody was told anything since the mark, and everybody reads on."""
        self.reads_on()
        for name, mark in self._marks.items():
            assert not self.crew[name].since(mark, *TOLD), name


@pytest.fixture
def halves(own_stack: Stack, tmp_path: Path) -> Iterator[list[Half]]:
    with Standalone(tmp_path / "cluster") as cluster:
        halves = [Half(own_stack, cluster, tmp_path, group) for group in (LOW, HIGH)]
        yield halves
        for half in halves:  # before its executors: their end would fill its log
            half.close()


@pytest.mark.timeout(1_200)
def test_a_cell_is_killed_and_the_other_application_answers(
    halves: list[Half], own_stack: Stack, capsys: pytest.CaptureFixture[str], tell: Tell
) -> None:
    """Two cells share a Spark cluster, and the machine of one driver loses power. Its executors end
    by themselves when they miss it. The groups of the other cell do not notice; its own read on,
    and find their state when a supervisor has started it again in its folder.  # INV-34, INV-103"""

    def cells() -> dict[str, Any]:
        """What `coord status` says of each; at all times it has both."""
        _, told = status(own_stack, capsys)
        rows = {row["shards"]: row for row in told["job_instances"]}
        assert (list(rows), told["shards_without_job"]) == (["0-0", "1-1"], [])
        return rows

    def is_missed() -> bool:
        """Whether requests have waited for the dead cell, and not for the other."""
        rows = cells()
        waited = {shards: rows[shards]["lag"]["ms"] or 0 for shards in rows}
        return bool(waited["1-1"] > LONG_MS > waited["0-0"])

    low, high = halves
    for half in halves:
        half.launch()  # at the same moment, as units do when their machine starts
    for half in halves:
        half.wait_until_ready()
    assert low.application != high.application
    with Wire(own_stack.bootstrap_servers) as wire:
        for half in halves:
            half.two_work()
            half.mark()
        assert [len(half.executors()) for half in halves] == [1, 1]
        before, batch, driver = cells()["1-1"], high.batch(), low.stack.job_pid
        known = generations(wire, HIGH)

        executors, killed_s = high.kill(), time.monotonic()
        wait_until("its executors end", lambda: not any(each.is_running for each in executors))
        ended_s = time.monotonic() - killed_s
        low.goes_on()
        low.is_undisturbed()
        joined_s = low.a_third_joins()
        wait_until("requests wait for one cell alone", is_missed, PATIENCE_S)
        high.reads_on()

        again_s = time.monotonic()
        high.launch()
        high.wait_until_ready()
        high.goes_on()
        again_s = time.monotonic() - again_s
        high.is_undisturbed()
        assert cells()["1-1"]["checkpoint_id"] == before["checkpoint_id"]
        assert high.batch() > batch
        assert generations(wire, HIGH) == known
        rejoined_s = high.a_third_joins()

        assert low.stack.job_pid == driver
        for half in halves:
            assert wire.events(half.group, "MemberRemoved") == []
            holds(half.crew, half.flow, wire, half.group)
        outputs_are_exactly_once(wire)
        cells()
    tell(
        f"the killed cell's executor ended after {ended_s:.1f} s; a member joined in the other "
        f"cell in {joined_s:.1f} s meanwhile; the killed one answered {again_s:.1f} s after its "
        f"start, and a member joined in {rejoined_s:.1f} s"
    )
