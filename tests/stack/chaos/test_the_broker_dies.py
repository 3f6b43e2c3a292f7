"""The broker is killed under job, members and producers."""

import pytest

from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import Scene, sleep_for_ms

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

NAMES = ("a", "b", "c")


def test_the_broker_is_killed_and_comes_back_at_once(scene: Scene, tell: Tell) -> None:
    """Power cut on the broker's machine: no clean stop, its segments are recovered (F-16)."""
    scene.start_job()
    scene.crew_works(*NAMES)
    seen = _breaks(scene, away_ms=0)
    lost = sum(bool(scene.crew[name].told("lost")) for name in NAMES)
    tell(f"{lost} lost what they had, {seen}")


def test_the_broker_is_away_for_a_minute(scene: Scene, tell: Tell) -> None:
    """Ten sessions long nobody can say a sign of life, nor hear of anything: every member stops by
    itself while it is so, comes back by itself, and what was in the log is still there."""
    scene.start_job()
    scene.crew_works(*NAMES)
    marks = {name: scene.crew[name].mark() for name in NAMES}
    seen = _breaks(scene, away_ms=60_000)
    for name, mark in marks.items():
        assert scene.crew[name].since(mark, "lost"), f"{name} did not stop"
    tell(f"all stopped by themselves, {seen}")


def _breaks(scene: Scene, away_ms: int) -> str:
    """Kill the broker and bring it back; what was seen of job and members."""
    broker = scene.stack.broker
    scene.flow.pause()
    with scene.supervised() as ended:
        scene.note("fault", f"the broker is killed, and away for {away_ms / 1000:.0f} s")
        broker.kill()
        sleep_for_ms(away_ms)
        broker.start()
        scene.note("healed", "the broker is back")
        scene.flow.begin()
        scene.crew.until_shared(scene.flow.places, *NAMES)
        scene.all_read_on()
        scene.job_goes_on()
        assert set(ended) <= {1}, "to be started again"
    kept = scene.ends_well()
    return f"{len(scene.expelled())} expelled, the job was started {len(ended)} times again: {kept}"
