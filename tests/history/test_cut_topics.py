"""The archive's topics lose records: at the begin, in the middle, at the end, all; or are cut and
grow again. Its topics are on a broker whose disk is put back while it is down.  # INV-152"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from coordlib.errors import CoordError, StartRefused
from coordlib.history.sql import query_tables
from coordlib.kafka import logs
from tests.history.rows import a_life_of_a_group
from tests.history.test_archive import EVENT_COUNT, Topics
from tests.stack.cut import cut_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordlib.history.archive import Archive
    from coordlib.history.plan import ArchiveOptions
    from coordlib.local.broker import Broker

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1_200)]

#: Events of the first transaction, behind which its end stands.
FIRST: Final = 6
#: case -> where its topics are cut, by partition; and whether they grow again beyond what was read.
CASES: Final[dict[str, tuple[dict[str, int], bool]]] = {
    "shorter": ({"events-0": FIRST + 1, "committed-0": 0}, False),
    "regrown": ({"events-0": FIRST + 1, "lag-0": 0}, True),
    "whole": ({}, True),
}


@dataclass
class Case:
    topics: Topics
    options: "ArchiveOptions"
    #: It has read all, and saw nothing of what came then.
    running: "Archive"


def _written(topics: Topics, *parts: slice) -> None:
    for part in parts:
        topics.write(a_life_of_a_group(), part)


@pytest.fixture(scope="module")
def cases(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Case]]:
    from coordlib.history.archive import Archive
    from coordlib.local.broker import Broker
    from coordlib.local.jars import ensure_jars

    folder = tmp_path_factory.mktemp("cut")
    broker = Broker(folder / "broker", ensure_jars().broker)
    broker.start()
    found: dict[str, Case] = {}
    for name in CASES:
        topics = Topics(broker)
        _written(topics, slice(0, FIRST), slice(FIRST, None))
        options = topics.options(folder / name)
        archive = Archive(spark, options)
        archive.catch_up()
        found[name] = Case(topics, options, archive)
    broker.stop()
    for name, (cuts, _) in CASES.items():
        for partition, end in cuts.items():
            cut_log(broker.home / "segments", f"{found[name].topics.prefix}.{partition}", end)
    broker.start()
    for name, (_, is_regrown) in CASES.items():
        found[name].topics.open_producer()
        for _ in range(3 if is_regrown else 0):
            _written(found[name].topics, slice(None))
    yield found
    broker.stop()


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    from coordlib.history.topics_read import ArchivedTopics

    monkeypatch.setattr(ArchivedTopics, "wait", lambda _: None)


def _count(options: "ArchiveOptions") -> int:
    (row,) = query_tables(options.tables, "SELECT count(*) FROM events").rows
    return int(row[0])


def _lost(options: "ArchiveOptions") -> list[tuple[object, ...]]:
    sql = "SELECT topic, from_offset, reason FROM lost_history ORDER BY topic"
    rows = query_tables(options.tables, sql).rows
    return [(str(topic).partition(".")[2], first, why) for topic, first, why in rows]


def test_another_leader_alone_is_no_loss(cases: dict[str, Case]) -> None:
    """The broker was restarted, and the logs are whole."""
    case = cases["whole"]
    case.running.catch_up()

    assert _count(case.options) == 4 * EVENT_COUNT
    assert _lost(case.options) == []


def test_a_topic_that_is_cut_while_it_is_read_is_not_written(
    cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the comparison and Spark's reading."""
    case = cases["regrown"]
    opened = case.running._opened
    assert opened is not None
    topics = opened[0]
    with monkeypatch.context() as patch:
        patch.setattr(topics, "compared", lambda _: (topics.bounds(), []))
        with pytest.raises(CoordError, match="while it was read"):
            case.running.turn()

    assert _count(case.options) == EVENT_COUNT


@pytest.mark.parametrize("name", ["shorter", "regrown"])
def test_a_topic_that_was_cut_is_refused_by_name_until_that_is_accepted(
    spark: "SparkSession", cases: dict[str, Case], name: str
) -> None:
    """What stands at offsets that were read was taken for what had been read: nobody was told. Now
    the tables name the place, and whatever comes behind it is in them.

    Samples of lag hold nothing up. Where their topic was shorter, they were read again from the
    beginning, and stood twice in the table.
    """
    from coordlib.history.archive import Archive

    cuts, is_regrown = CASES[name]
    case = cases[name]

    for archive in (case.running, Archive(spark, case.options)):
        with pytest.raises(StartRefused, match="events, partition 0") as refused:
            archive.turn()
        assert "--accept-loss" in refused.value.hint
        assert ("another record is there" in refused.value.where) == is_regrown
        assert ("committed, partition 0, offsets 0" in refused.value.where) != is_regrown
        assert "lag," not in refused.value.where
    assert _count(case.options) == EVENT_COUNT
    accepting = Archive(spark, replace(case.options, accepts_loss=True))
    accepting.catch_up()
    after = _count(case.options)
    _written(case.topics, slice(None))
    Archive(spark, case.options).catch_up()

    lost = _lost(case.options)
    assert [topic for topic, *_ in lost] == sorted(each.partition("-")[0] for each in cuts)
    why = logs.Why.OTHER if is_regrown else logs.Why.SHORTER
    assert {reason for *_, reason in lost} == {str(why)}
    if not is_regrown:
        assert [first for _, first, _ in lost] == [0, FIRST + 1]
    assert _count(case.options) == after + EVENT_COUNT


def test_what_is_removed_behind_the_archive_is_not_missed(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    """At the begin, in the middle, and all that was read."""
    from coordlib.history.archive import Archive

    topics = Topics(broker)
    _written(topics, slice(0, FIRST), slice(FIRST, None))
    options = topics.options(tmp_path)
    Archive(spark, options).catch_up()
    for times, before in enumerate([1, FIRST, EVENT_COUNT + 2]):
        topics.delete_before("events", 0, before)
        _written(topics, slice(0, FIRST))
        Archive(spark, options).catch_up()

        assert _count(options) == EVENT_COUNT + (times + 1) * FIRST
    assert _lost(options) == []
