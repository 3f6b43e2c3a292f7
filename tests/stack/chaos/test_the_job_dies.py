"""The job is killed or suspended, wherever it stands."""

from pathlib import Path
from typing import Final

import pytest

from coordlib.job import crash
from tests.kit.waiting import wait_until
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import SESSION_MS, Scene, sleep_for_ms
from tests.stack.copying import Copying
from tests.stack.lists import Lists

#: Where only a job comes by that has transactions.
WORDS_OF_TRANSACTIONS: Final = ("fed", "decided")
PLACES: Final = tuple(each for each in crash.PLACES if each not in WORDS_OF_TRANSACTIONS)
pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]


def test_the_job_dies_at_every_place_one_after_the_other(scene: Scene, tell: Tell) -> None:
    """A batch is begun nine times: every run dies one place later than the one before it, so each
    crash falls into the replay of another. Before them the power goes, at any moment.  # INV-07"""
    scene.start_job()
    scene.crew_works("a", "b")
    scene.mark()
    scene.stack.kill_job()
    for place in PLACES:
        scene.job_crashes(place)
        scene.is_undisturbed()
    scene.start_job()
    scene.job_goes_on()
    scene.is_undisturbed()

    assert scene.expelled() == []
    tell(f"{len(PLACES)} crashes in a row, nobody told: {scene.ends_well()}")


def test_the_job_dies_behind_each_word_about_transactions(
    scene: Scene, lists: Lists, tell: Tell, tmp_path: Path
) -> None:
    """It has fed one message of a transaction over shards; then it has told one shard of Kafka's
    decision. Each time the next driver says it all again, and nothing counts twice.  # INV-91"""
    servers, folder = scene.stack.bootstrap_servers, tmp_path / "copier"
    folder.mkdir()
    scene.flow.per_second = 30
    scene.start_job()
    with Copying(servers, servers, folder, records=3_000) as copying:
        scene.appenders_work(lists, "a", "b")
        copying.start("a")
        copying.begins()
        scene.stack.kill_job()
        for place in WORDS_OF_TRANSACTIONS:
            scene.job_crashes(place)
        scene.start_job()
        scene.job_goes_on()
        copying.ends_well()
        scene.appenders_end(lists, tmp_path)

    words = " and ".join(WORDS_OF_TRANSACTIONS)
    tell(f"crashes at {words}; {copying.records} records were copied once, all was appended once")


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
