"""The checkpoint lies where a rename is a copy, and where each request takes a while."""

import time
from pathlib import Path
from typing import Final

import pytest

from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import Scene
from tests.stack.clustered import READY_TIMEOUT_S, Probe, confs
from tests.tools import copying

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
#: Of stores that are near; each file of a batch needs several.
LATENCY_MS: Final = 20
MEASURED_S: Final = 20.0


@pytest.fixture
def store(scene: Scene, tmp_path: Path) -> tuple[str, str]:
    """Arguments of a job whose checkpoint lies in the store."""
    try:
        jar = copying.build(tmp_path / "jar")
    except FileNotFoundError as missing:
        pytest.skip(f"the file system cannot be compiled: {missing}")
    scene.spark_args = ["--driver-class-path", str(jar), *confs(copying.settings())]
    scene.ready_timeout_s = READY_TIMEOUT_S
    return "--checkpoint", f"{copying.SCHEME}://store{tmp_path}/checkpoint"


def is_slow(scene: Scene, latency_ms: int) -> None:
    """From the next start on."""
    scene.spark_args = [*scene.spark_args[:2], *confs(copying.settings(latency_ms))]


def measured(scene: Scene, probe: Probe) -> float:
    """How long an answer takes in the median, seconds."""
    probe.took_s.clear()
    with probe.asking():
        time.sleep(MEASURED_S)
    return probe.median_s()


def test_nothing_is_lost_where_a_rename_copies(
    scene: Scene, store: tuple[str, str], tell: Tell
) -> None:
    """A job that dies between a copy and the deletion of what was copied leaves both; one that dies
    before the copy neither. The newest batch is known by the progress marker alone."""
    scene.start_job(*store)
    scene.crew_works("a", "b")
    scene.mark()
    near_s = measured(scene, Probe(scene.wire))
    scene.stack.kill_job()
    for place in ("task-ends", "batch-ends"):  # the next run finds files that are there already
        scene.job_crashes(place, *store)
        scene.is_undisturbed()
    is_slow(scene, LATENCY_MS)
    scene.start_job(*store)
    scene.job_goes_on()
    scene.note("fault", "the job is killed, most likely inside a request to the store")
    scene.stack.kill_job()
    scene.start_job(*store)
    scene.job_goes_on()
    far_s = measured(scene, Probe(scene.wire))
    scene.is_undisturbed()

    assert scene.expelled() == []
    tell(
        f"an answer takes {near_s:.2f} s, and {far_s:.2f} s where a request takes {LATENCY_MS} ms; "
        f"killed four times, nobody told: {scene.ends_well()}"
    )
