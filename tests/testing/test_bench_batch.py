"""The batch benchmark: variants and their order, triggers by phase, ratios, its load's orders."""

import gc
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, call, patch

import pytest
from pyspark import cloudpickle

from coordlib import exit_codes
from coordlib.errors import CannotReach, SetupError
from coordlib.job import checkpoint, query
from coordlib.job.main import coordinator
from tests.tools.bench import batch_levers, batch_load, batch_worker
from tests.tools.bench.batch_figures import of_triggers, per_batch_ms, ratios, summary
from tests.tools.bench.batch_levers import switched
from tests.tools.bench.batch_variants import (
    BYTES_PER_OFFSET,
    LEVERS,
    TOGETHER,
    Variant,
    offsets_per_group,
    order,
    variants,
    warming,
)
from tests.tools.bench.core import SETTINGS, settled
from tests.tools.bench.crowd import Crowd
from tests.tools.bench.rebuild import History, lived
from tests.tools.commands import main
from tests.tools.core import fold

# -- variants -------------------------------------------------------------------------------------


def test_each_lever_has_its_turn_alone_between_none_and_all() -> None:
    found = variants(("gc", "files"))
    assert found == [
        Variant("off", ()),
        Variant("gc", ("gc",)),
        Variant("files", ("files",)),
        Variant("on", ("gc", "files")),
    ]


def test_the_jvm_is_warm_in_what_any_variant_runs() -> None:
    """A lever's own code was compiled in its first block: it seemed to make batches slower."""
    assert warming(("gc", "keys")) == [Variant("off", ()), Variant("on", ("gc", "keys"))]


def test_variants_can_be_named() -> None:
    """Also with levers that are not among those of `on`, and each once."""
    found = variants(("gc",), ("on", "gc+partitions", "on"))
    assert found == [Variant("on", ("gc",)), Variant("gc+partitions", ("gc", "partitions"))]


@pytest.mark.parametrize("name", ["", "gcc", "gc+", "off+gc"])
def test_a_variant_of_no_lever_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match="There is no lever"):
        variants(TOGETHER, (name,))


def test_the_levers_that_go_together_are_those_of_the_job() -> None:
    """With one state partition there is nothing over which keys could spread."""
    assert set(LEVERS) - set(TOGETHER) == {"partitions", "retained", "fetched", "archive"}


def test_every_second_turn_goes_backwards() -> None:
    """A JVM becomes faster for minutes: what always came last would look best."""
    blocks = order(variants(("gc",)), turns=3)
    assert [block.variant.name for block in blocks] == [
        *("off", "gc", "on"),
        *("on", "gc", "off"),
        *("off", "gc", "on"),
    ]
    assert [block.turn for block in blocks] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_the_state_is_filled_to_its_size() -> None:
    """About: how much an offset takes depends on the log, and figures tell what it was."""
    offsets = offsets_per_group(state_mb=1, groups=4)
    crowd, history = Crowd(4, 2, 2, 4, "x"), History(2, 4, "t0")
    lived(history, crowd, offsets)
    state_bytes = sum(len(each.blob) for each in history.folds.values())
    assert state_bytes == pytest.approx(1_000_000, rel=0.2)
    assert offsets_per_group(state_mb=0, groups=4) == 0


def test_more_state_than_the_groups_can_commit_is_refused() -> None:
    with pytest.raises(SetupError, match="10 MB of state need more groups") as refused:
        offsets_per_group(state_mb=10, groups=1)
    least = int(str(refused.value).partition("--groups ")[2].partition("--groups ")[2].split()[0])
    assert offsets_per_group(10, least) <= 10_000
    assert least == -(-10_000_000 // BYTES_PER_OFFSET // 10_000)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--levers", "gcc"),
        ("--variants", "gcc"),
        ("--turns", "0"),
        ("--seconds", "0"),
        ("--state-mb", "-1"),
        ("--state-mb", "60", "--groups", "1"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_starts(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after a broker, a JVM and minutes of other variants."""
    assert main(["bench", "batch", *arguments]) == exit_codes.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) <= 3


# -- figures --------------------------------------------------------------------------------------


def trigger(second: float, took_ms: int, rows: int = 1, **phases: int) -> dict[str, Any]:
    return {
        "timestamp": f"2026-11-23T00:00:{second:06.3f}Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": took_ms, **phases},
    }


MIDNIGHT_S = 1_795_392_000.0


def test_triggers_with_rows_within_the_time_count() -> None:
    progress = [
        trigger(0.9, 900, addBatch=800),  # of the warm-up
        trigger(1.0, 300, addBatch=200, walCommit=20, queryPlanning=30),
        trigger(1.3, 400, addBatch=300, walCommit=10, queryPlanning=30),
        trigger(1.7, 5, rows=0, latestOffset=5),
        trigger(1.8, 500, addBatch=400, walCommit=30, queryPlanning=30),
        trigger(2.3, 900, addBatch=800),  # when the load had ended
    ]
    assert of_triggers(progress, MIDNIGHT_S + 1, MIDNIGHT_S + 2) == {
        "batches": 3,
        "trigger_ms": {"p50": 400, "p90": 500},
        "phases_ms": {"walCommit": 20, "queryPlanning": 30, "addBatch": 300, "other": 50},
    }


def test_no_trigger_is_no_figure() -> None:
    """A job that hung is to be seen, and no division by nothing is to hide it."""
    assert of_triggers([], 0.0, 1.0) == {
        "batches": 0,
        "trigger_ms": {"p50": None, "p90": None},
        "phases_ms": {},
    }
    assert per_batch_ms({"jvm": 1.0}, {"jvm": 2.0}, 0) == {}


def test_cpu_is_told_by_role_and_in_all() -> None:
    before, after = {"jvm": 10.0, "workers": 2.0}, {"jvm": 12.0, "workers": 2.5}
    assert per_batch_ms(before, after, 10) == {"jvm": 200.0, "workers": 50.0, "all": 250.0}


def block(variant: str, p50: float | None, join: float | None, cpu: float) -> dict[str, Any]:
    return {
        "variant": variant,
        "batches": 10,
        "trigger_ms": {"p50": p50, "p90": p50},
        "phases_ms": {} if p50 is None else {"addBatch": p50 - 100},
        "join_s": {"p50": join, "p90": join},
        "cpu_ms": {} if p50 is None else {"jvm": cpu, "all": cpu},
    }


def test_a_variant_is_the_median_of_its_turns_beside_none_and_all() -> None:
    rows = summary(
        [
            block("off", 300, 0.5, 400),
            block("gc", 250, 0.4, 300),
            block("on", 100, 0.25, 100),
            block("on", 200, 0.25, 100),
            block("gc", 350, 0.4, 300),
            block("off", 500, 0.5, 400),
        ]
    )
    assert [row["variant"] for row in rows] == ["off", "gc", "on"]
    assert rows[1] == {
        "variant": "gc",
        "turns": [250, 350],
        "batches": 20,
        "trigger_ms": 300,
        "trigger_p90_ms": 300,
        "join_s": 0.4,
        "phases_ms": {"addBatch": 200},
        "cpu_ms": {"jvm": 300, "all": 300},
        "of_off": {"trigger": 0.75, "join": 0.8, "cpu": 0.75},
        "of_on": {"trigger": 2.0, "join": 1.6, "cpu": 3.0},
    }


def test_a_turn_without_batches_hides_no_other() -> None:
    (row,) = summary([block("gc", None, None, 0), block("gc", 350, 0.4, 300)])
    assert (row["turns"], row["trigger_ms"], row["join_s"]) == ([None, 350], 350, 0.4)
    assert (row["of_off"], row["of_on"]) == (None, None)
    (empty,) = summary([block("off", None, None, 0)])
    assert ratios(row, empty) == {"trigger": None, "join": None, "cpu": None}


# -- the workers' side ----------------------------------------------------------------------------


@pytest.fixture
def _heap() -> Iterator[None]:
    yield
    gc.unfreeze()
    batch_worker._Heap.is_thawed = False


@pytest.mark.usefixtures("_heap")
def test_a_worker_is_thawed_and_frozen_again() -> None:
    """Workers are used again by the next block: what one has switched must not stay."""
    gc.freeze()
    _, _, blob = settled(groups=1, members=2)
    expected = fold(blob, [], SETTINGS)
    assert batch_worker.fold_thawed(blob, [], SETTINGS) == expected
    assert gc.get_freeze_count() == 0
    assert batch_worker.fold_frozen(blob, [], SETTINGS) == expected
    assert gc.get_freeze_count() > 0


# -- switching ------------------------------------------------------------------------------------


def in_force(session: MagicMock) -> dict[str, object]:
    """What a coordinator that starts now finds."""
    return {
        "codegen": query.QUERY_CONF,
        "gc": coordinator.groups("coord").fold,
        "files": session.sparkContext._jsc.hadoopConfiguration().set.call_args_list[0],
        "keys": checkpoint.balanced(2, 2),
        "pages": coordinator.groups("coord").fold_pages is not None,
        "partitions": session.conf.set.call_args_list[0],
        "retained": session.conf.set.call_args_list[1],
        "fetched": query.read_inputs,
    }


#: The archive is a thread of the block's own (`batch_job.py`).
SWITCHED = tuple(lever for lever in LEVERS if lever != "archive")


@pytest.mark.parametrize("on", [(), *((lever,) for lever in SWITCHED), SWITCHED], ids="+".join)
def test_exactly_the_levers_of_a_variant_are_on(on: tuple[str, ...]) -> None:
    """A lever that is not switched would look as if it gave nothing."""
    partitions, file_system = "spark.sql.shuffle.partitions", "fs.file.impl"
    retained = "spark.sql.streaming.minBatchesToRetain"
    without = {
        "codegen": {},
        "gc": batch_worker.fold_thawed,
        "files": call(file_system, "org.apache.hadoop.fs.LocalFileSystem"),
        "keys": (0, 1),
        "pages": False,
        "partitions": call(partitions, "2"),
        "retained": call(retained, "10"),
        "fetched": query.read_inputs,
    }
    having = {
        "codegen": query.QUERY_CONF,
        "gc": batch_worker.fold_frozen,
        "files": call(file_system, "QuietLocalFileSystem"),
        "keys": checkpoint.balanced(2, 2),
        "pages": True,
        "partitions": call(partitions, "1"),
        "retained": call(retained, "2"),
        "fetched": batch_levers._fetching_more,
    }
    assert all(having[lever] != without[lever] for lever in SWITCHED)
    before = query.QUERY_CONF, coordinator.groups, checkpoint.balanced
    session = MagicMock()
    with switched(session, on):
        found = in_force(session)
    assert found == {lever: (having if lever in on else without)[lever] for lever in SWITCHED}
    assert (query.QUERY_CONF, coordinator.groups, checkpoint.balanced) == before


def test_what_is_fetched_at_once_is_an_option_of_the_source() -> None:
    """All other options stay as the job has them."""
    with patch.object(query, "read_inputs") as read:
        batch_levers._fetching_more("spark", {}, {"kafka.a": "b"}, "engine", None, 5)
    more = {"kafka.max.partition.fetch.bytes": "16777216", "kafka.receive.buffer.bytes": "1048576"}
    read.assert_called_once_with("spark", {}, {"kafka.a": "b", **more}, "engine", None, 5)


def test_the_collector_is_switched_for_pages_too() -> None:
    """The job judges by pages: what is switched for blobs alone would change nothing."""
    with switched(MagicMock(), ("gc", "pages")):
        assert coordinator.groups("coord").fold_pages is batch_worker.fold_pages_frozen
    with switched(MagicMock(), ("pages",)):
        assert coordinator.groups("coord").fold_pages is batch_worker.fold_pages_thawed


def test_workers_get_what_is_switched_by_its_name() -> None:
    """By value they would each have a copy, and the collector's state with it."""
    for function in (
        batch_worker.fold_frozen,
        batch_worker.fold_thawed,
        batch_worker.fold_pages_frozen,
        batch_worker.fold_pages_thawed,
    ):
        assert cloudpickle.loads(cloudpickle.dumps(function)) is function


# -- the load's orders ----------------------------------------------------------------------------


class Crew:
    """Members that do nothing but note what they are asked."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def settle(self) -> float:
        self._log.append("settle")
        return 0.0

    def fill(self, offsets: int) -> None:
        self._log.append(f"fill {offsets}")
        raise CannotReach("The commits of the load were not judged in time.")

    def beat(self, seconds: float, rate: float, probes: float) -> dict[str, Any]:
        self._log.append(f"beat {seconds} {rate} {probes}")
        return {"from_s": 1.0, "to_s": 2.0}

    def figures(self) -> dict[str, Any]:
        return {"probes": 3}

    def close(self) -> None:
        self._log.append("close")


def test_every_order_has_one_answer() -> None:
    """The job waits for each of them: one too few, and it waits for ever."""
    log: list[str] = []
    orders: list[dict[str, Any]] = [
        {"do": "join", "offsets": 0},
        {"do": "beat", "seconds": 5, "rate": 100, "probes": 4},
        {"do": "tell"},
        {"do": "end"},
        {"do": "join", "offsets": 7},
    ]
    lines = [json.dumps(order) for order in orders]
    found = list(batch_load.answers(lines, lambda order: Crew(log)))  # type: ignore[arg-type,return-value]
    assert found[0].keys() == {"settled_s"}
    assert found[1:4] == [{"from_s": 1.0, "to_s": 2.0}, {"probes": 3}, {}]
    assert found[4].keys() == {"failed"}
    assert log == ["settle", "beat 5 100 4", "close", "settle", "fill 7"]
