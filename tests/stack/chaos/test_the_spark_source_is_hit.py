"""What hits queries of `format("coord")`: each of their processes dies, and those they rely on."""

import os
import signal

import psutil
import pytest

from tests.stack.chaos.scene import GROUP, Scene, sleep_for_ms
from tests.stack.source_member import PLANNER
from tests.stack.spark_crew import ASSIGNED
from tests.stack.truths import committed, ends_are_committed, outputs_are_exactly_once

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
NAMES = ("source-1", "source-2")
AWAY_MS = 5_000


def both_read(scene: Scene) -> None:
    """Records that come from now on are read by both."""
    crew = scene.crew
    crew.read_on()
    seen = {name: len(crew[name].readings) for name in NAMES}
    crew.until("both read on", lambda: all(len(crew[n].readings) > k for n, k in seen.items()))


def begin(scene: Scene) -> None:
    scene.start_job()
    for name in NAMES:  # one after the other: two Sparks that start take a machine's cores
        scene.crew.start(name, program="tests.stack.source_member", **ASSIGNED)
        scene.crew.until("it is ready", lambda name=name: scene.crew[name].told("ready"))  # type: ignore[misc]
    scene.flow.begin()
    both_read(scene)


def processes_of(scene: Scene, name: str, word: str) -> list[psutil.Process]:
    """Below a member's program, those with a word in their command line."""
    found = []
    for process in psutil.Process(scene.crew._running[name].pid).children(recursive=True):
        try:
            if word in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def hit(scene: Scene, what: str) -> None:
    """SIGKILL."""
    scene.note("fault", what)
    match what:
        case "planner" | "worker":
            word = PLANNER if what == "planner" else "pyspark.daemon pyspark.worker"
            for process in processes_of(scene, "source-2", word):
                os.kill(process.pid, signal.SIGKILL)
            scene.crew.until("its query failed", lambda: scene.crew["source-2"].told("failed"))
        case "driver":
            scene.crew.kill("source-2")
            scene.crew.start("source-2", program="tests.stack.source_member", **ASSIGNED)
        case "broker":
            with scene.supervised():
                scene.flow.pause()
                scene.stack.broker.kill()
                sleep_for_ms(AWAY_MS)
                scene.stack.broker.start()
                scene.flow.begin()
                scene.job_goes_on()
        case "job":
            scene.stack.kill_job()
            scene.start_job()


@pytest.mark.parametrize("what", ["planner", "worker", "driver", "broker", "job"])
def test_nothing_is_lost_when_it_dies(scene: Scene, what: str) -> None:
    begin(scene)
    hit(scene, what)
    both_read(scene)
    ends_are_committed(scene.crew, scene.flow, scene.wire, GROUP)
    scene.crew.stop()

    ends = scene.flow.ends
    assert committed(scene.wire, GROUP) == {(scene.flow.topic, n): end for n, end in ends.items()}
    read = {(each.place, each.offset) for each in scene.crew.readings}
    assert read == {((scene.flow.topic, n), at) for n, end in ends.items() for at in range(end)}
    outputs_are_exactly_once(scene.wire)
