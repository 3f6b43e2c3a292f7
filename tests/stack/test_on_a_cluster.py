"""The job on a standalone cluster: nothing is installed on its workers, and an executor may die.

`make chaos` takes away everything else (chaos/test_the_cluster_breaks.py).
"""

import gc
import tarfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from coordlib import exit_codes
from coordlib.errors import SetupError
from coordlib.local.broker import Broker
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.clustered import READY_TIMEOUT_S, Probe, flags
from tests.stack.conftest import JOB_ARGS
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import RawMember, Wire, settle
from tests.tools.standalone import Standalone

pytestmark = [pytest.mark.stack, pytest.mark.fault]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """One worker: who kills its executor has none left."""
    with Standalone(tmp_path_factory.mktemp("cluster"), workers=1) as cluster:
        yield cluster


@pytest.fixture
def stack(broker: Broker, tmp_path: Path) -> Iterator[Stack]:
    """Topics of its own on the broker that all tests share; no job yet."""
    stack = Stack(tmp_path / "stack", prefix=f"c{uuid4().hex[:8]}")
    stack.broker = broker
    stack.start_broker()
    yield stack
    gc.collect()
    stack.kill_job()


def start(stack: Stack, cluster: Standalone, *more: str) -> None:
    arguments = stack._job_arguments((*JOB_ARGS, "--without-archive"))
    stack.job.start(arguments, [*flags(cluster), *more], timeout_s=READY_TIMEOUT_S)


@pytest.mark.chaos
def test_an_executor_is_killed_and_another_goes_on(stack: Stack, cluster: Standalone) -> None:
    """The kernel ends it for want of memory. The next one has the environment from the driver, and
    the shards' states from the checkpoint.  # INV-34"""
    start(stack, cluster)
    with Wire(stack.bootstrap_servers, stack.prefix) as wire:
        member, probe = RawMember(wire, "g", "client", session_timeout_ms=300_000), Probe(wire)
        settle([member])
        assert wire.answer(member.commit(77))["failed"] == []
        (executor,) = cluster.executors()
        with probe.asking():
            cluster.kill_executor("worker-0")
            wait_until("another one", lambda: bool(cluster.at_work()), READY_TIMEOUT_S)
            asked = member.commit(78)
            assert wire.answer(asked, READY_TIMEOUT_S)["failed"] == []

        assert not executor.is_running
        fetched = wire.answer(wire.send("OffsetFetch", "g"))["offsets"]
        assert [row["offset"] for row in fetched] == [78]
        assert [event["reason"] for event in wire.events("g", "MemberRemoved")] == []
        outputs_are_exactly_once(wire)
        print(f"longest answer {probe.longest_s():.1f} s")
    assert stack.stop_job() == exit_codes.OK


@pytest.fixture
def without_python(tmp_path: Path) -> Path:
    """An environment as it is on a worker that lacks this machine's Python: its link leads
    nowhere."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to("/nowhere/python3.11")
    archive = tmp_path / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, "bin")
    return archive


def refused(stack: Stack, cluster: Standalone, *more: str) -> list[str]:
    """What a start says that must end by itself."""
    with pytest.raises(SetupError):
        start(stack, cluster, *more)
    lines = stack.last_job_lines(5_000).splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("coordinator: ")]
    return lines[at : at + 3]


def nothing_was_begun(stack: Stack) -> None:
    """Neither is another driver fenced nor anything kept."""
    assert not stack.checkpoint.exists() or list(stack.checkpoint.iterdir()) == []
    with Wire(stack.bootstrap_servers, stack.prefix) as wire:
        wire.read_everything()
        assert {topic: values for topic in wire.seen if (values := wire.values(topic))} == {}


@pytest.mark.chaos
def test_a_worker_without_the_right_python_is_told(
    stack: Stack, cluster: Standalone, without_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COORD_ENV_ARCHIVE", str(without_python))

    told = refused(stack, cluster)

    assert told[0] == (
        "coordinator: An executor on 127.0.0.1 has no Python to run: ./environment/bin/python does "
        "not start there."
    )
    assert "at the same path on every worker" in told[2]
    assert stack.job.exit_code == exit_codes.USAGE
    nothing_was_begun(stack)


@pytest.mark.chaos
def test_a_cluster_without_room_is_told(stack: Stack, cluster: Standalone) -> None:
    """No worker has so much memory. Others may leave it: a supervisor tries again."""
    told = refused(stack, cluster, "--conf", "spark.executor.memory=4g")

    assert told[0] == "coordinator: No executor has come within 120 s."
    assert told[1] == cluster.master
    assert stack.job.exit_code == exit_codes.FAILED
    nothing_was_begun(stack)


@pytest.mark.chaos
def test_a_worker_that_has_another_disk_is_told(
    stack: Stack, broker: Broker, tmp_path: Path
) -> None:
    """/tmp on each machine: all goes well until a shard's state is wanted on another one."""
    apart = Standalone(tmp_path / "apart", workers=0)
    stack.checkpoint.mkdir(parents=True)
    with apart:
        hidden = f'mount -t tmpfs none {stack.checkpoint} && exec "$@"'
        try:
            apart.launch_worker("worker-0", "unshare", "--mount", "sh", "-c", hidden, "worker")
            apart.wait_for_worker("worker-0")
        except (OSError, SetupError):
            pytest.skip("no right to mount a file system: another disk cannot be had otherwise")
        told = refused(stack, apart)

    assert told[0] == "coordinator: Executors cannot write into the driver's checkpoint folder."
    assert told[1].startswith(f"{stack.checkpoint} on ")
    assert stack.job.exit_code == exit_codes.USAGE
    nothing_was_begun(stack)
