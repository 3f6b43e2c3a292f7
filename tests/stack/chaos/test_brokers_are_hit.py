"""Brokers, and the job that is their controller, are killed, suspended and cut off, while clients
put and get at a replicated store all the time."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from coordlib.client.kit.process import boottime_ms
from coordlib.demo import history
from coordlib.demo.history import Happened
from coordlib.demo.show import Live
from coordlib.local.progress import silent
from examples.store.server import CLUSTER
from examples.store.wire import UNKNOWN
from tests.stack.acts.brokers_course import (
    BROKERS,
    KILLED,
    SESSION_MS,
    SUSPENDED,
    TIMING,
    Course,
    Stores,
    partition_of,
    store_of,
)
from tests.stack.acts.store_witness import StoreWitness
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import Scene, sleep_for_ms
from tests.stack.recorded import HISTORY
from tests.stack.truths import outputs_are_exactly_once
from tests.tools.checking import stores

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

TOPIC: Final = "entries"


@pytest.fixture
def course(scene: Scene) -> Iterator[Course]:
    """Nobody yet; the topic of the demo's act, with its stores and clients."""
    stack = scene.stack
    (stack.home / "logs").mkdir(exist_ok=True)
    config = {"bootstrap.servers": stack.bootstrap_servers, "coord.prefix": stack.prefix}
    with Stores(stack.home, TOPIC, config, StoreWitness) as members:
        course = Course(stack, members, Live(silent), TOPIC)
        course.is_job_wanted = False  # these look after it themselves
        with course.traffic:
            yield course


def ends_well(scene: Scene, course: Course, folder: Path) -> str:
    """Clients stop and read everything; what all wrote down is recorded, for `tell` to check."""
    course.traffic.stop()
    course.traffic.read_everything()
    course.members.read_on()
    scene.wire.read_everything()
    found = [*course.happened(), *_rows(scene, course)]
    found.sort(key=lambda each: each.t_ms)
    history.write(folder / HISTORY, found)
    assert not stores.unread_puts(found)
    assert sum(each.what == "row" for each in found) > len(course.partitions())
    outputs_are_exactly_once(scene.wire)
    puts, reads = (sum(each.what == what for each in found) for what in ("put", "got"))
    return f"{puts} puts, {reads} reads"


def _rows(scene: Scene, course: Course) -> Iterator[Happened]:
    """The controller's changes, in the order of the log; only that order is looked at."""
    for number, event in enumerate(scene.wire.events(CLUSTER, "PartitionsChanged")):
        for row in event["detail"]["partitions"]:
            yield Happened(
                number,
                "row",
                partitions=(f"{row['topic']}-{row['partition']}",),
                leader=row["leader"],
                generation=row["leader_epoch"],
                partition_epoch=row["partition_epoch"],
                fence=row["fence"],
                replicas=tuple(row["replicas"]),
                isr=tuple(row["isr"]),
            )


def answers(course: Course, broker: int, led: Mapping[int, int]) -> list[int]:
    """When a store answered in these epochs, in order."""
    found = course.members.witnesses[store_of(broker)].happened
    return sorted(
        each.t_ms
        for each in found
        if each.what in ("acknowledged", "answered")
        and led.get(partition_of(each)) == each.generation
    )


def first_after(course: Course, led: Mapping[int, int]) -> int:
    """When the first successor answered in one of these partitions."""
    return min(
        each.t_ms
        for each in course.happened()
        if each.what in ("acknowledged", "answered")
        and each.generation > led.get(partition_of(each), each.generation)
    )


def test_a_leader_is_killed_and_comes_back(
    scene: Scene, course: Course, tell: Tell, tmp_path: Path
) -> None:
    """Others in sync lead what it led; on its old data it follows again."""
    scene.start_job()
    course.begin()
    course.kill()
    assert course.killed.led.keys() & course.led(2, 3).keys() == course.killed.led.keys()
    pause_s = (first_after(course, course.killed.led) - course.killed.at_ms) / 1000
    tell(f"led again after {pause_s:.1f} s: {ends_well(scene, course, tmp_path)}")


def test_a_suspended_leader_acknowledges_nothing_when_it_wakes(
    scene: Scene, course: Course, tell: Tell, tmp_path: Path
) -> None:
    """A put waits at it for one follower, whose answer lies in its socket when it goes on; another
    leads by then."""
    scene.start_job()
    course.begin()
    course.suspend()
    hit = course.suspended
    last = answers(course, SUSPENDED, hit.led)[-1]
    first = first_after(course, hit.led)
    assert last < first < hit.until_ms

    summary = ends_well(scene, course, tmp_path)
    (waited,) = [e for e in course.traffic.happened if e.member == "waiting-writer"]
    assert (waited.what, waited.detail) == ("put_unknown", UNKNOWN), "it stood in its log"
    assert waited.t_ms >= hit.until_ms, "it was answered before it went on"
    tell(f"its last answer {first - last} ms before its successor's first: {summary}")


def test_a_leader_that_hears_nothing_stops_before_others_lead(
    scene: Scene, course: Course, tell: Tell, tmp_path: Path
) -> None:
    """Its heartbeats are taken all along, and followers and clients reach it (rule 9): it stops
    by its own clock, falls silent, and is declared Inactive."""
    scene.start_job()
    course.begin(module="tests.stack.deaf_store", deaf=str(tmp_path))
    led = course.led(KILLED)
    before = course.traffic.acknowledged.copy()
    (tmp_path / str(KILLED)).touch()
    deaf_ms = boottime_ms()
    course.until(
        "others lead what it led",
        lambda: led.keys() <= course.led(*(each for each in BROKERS if each != KILLED)).keys(),
    )
    course.until_put("they acknowledge")
    (tmp_path / str(KILLED)).unlink()

    last, first = answers(course, KILLED, led)[-1], first_after(course, led)
    assert last < first
    # A reading that ended when it went deaf was asked for before that.
    assert last - deaf_ms <= TIMING["release_timeout_ms"]
    assert any(course.traffic.acknowledged[each] > before[each] for each in led)
    course.until_in_sync("it has found out, and is in sync everywhere")
    worked_s = (last - deaf_ms) / 1000
    tell(
        f"acknowledged for {worked_s:.1f} s, must not be over 12 s, its successors "
        f"{(first - last) / 1000:.1f} s later: {ends_well(scene, course, tmp_path)}"
    )


def test_the_job_dies_twice_in_the_batch_of_an_election(
    scene: Scene, course: Course, tell: Tell, tmp_path: Path
) -> None:
    """First nobody may have read of it, then everybody has, and the driver does not know: the same
    leaders, with the same fences, once each. While it is away nobody else loses anything."""
    scene.start_job()
    course.begin()
    others = [each for each in BROKERS if each != KILLED]
    kept = course.led(*others)
    scene.stack.kill_job()
    led = _kill(course)
    sleep_for_ms(2 * SESSION_MS)  # the others' heartbeats move the clock beyond its session
    batch = _next_batch(scene)
    scene.job_crashes("before-commit", after=batch)
    assert not led.keys() & course.led(*others).keys(), "what is not committed is not read"
    scene.job_crashes("after-commit", after=batch)
    course.until("others lead", lambda: led.keys() <= course.led(*others).keys())
    course.until_put("they acknowledge, while no job runs")
    scene.start_job()
    scene.job_goes_on()

    now = course.led(*others)
    assert now.items() >= kept.items(), "who was alive has lost nothing"
    assert now == {**kept, **{each: epoch + 1 for each, epoch in led.items()}}
    course.start(KILLED)
    course.until_in_sync("it is back")
    tell(f"{len(led)} elections in a batch that died twice: {ends_well(scene, course, tmp_path)}")


def test_job_and_leader_die_together(
    scene: Scene, course: Course, tell: Tell, tmp_path: Path
) -> None:
    """One machine had both. Nobody is elected before there is a job; the others lead on."""
    scene.start_job()
    course.begin()
    others = [each for each in BROKERS if each != KILLED]
    kept = course.led(*others)
    scene.stack.kill_job()
    led = _kill(course)
    time.sleep(SESSION_MS / 1000)
    assert course.led(*others) == kept
    scene.start_job()
    course.until_put("others lead what it led, and acknowledge")
    assert course.led(*others).items() >= kept.items()
    course.start(KILLED)
    course.until_in_sync("it is back")
    tell(f"{len(led)} partitions: {ends_well(scene, course, tmp_path)}")


def _next_batch(scene: Scene) -> int:
    """The first one that is not planned yet: it takes all that was written meanwhile."""
    offsets = scene.stack.checkpoint / "offsets"
    return 1 + max(int(each.name) for each in offsets.iterdir() if each.name.isdecimal())


def _kill(course: Course) -> dict[int, int]:
    """SIGKILL to the leader of most; what it led."""
    led = course.led(KILLED)
    course.members.kill(store_of(KILLED))
    return led
