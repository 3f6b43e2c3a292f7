"""The job is killed or suspended, wherever it stands."""

import pytest

from coordlib.streaming import crash
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import SESSION_MS, Scene, sleep_for_ms
from tests.stack.conftest import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]


def test_the_job_dies_at_every_place_one_after_the_other(scene: Scene, tell: Tell) -> None:
    """A batch is begun nine times: every run dies one place later than the one before it, so each
    crash falls into the replay of another. Before them the power goes, at any moment.  # INV-07"""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.stack.kill_job()
    for place in crash.PLACES:
        scene.job_crashes(place)
        scene.is_undisturbed()
    scene.start_job()
    scene.job_goes_on()
    scene.is_undisturbed()

    assert scene.expelled() == []
    tell(f"{len(crash.PLACES)} crashes in a row, nobody told: {scene.ends_well()}")


def test_the_job_dies_in_the_same_place_again(scene: Scene, tell: Tell) -> None:
    """What ended it is still there when its supervisor starts it anew: two transactions are left
    open by one batch."""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.stack.kill_job()
    scene.job_crashes("before-commit", after=scene.batch() + 5)
    scene.job_crashes("before-commit")
    scene.start_job()
    scene.job_goes_on()
    scene.is_undisturbed()

    tell(f"two crashes, nobody told: {scene.ends_well()}")


def test_a_job_that_is_suspended_for_two_sessions_expels_nobody(scene: Scene, tell: Tell) -> None:
    """A virtual machine is moved; its clock jumps when it goes on.  # INV-30"""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.suspend_job()
    sleep_for_ms(2 * SESSION_MS)
    scene.resume_job()
    scene.job_goes_on()
    scene.is_undisturbed()

    assert scene.expelled() == []
    tell(f"nobody told: {scene.ends_well()}")


def test_a_job_that_is_suspended_inside_its_transaction_is_to_be_started_again(
    scene: Scene, tell: Tell
) -> None:
    """The broker gives the transaction up, and the driver finds itself fenced, but by nobody: its
    supervisor must start it again, which exit code 3 would forbid."""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.stack.kill_job()
    scene.start_job(
        *("--set", "engine.transaction_timeout_ms=10000"),
        fault=f"before-commit:{scene.batch() + 8}:stop",
    )
    wait_until("it is suspended", lambda: crash.VARIABLE in scene.stack.last_job_lines(50), 60)
    scene.note("fault", "the driver is suspended inside its transaction")
    scene.until_transaction_is_over()
    scene.resume_job()

    assert scene.job_ended() == 1
    assert "took longer than" in scene.last_words()[0]
    scene.stack.kill_job()
    scene.start_job()
    scene.job_goes_on()
    scene.is_undisturbed()
    tell(f"exit code 1, started again, nobody told: {scene.ends_well()}")
