"""Versions of idempotent writes, and what `Share.write` hands to Delta."""

from typing import Any, Self

import pytest

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.spark import delta_writes as spark_share
from coordlib.client.spark.delta import How
from coordlib.client.spark.delta_writes import BATCHES_MAX, Share
from coordlib.client.transactions.delta_commits import Written
from coordlib.errors import CoordError
from tests.client.world import t

Row = tuple[str, int, str]


class FakeColumn:
    def __init__(self, name: str, wanted: Any = None) -> None:
        self.wanted = {name: wanted}

    def __eq__(self, other: object) -> Any:
        (name,) = self.wanted
        return FakeColumn(name, other)

    def __hash__(self) -> int:
        return id(self)

    def __and__(self, other: "FakeColumn") -> "FakeColumn":
        self.wanted |= other.wanted
        return self


class FakeFrame:
    """Rows (topic, partition, value), and what was done to them."""

    def __init__(
        self, rows: list[Row], table: list[Any] | None = None, given: list[Any] | None = None
    ) -> None:
        self.rows, self.table = rows, table if table is not None else []
        self.is_cached = False
        #: Of each write: what was taken to be there, and how it was to be written.
        self.given: list[Any] = given if given is not None else []

    def persist(self) -> None:
        self.is_cached = True

    def unpersist(self) -> None:
        self.is_cached = False

    def __getitem__(self, name: str) -> FakeColumn:
        return FakeColumn(name)

    def where(self, found: FakeColumn) -> "FakeFrame":
        wanted = (found.wanted["topic"], found.wanted["partition"])
        return FakeFrame([row for row in self.rows if row[:2] == wanted], self.table, self.given)

    def select(self, *_names: str) -> Self:
        return self

    def distinct(self) -> Self:
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"topic": row[0], "partition": row[1]} for row in self.rows]

    @property
    def sparkSession(self) -> Self:  # noqa: N802  # Spark's name
        return self


class FakeTable:
    """Stands for `SparkTable`: what was written goes to the frame's own table."""

    def __init__(self, frame: FakeFrame, path: str, app: str) -> None:
        self._frame, self.uri, self._app = frame, path, app
        self.written: Written | None = None

    def write(self, rows: FakeFrame, version: int, how: How) -> None:
        values = [row[2] for row in rows.rows]
        rows.table.append((self.uri, self._app, version, values))
        rows.given.append((self.written, how))
        self.written = Written("a-table", version)


@pytest.fixture(autouse=True)
def _tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_share, "SparkTable", FakeTable)


def share(**more: Any) -> Share:
    fences = dict.fromkeys(t(0, 1, 2), 40)
    given: dict[str, Any] = {
        "group": "orders",
        "member": "m-1",
        "generation": 3,
        "log": "AbCdEfGh-1",
        "fences": fences,
        "checkpoint": "c",
        "batches_before": 0,
        "may_work": lambda: True,
    }
    return Share(**given | more)


T0 = TopicPartition("t", 0)


def test_only_partitions_with_rows_are_written_each_under_its_own_application() -> None:
    """A commit to Delta takes a second or more: one per partition that has none would be waste."""
    frame: Any = FakeFrame([("t", 0, "a"), ("t", 2, "b"), ("t", 0, "c")])

    share().write(frame, "here", 4)

    version = 40 * 2**24 + 5
    assert frame.table == [
        ("here", "coordlib/AbCdEfGh-1/orders/t/0", version, ["a", "c"]),
        ("here", "coordlib/AbCdEfGh-1/orders/t/2", version, ["b"]),
    ]
    assert not frame.is_cached


def test_what_the_user_keeps_in_memory_stays_there() -> None:
    """He writes the same batch to a second table."""
    frame: Any = FakeFrame([("t", 0, "a")])
    frame.persist()

    share().write(frame, "here", 0)

    assert frame.is_cached


def test_who_is_fenced_in_the_middle_writes_nothing_more() -> None:
    answers = iter([True, False])
    frame: Any = FakeFrame([("t", 0, "a"), ("t", 1, "b")])

    with pytest.raises(MemberFenced, match="m-1"):
        share(may_work=lambda: next(answers)).write(frame, "here", 0)

    assert [row[3] for row in frame.table] == [["a"]]
    assert not frame.is_cached


def test_rows_of_other_partitions_are_refused_and_not_left_out() -> None:
    """The query renamed a column: without this its rows would be lost in silence."""
    frame: Any = FakeFrame([("t", 0, "a"), ("t-clean", 0, "b")])

    with pytest.raises(CoordError, match="t-clean-0"):
        share().write(frame, "here", 0)

    assert frame.table == []


def test_a_claim_writes_no_rows_below_the_first_batch_and_above_every_former_owner() -> None:
    empty: Any = FakeFrame([])

    share(batches_before=7).claim(empty, "here")

    assert [(row[1][-1], row[3]) for row in empty.table] == [("0", []), ("1", []), ("2", [])]
    (version,) = {row[2] for row in empty.table}
    former = share(fences={T0: 39}, batches_before=0)
    assert former.txn_version(T0, BATCHES_MAX - 1) < version
    assert version < share(batches_before=7).txn_version(T0, 0)


def test_a_claim_of_one_who_lost_it_is_refused() -> None:
    empty: Any = FakeFrame([])

    with pytest.raises(MemberFenced):
        share(may_work=lambda: False).claim(empty, "here")

    assert empty.table == []


def test_a_log_that_was_made_anew_has_applications_of_its_own() -> None:
    """Its offsets begin at 0: under the old names all writes would be skipped in silence."""
    assert share().txn_app_id(T0) != share(log="ZyXwVuTs-1").txn_app_id(T0)


def test_there_is_an_end_to_versions() -> None:
    """The next number would be the first of the next fence: another owner's."""
    assert share().txn_version(T0, BATCHES_MAX - 1) < 41 << 24
    with pytest.raises(CoordError, match="Start the reader anew"):
        share().txn_version(T0, BATCHES_MAX)
