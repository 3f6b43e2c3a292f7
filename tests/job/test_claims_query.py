"""The claims query's own decisions: which checkpoint goes on, and what a cut log leads to."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.config import ClaimsConfig, CoordinatorConfig
from coordlib.core.wire.stored import Marker, ShardPosition
from coordlib.errors import CannotReach, LogCut, SetupError, StartRefused
from coordlib.job import failures
from coordlib.job.background.loop import HealthReport, StatusFile
from coordlib.job.batch import Batch, BatchReport
from coordlib.job.checkpoint import Identity
from coordlib.job.main import claims_query as claims
from coordlib.job.main.claims_query import CLAIMS, ClaimsOptions, ClaimsQuery
from coordlib.job.rebuild import Replay
from tests.history.claims_life import SETTINGS, TOPIC
from tests.tools.core import Status


def query_with(
    path: Path | None = None, topic: str = TOPIC, is_alone: bool = False, **options: Any
) -> ClaimsQuery:
    config = CoordinatorConfig(claims=ClaimsConfig(topic=topic))
    wanted = ClaimsOptions(
        bootstrap_servers="127.0.0.1:1", checkpoint="c", config=config, **options
    )
    return ClaimsQuery(MagicMock(), wanted, StatusFile(path), HealthReport(), is_alone)


def marker_at(next_offset: int) -> Marker:
    position = ShardPosition(clock_ms=1, previous_ms=1, offsets={"m": 1}, published=-1)
    return Marker(
        checkpoint="c",
        batch=3,
        ranges={},
        digest="",
        next_offsets={TOPIC: {"0": next_offset}},
        shards={"0": position},
    )


def started(
    marker: Marker | None,
    *,
    is_empty: bool,
    has_batches: bool = False,
    prefix: str = "coord.claims",
) -> Any:
    """A query whose progress and folder have been looked at."""
    folder = MagicMock()
    identity = Identity(checkpoint="c", prefix=prefix, shards=1, incarnation="i")
    folder.identity.return_value = None if is_empty else identity
    folder.has_batches.return_value = has_batches
    return SimpleNamespace(sink=SimpleNamespace(marker=marker), folder=folder)


def replay_from(start: int) -> Replay:
    nothing: Any = None
    return Replay(SETTINGS, nothing, {0: start})


def test_a_checkpoint_goes_on() -> None:
    here = started(marker_at(9), is_empty=False)

    assert not query_with()._must_rebuild(here, replay_from(4))
    here.folder.clear.assert_not_called()


def test_a_checkpoint_that_the_log_has_left_behind_is_begun_anew_by_itself() -> None:
    """Retention passed the marker: Spark would fail on the same records at every start."""
    here = started(marker_at(9), is_empty=False)

    assert query_with()._must_rebuild(here, replay_from(10))
    here.folder.clear.assert_called_once_with()


def test_a_mistyped_checkpoint_is_not_removed() -> None:
    """The path is that of the groups' own checkpoint, with the key of their control records."""
    here = started(marker_at(9), is_empty=False, prefix="coord")

    with pytest.raises(StartRefused, match="not that of the claims"):
        query_with()._must_rebuild(here, replay_from(10))
    here.folder.clear.assert_not_called()


def test_a_start_that_died_between_removing_and_rebuilding_is_repeated() -> None:
    """The folder is gone, and the marker still stands before the log's beginning."""
    here = started(marker_at(9), is_empty=True)

    assert query_with()._must_rebuild(here, replay_from(10))


def test_a_log_cut_before_the_first_batch_needs_no_rebuild() -> None:
    """Batch 0 was planned, and its records are gone: nothing was ever judged."""
    here, query = started(None, is_empty=False, has_batches=True), query_with()
    query._is_cut = True

    assert not query._must_rebuild(here, replay_from(10))
    here.folder.clear.assert_called_once_with()


@pytest.mark.parametrize(
    ("option", "is_empty", "marker", "is_rebuild"),
    [
        ("is_rebuild", True, marker_at(9), True),
        ("is_rebuild", False, marker_at(9), True),  # refused, by what agrees with the checkpoint
        ("rebuilds_if_empty", True, marker_at(9), True),
        ("rebuilds_if_empty", False, marker_at(9), False),
        ("rebuilds_if_empty", True, None, False),
    ],
)
def test_a_rebuild_that_was_asked_for(
    option: str, is_empty: bool, marker: Marker | None, is_rebuild: bool
) -> None:
    """`--rebuild` is the groups': where the checkpoint of claims is there, it goes on."""
    here = started(marker, is_empty=is_empty)

    assert query_with(**{option: True})._must_rebuild(here, replay_from(0)) is is_rebuild
    here.folder.clear.assert_not_called()


def runs(query: ClaimsQuery, *ends: Exception | None) -> list[bool]:
    """Whether the log was taken for cut, in each run; None: it was told to stop."""
    left, found = list(ends), []

    def run(_: threading.Event) -> None:
        found.append(query._is_cut)
        if (end := left.pop(0)) is not None:
            raise end

    query._run = run  # type: ignore[method-assign]
    query.run(threading.Event())
    return found


def test_a_cut_under_the_query_is_no_failure() -> None:
    """It begins behind the cut at once; history says what is missing."""
    assert runs(query_with(), LogCut("gone"), None) == [False, True]


def test_a_log_that_is_cut_again_before_anything_was_judged_is_a_failure() -> None:
    """Else a defect would make a checkpoint a second, for ever."""
    with pytest.raises(LogCut):
        runs(query_with(), LogCut("gone"), LogCut("gone"), None)


def test_what_spark_says_is_told_in_words() -> None:
    cut = failures.explain_claims(RuntimeError("… KAFKA_DATA_LOSS …"), "c")
    lost = failures.explain_claims(RuntimeError("CANNOT_LOAD_STATE_STORE"), "c")

    assert isinstance(cut, LogCut)
    assert isinstance(lost, StartRefused)
    assert "claims come back from the snapshots" in lost.hint
    assert "members" not in lost.hint


def test_the_status_has_the_query_beside_the_groups(tmp_path: Path) -> None:
    """`coord status` reads it; the state of the job is that of the groups."""
    path = tmp_path / "job.json"
    query = query_with(path)
    plane_query: Any = SimpleNamespace(
        records_max=200_000, sink=SimpleNamespace(marker=marker_at(9))
    )
    query._query = plane_query
    query._health.failed(CLAIMS, "the broker was away")
    position = ShardPosition(clock_ms=1, previous_ms=1, offsets={"m": 8}, published=-1)
    status = Status(shard=0, position=position, cap_ms=1, has_deadline=False, owed=-1)
    report = BatchReport(status=status, ranges={"m": (0, 8)}, state_bytes=77)

    query._batch_committed(Batch(number=3, outputs=[], reports=[report]), {})

    told = json.loads(path.read_bytes())
    assert told["state"] == "starting"
    assert told["claims"]["state"] == "running"
    assert (told["claims"]["topic"], told["claims"]["batch_id"]) == (TOPIC, 3)
    assert (told["claims"]["next_offsets"], told["claims"]["state_bytes"]) == ({"0": 9}, 77)
    assert query._health.now == {}, "a batch proves that it works"


def test_a_job_of_its_own_has_the_state_of_its_query(tmp_path: Path) -> None:
    """Whoever has started it waits for `running`."""
    path = tmp_path / "job.json"
    query = query_with(path, is_alone=True)
    query._show_state("running")

    assert json.loads(path.read_bytes())["state"] == "running"


@pytest.mark.parametrize("is_alone", [False, True])
def test_only_beside_the_groups_a_batch_is_one_task_that_gives_way(is_alone: bool) -> None:
    """A backlog of claims took all slots of the job, and joins waited for whole batches of it. In
    a job of its own there is nobody to wait."""
    query = query_with(is_alone=is_alone)
    session: Any = query._spark

    assert query._of_query.is_low_priority is not is_alone
    asked = [call.args for call in session.conf.set.call_args_list]
    assert asked == ([] if is_alone else [("spark.sql.shuffle.partitions", "1")])


def test_a_failure_is_a_state_and_an_error() -> None:
    query = query_with()
    with pytest.raises(CannotReach):
        runs(query, CannotReach("away"))

    assert query._status.status.claims is not None
    assert query._status.status.claims.state == "failed"


def test_a_topic_without_an_interval_is_refused() -> None:
    with pytest.raises(SetupError, match=r"4000"):
        query_with(topic="__marshal.4000s")


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_job_of_its_own_looks_at_the_executors_before_anything_else(
    is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor with other code would judge by other rules; beside the groups, their query has
    looked, and a second look would cancel its batches where no executor answers."""
    asked: list[str] = []

    def refuse(_: object, checkpoint: str) -> None:
        asked.append(checkpoint)
        raise SetupError("Executors have other code of coordlib than the driver.")

    monkeypatch.setattr(claims, "require_executors", refuse)
    monkeypatch.setattr(claims, "PipelineQuery", MagicMock(side_effect=CannotReach("no broker")))

    with pytest.raises(SetupError if is_alone else CannotReach):
        query_with(is_alone=is_alone).run(threading.Event())
    assert asked == (["c"] if is_alone else [])


def test_the_topic_is_asked_for_its_partitions_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner may add some at any time; a broker that is away ends nothing."""
    asked: list[int] = []

    def look(_: object, prefix: str, topic: str, recorded: int) -> None:
        assert (prefix, topic) == ("coord", TOPIC)
        asked.append(recorded)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(claims.coordination, "require_count", look)
    query: Any = query_with()
    query._look_at_topic()  # nothing is recorded yet
    query._query = SimpleNamespace(sink=SimpleNamespace(layout=SimpleNamespace(shards=4)))
    query._look_at_topic()
    query._look_at_topic()

    assert asked == [4]
