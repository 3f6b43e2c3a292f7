"""The job's own checkpoint and topics, looked at while it runs."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from coordlib.errors import NotAllowed
from coordlib.job.background import topic_watch
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.topic_watch import CHECKPOINT, OwnWatch
from coordlib.kafka.layout import Grown

LOST = "the checkpoint has been removed"
ADDED = Grown("coord.requests", 3, 2)


class Query:
    """A query whose checkpoint and topics somebody changes."""

    def __init__(self) -> None:
        self.lost: str | Exception = ""
        self.added: Sequence[Grown] | Exception = ()

    def lost_checkpoint(self) -> str:
        return _given(self.lost)

    def grown(self) -> Sequence[Grown]:
        return _given(self.added)


def _given(what: Any) -> Any:
    if isinstance(what, Exception):
        raise what
    return what


def test_a_checkpoint_that_is_gone_is_a_trouble_until_it_is_back() -> None:
    """Spark writes on into a folder of that name, and nobody noticed before the next start."""
    query, health = Query(), HealthReport()
    watch = OwnWatch(lambda: query, health)
    watch.turn()
    assert health.now == {}

    query.lost = LOST
    with capture_logs() as lines:
        watch.turn()
        watch.turn()

    assert health.now[CHECKPOINT].error == LOST
    assert [line["error"] for line in lines] == [LOST]
    query.lost = ""
    watch.turn()
    assert health.now == {}


def test_partitions_that_were_added_are_logged_once_and_are_no_trouble() -> None:
    """Nothing fails: they are not read."""
    query, health = Query(), HealthReport()
    watch = OwnWatch(lambda: query, health)
    query.added = [ADDED]
    with capture_logs() as lines:
        watch.turn()
        watch.turn()
        query.added = [ADDED._replace(partitions=4)]
        watch.turn()

    assert [(line["topic"], line["partitions"]) for line in lines] == [
        ("coord.requests", 3),
        ("coord.requests", 4),
    ]
    assert health.now == {}


@pytest.mark.parametrize(
    "problem",
    [KafkaException(KafkaError(KafkaError._TRANSPORT)), NotAllowed("A right is missing")],
)
def test_brokers_that_do_not_say_keep_nobody_from_the_checkpoint(problem: Exception) -> None:
    query, health = Query(), HealthReport()
    query.lost, query.added = LOST, problem
    OwnWatch(lambda: query, health).turn()

    assert CHECKPOINT in health.now


def test_between_two_runs_of_a_query_nothing_is_looked_at() -> None:
    """The claims query has failed, and its checkpoint may be about to be made anew."""
    health = HealthReport()
    OwnWatch(lambda: None, health).turn()

    assert health.now == {}


def test_a_file_system_that_fails_ends_neither_the_job_nor_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_watch, "LOOK_EVERY_S", 0.01)
    query, health, looked = Query(), HealthReport(), threading.Event()
    query.lost = RuntimeError("no name node")
    watch = OwnWatch(lambda: query, health)
    watch.start()
    while CHECKPOINT not in health.now:
        looked.wait(0.01)
    assert "no name node" in health.now[CHECKPOINT].error
    query.lost = ""
    while health.now:
        looked.wait(0.01)
    watch.stop()


def test_claims_name_their_own_flag() -> None:
    query, health = Query(), HealthReport()
    query.lost = "start with --rebuild."
    OwnWatch(lambda: query, health, lambda each: each.replace("build", "build-claims")).turn()

    assert health.now[CHECKPOINT].error == "start with --rebuild-claims."
