"""The job on a standalone cluster, of which a part after the other is taken away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.chaos.conftest import Tell
from tests.stack.clustered import ClusterScene, Probe
from tests.tools.standalone import Standalone

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
PATIENCE_S = 600.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with Standalone(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def scene(own_stack: Stack, tmp_path: Path, cluster: Standalone) -> Iterator[ClusterScene]:
    with ClusterScene(own_stack, tmp_path, cluster) as scene:
        yield scene
        own_stack.kill_job()  # before its executors: their end would fill its log


def work(cluster: Standalone, number: int) -> None:
    """Wait until so many executors have tasks: a new one fetches its environment first."""
    wait_until(f"{number} at work", lambda: len(cluster.at_work()) == number, PATIENCE_S)


def is_another(scene: ClusterScene, killed: int) -> bool:
    """Whether another driver has ended a batch."""
    told = scene.stack.job.last_status()
    return told.get("state") == "running" and told["pid"] != killed


def test_parts_of_the_cluster_die_under_a_running_group(scene: ClusterScene, tell: Tell) -> None:
    """An executor, a machine with a worker, the master: the driver goes on, with executors that
    come in their place, and from the checkpoint that all machines see.  # INV-34"""
    cluster, probe, seen = scene.cluster, Probe(scene.wire), []
    scene.start_job()
    work(cluster, 2)
    scene.crew_works("a", "b")
    scene.mark()

    def broken(what: str) -> None:
        """Wait until the group has been served again; how long was the longest answer?"""
        scene.job_goes_on()
        scene.is_undisturbed()
        seen.append(f"{what} {probe.longest_s():.1f} s")

    with probe.asking():
        broken("quiet")
        scene.note("fault", "an executor is killed")
        cluster.kill_executor("worker-0")
        work(cluster, 2)
        broken("executor killed")
        scene.note("fault", "a machine is gone")
        cluster.kill("worker-1")
        broken("worker killed")
        cluster.launch_worker("worker-1")
        work(cluster, 2)
        broken("worker came back")
        scene.note("fault", "both executors are killed")
        for worker in ("worker-0", "worker-1"):
            cluster.kill_executor(worker)
        work(cluster, 2)
        broken("both executors killed")
        scene.note("fault", "the master is gone")
        cluster.kill("master")
        broken("master killed")

    assert scene.expelled() == []
    assert scene.stack.job.is_running
    tell(f"longest answers: {', '.join(seen)}; {scene.ends_well()}")


def test_the_driver_dies_and_is_started_again(scene: ClusterScene, tell: Tell) -> None:
    """Its machine loses power. Executors end by themselves when they miss it; the supervisor starts
    another one, which gets executors of its own.  # INV-34"""
    cluster, probe = scene.cluster, Probe(scene.wire)
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    before = cluster.executors()
    with probe.asking():
        scene.job_goes_on()
        quiet_s = probe.longest_s()
        with scene.supervised() as ended:
            scene.note("fault", "the driver is killed")
            killed = scene.stack.job.last_status()["pid"]
            scene.stack.kill_job()
            wait_until("it runs again", lambda: is_another(scene, killed), PATIENCE_S)
            scene.job_goes_on()
        scene.is_undisturbed()
        away_s = probe.longest_s()

    assert ended == [None], "it ended again"
    assert not any(executor.is_running for executor in before)
    assert scene.expelled() == []
    tell(f"longest answer {away_s:.1f} s, quiet {quiet_s:.1f} s; nobody told: {scene.ends_well()}")


def test_a_machine_that_is_cut_off_is_missed(scene: ClusterScene, tell: Tell) -> None:
    """Its connections stay open and say nothing: only heartbeats that do not come tell the driver.
    What it writes when it is back is of no consequence."""
    cluster, probe = scene.cluster, Probe(scene.wire)
    scene.start_job()
    work(cluster, 2)
    scene.crew_works("a", "b")
    scene.mark()
    with probe.asking():
        scene.job_goes_on()
        quiet_s = probe.longest_s()
        scene.note("fault", "a machine is cut off")
        cluster.suspend("worker-0")
        try:
            scene.job_goes_on()
            scene.is_undisturbed()
        finally:
            cluster.resume("worker-0")
        away_s = probe.longest_s()
        scene.note("healed", "the machine is back")
        scene.job_goes_on()
        scene.is_undisturbed()

    assert scene.expelled() == []
    tell(f"longest answer {away_s:.1f} s, quiet {quiet_s:.1f} s; {scene.ends_well()}")
