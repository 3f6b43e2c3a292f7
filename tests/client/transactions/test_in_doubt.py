"""Whether a batch is in its table: every order of writers, askers and their deaths."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlib.client.transactions.delta_commits import (
    CLAIMS_MAX,
    DAY_MS,
    DeltaFiles,
    Unreadable,
    Written,
    metadata_of,
    refuse_another,
    retention_ms,
    settle,
    tables_in,
    takes_back,
)
from coordlib.errors import AnotherTable, CannotReach, SetupError
from coordlib.history.plan import digest_of

WEEK = 7 * DAY_MS


class FakeTable:
    """A Delta table as one application sees it: its version at each version of the table."""

    uri = "file:///lake"

    def __init__(self, *versions: int | None) -> None:
        self.table = "a-table"
        self.versions: list[int | None] = list(versions or (None,))
        self.kept: str | None = None
        #: Names the application in files of commits.
        self.app = "coordlib/AbCdEfGh/orders/m-1"
        #: Versions of other applications; and which copy of the table made its commits.
        self.foreign, self.copy = set[int](), 0
        #: Table versions whose log is removed.
        self.removed = 0
        self.looks = 0
        #: Table version -> the operation that made it, of those that took rows back.
        self.operations: dict[int, str] = {}
        #: How many claims meet another commit at the same moment.
        self.conflicts = 0

    def write(self, token: int) -> bool:
        """Delta's rule: skipped unless the version is higher."""
        now = self.versions[-1]
        if now is not None and token <= now:
            return False
        self.versions.append(token)
        return True

    def others(self, count: int) -> None:
        """Commits of other applications."""
        self.versions += [self.versions[-1]] * count

    def restore(self) -> None:
        """Somebody goes back to an older version: Delta keeps what applications wrote."""
        self.others(1)
        self.operations[len(self.versions) - 1] = "RESTORE"

    # ---- what `settle` uses ---------------------------------------------------------------------

    def id(self) -> str:
        return self.table

    def retention(self) -> str | None:
        return self.kept

    def newest(self) -> int:
        return len(self.versions) - 1

    def app_version(self, version: int) -> int | None:
        self.looks += 1
        if version < self.removed:
            raise Unreadable
        return self.versions[version]

    def commit_file(self, version: int) -> str | None:
        if version < self.removed:
            return None
        app = "others" if version in self.foreign else self.app
        txn = {"appId": app, "version": self.versions[version] or 0}
        return json.dumps({"commitInfo": {"copy": self.copy}}) + "\n" + json.dumps({"txn": txn})

    def taken_back(self, after: int) -> str:
        self.looks += 1
        return next((how for at, how in self.operations.items() if at > after), "")

    def claim(self, token: int) -> None:
        if self.conflicts:
            self.conflicts -= 1
            self.others(1)
        else:
            self.write(token)


# -- which table it is ---------------------------------------------------------------------------


def known_of(table: FakeTable, version: int, behind: str = "") -> Written:
    text = table.commit_file(version)
    assert text is not None
    return Written(table.table, version, 0, digest_of(text), behind)


def test_an_old_copy_that_has_grown_again_is_refused() -> None:
    """INV-157: it has the table's id, and more versions than the table had."""
    true, copy = FakeTable(None, 5, 7), FakeTable(None, 5, 9, 11)
    copy.copy = 1
    known = known_of(true, 2)

    refuse_another(true, known, true.newest(), "")
    with pytest.raises(AnotherTable, match="has grown"):
        refuse_another(copy, known, copy.newest(), "put it back")
    with pytest.raises(AnotherTable, match="has grown"):
        settle(copy, 7, 9, 0, known)
    assert copy.versions == [None, 5, 9, 11], "and no claim was written there"


@pytest.mark.parametrize("grown", [0, 3])
def test_an_old_copy_that_lacks_the_newest_batch_alone_is_refused(grown: int) -> None:
    """INV-157: offsets are written before their batch is, so they name the version before it. Of a
    group with a batch a day that is a day in which a copy may be made."""
    true, copy = FakeTable(None, 5, 7), FakeTable(None, 5)
    known = known_of(true, 1, true.app)
    copy.others(grown)
    copy.foreign = {2, 3, 4}

    refuse_another(true, known, true.newest(), "")
    with pytest.raises(AnotherTable, match="lacks a batch"):
        refuse_another(copy, known, copy.newest(), "put it back")
    assert settle(copy, 7, 9, 0, known) == "abort", "that it lacks it is what is asked there"


def test_what_delta_has_removed_refuses_nothing() -> None:
    """A group that was stopped for longer than Delta keeps its log finds the files gone."""
    table = FakeTable(None, 5, 7)
    known = known_of(table, 1, "another application")
    table.others(3)
    table.removed = 5

    refuse_another(table, known, table.newest(), "")


def test_older_offsets_name_no_digest() -> None:
    named = 'coord-delta/1 {"file:///lake": ["a-table", 3, 0]}'

    assert tables_in(named) == {"file:///lake": Written("a-table", 3)}


def test_offsets_name_what_they_were_given() -> None:
    known = Written("a-table", 3, 1, "0123456789abcdef", "coordlib/AbCdEfGh/orders/m-1")

    assert tables_in(metadata_of({"file:///lake": known})) == {"file:///lake": known}


# -- one asker -------------------------------------------------------------------------------


def test_what_is_in_the_table_is_committed_without_a_claim() -> None:
    """The usual case after a kill: the rows are there, and the word was not said."""
    table = FakeTable(None, 7)

    assert settle(table, 7, 9, 0) == "commit"
    assert table.versions == [None, 7]


@pytest.mark.parametrize("before", [None, 3])
def test_what_is_not_there_is_shut_out_first(before: int | None) -> None:
    """The writer may only have stalled: its late commit is skipped from here on."""
    table = FakeTable(before)

    assert settle(table, 7, 9, 0) == "abort"
    assert not table.write(7)
    assert table.write(11), "its next batch, after it has begun again"


@pytest.mark.parametrize(("landed", "result"), [([3, 7], "commit"), ([3], "abort"), ([], "abort")])
@pytest.mark.parametrize("later", [0, 1, 2, 3, 60])
def test_claims_of_dead_askers_hide_nothing(landed: list[int], result: str, later: int) -> None:
    """Two of them died between their claim and their word; other queries write meanwhile."""
    table = FakeTable(None, *landed)
    for token in (9, 12):
        table.others(5)
        table.write(token)
        table.others(later)

    assert settle(table, 7, 20, 0) == result


def test_a_writer_that_comes_between_look_and_claim_is_found() -> None:
    """Its commit is the one before the claim."""

    class Racing(FakeTable):
        def claim(self, token: int) -> None:
            self.others(3)
            self.write(7)
            self.others(3)
            super().claim(token)

    assert settle(Racing(None), 7, 9, 0) == "commit"


def test_a_claim_that_meets_another_commit_is_tried_again() -> None:
    """Many queries write into one table."""
    table = FakeTable(None)
    table.conflicts = CLAIMS_MAX - 2

    assert settle(table, 7, 9, 0) == "abort"
    table.conflicts = CLAIMS_MAX
    with pytest.raises(CannotReach, match="faster"):
        settle(table, 10, 11, 0)


def test_what_delta_has_removed_is_not_guessed() -> None:
    """A claim of months ago, and the log before it is gone: an operator decides."""
    table = FakeTable(None, 7, 7, 9, 9)
    table.removed = 3

    with pytest.raises(CannotReach, match="removed") as told:
        settle(table, 7, 20, 0)

    assert "coord transactions decide" in told.value.hint


@pytest.mark.parametrize("claims", [[], [9], [9, 12]])
def test_a_batch_that_was_taken_back_is_left_to_an_operator(claims: list[int]) -> None:
    """The table was restored to what it was before: its log still says that it has the batch."""
    table = FakeTable(None, 7)
    table.others(3)
    table.restore()
    for token in claims:
        table.write(token)
        table.others(2)

    with pytest.raises(CannotReach, match="taken back by a later RESTORE") as told:
        settle(table, 7, 20, 0)

    assert "version 1 of the table" in told.value.what
    assert "coord transactions decide" in told.value.hint


@pytest.mark.parametrize("others", [0, 40])
def test_what_was_written_behind_a_restore_counts(others: int) -> None:
    """It concerns batches of before; those were decided, or are left to an operator themselves."""
    table = FakeTable(None, 3)
    table.others(2)
    table.restore()
    table.others(others)
    table.write(7)
    table.others(others)

    assert settle(table, 7, 20, 0) == "commit"


def test_a_table_that_was_made_anew_does_not_have_the_batch() -> None:
    """It was deleted with the batch in it: the batch is read again, and goes into the new one."""
    table = FakeTable(None)
    table.others(2)

    assert settle(table, 7, 9, 0) == "abort"
    assert not table.write(7), "the writer may only have stalled"


@pytest.mark.parametrize(
    ("operation", "parameters", "is_so"),
    [
        ("RESTORE", {"version": "0"}, True),
        ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}, True),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, True),
        ("REPLACE TABLE", None, True),
        ("STREAMING UPDATE", {"outputMode": "Complete", "queryId": "q"}, True),
        ("STREAMING UPDATE", {"outputMode": "Append"}, False),
        ("WRITE", {"mode": "Append", "partitionBy": "[]"}, False),
        ("DELETE", {"predicate": "x"}, False),
        ("OPTIMIZE", {}, False),
        ("CREATE TABLE", {"mode": "ErrorIfExists"}, False),
    ],
)
def test_which_operations_take_batches_back(operation: str, parameters: Any, is_so: bool) -> None:
    """In the words of Delta's own history, of Spark and of delta-rs."""
    assert takes_back(operation, parameters) is is_so


def test_deltalake_finds_a_restore(tmp_path: Path) -> None:
    """The same over a real table."""
    path, rows = str(tmp_path / "t"), pyarrow.table({"value": ["a"]})
    write_deltalake(path, rows)
    token = CommitProperties(app_transactions=[Transaction("app", 7)])
    write_deltalake(path, rows, mode="append", commit_properties=token)
    write_deltalake(path, rows, mode="append")
    assert settle(DeltaFiles(path, "app"), 7, 9, 0) == "commit"
    DeltaTable(path).restore(0)

    with pytest.raises(CannotReach, match="version 1 of the table, and was taken back"):
        settle(DeltaFiles(path, "app"), 7, 9, 0)

    token = CommitProperties(app_transactions=[Transaction("app", 8)])
    write_deltalake(path, rows, mode="append", commit_properties=token)
    assert settle(DeltaFiles(path, "app"), 8, 9, 0) == "commit"


def test_deltalake_reads_the_file_of_a_commit(tmp_path: Path) -> None:
    """The same text that Spark reads."""
    write_deltalake(tmp_path, pyarrow.table({"value": [1]}))
    table = DeltaFiles(tmp_path.as_uri(), "app")

    assert table.commit_file(0) == (tmp_path / f"_delta_log/{0:020d}.json").read_text()
    assert table.commit_file(1) is None


def test_a_claim_that_would_shut_nobody_out_is_a_defect() -> None:
    """A fetch stands behind the commit that it waits for."""
    with pytest.raises(ValueError, match="shuts nobody out"):
        settle(FakeTable(), 7, 7, 0)


def test_few_versions_of_a_long_log_are_looked_at() -> None:
    """Each costs a second of Spark."""
    table = FakeTable(None)
    table.others(100_000)
    table.write(7)
    table.others(50)
    table.write(9)
    table.others(100)

    assert settle(table, 7, 20, 0) == "commit"
    assert table.looks < 30


# -- any order -------------------------------------------------------------------------------


class Restless(FakeTable):
    """A table to which a writer comes at some moment, and others between any two calls."""

    def __init__(self, draw: Random, entry: int) -> None:
        super().__init__(None)
        self.draw = draw
        #: Looks until the writer commits; None: it never does.
        self.writes_in = draw.choice((None, *range(12)))
        self.entry = entry

    def go_on(self) -> None:
        if self.draw.random() < 0.3:
            self.others(self.draw.randrange(1, 6))
        if self.writes_in is not None:
            self.writes_in -= 1
            if self.writes_in < 0:
                self.writes_in = None
                self.write(self.entry)

    def newest(self) -> int:
        self.go_on()
        return super().newest()

    def app_version(self, version: int) -> int | None:
        self.go_on()
        return super().app_version(version)

    def claim(self, token: int) -> None:
        self.go_on()
        luck = self.draw.random()
        if luck < 0.2:
            raise CannotReach("it died")
        if luck < 0.8:
            self.write(token)
        if luck < 0.4:
            raise CannotReach("it died after that, and nobody knows")


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_all_askers_find_the_same_and_it_is_true(seed: int) -> None:
    """INV-100: writers stall, askers stall and die, in every order; Delta decides."""
    table, said = Restless(Random(seed), 10), []
    for token in range(11, 17):
        try:
            said.append(settle(table, 10, token, 0))
        except CannotReach:
            continue
    for _ in range(20):
        table.go_on()

    assert len(set(said)) <= 1
    assert not said or (said[0] == "commit") == (10 in table.versions)


def test_the_orders_meet_what_they_are_for() -> None:
    """Writers that come in time and too late, askers that find either."""
    seen = set()
    for seed in range(200):
        table = Restless(Random(seed), 10)
        try:
            result = settle(table, 10, 11, 0)
        except CannotReach:
            result = "died"
        was_late = table.writes_in is not None
        seen.add((result, was_late, 11 in table.versions))

    assert {("commit", False, True), ("commit", False, False), ("abort", True, True)} <= seen
    assert {("abort", False, True), ("died", True, True), ("died", True, False)} <= seen


# -- for how long it is known ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept_ms"),
    [
        (None, None),
        ("interval 7 days", WEEK),
        ("interval 1 week", WEEK),
        ("INTERVAL 2 WEEKS 1 day", 15 * DAY_MS),
        ("30 days", 30 * DAY_MS),
        ("interval 168 hours", WEEK),
        (" interval 10080 minutes 1 second ", WEEK + 1_000),
    ],
)
def test_how_long_a_table_knows_its_batches(text: str | None, kept_ms: int | None) -> None:
    """As Delta reads it."""
    assert retention_ms(text) == kept_ms


@pytest.mark.parametrize(
    "text", ["interval 6 days", "interval 167 hours", "interval 0 days", "", "a while", "7"]
)
def test_a_table_that_forgets_too_soon_is_refused(text: str) -> None:
    """A batch that is in the table would be written again."""
    with pytest.raises(SetupError, match="forgets too soon"):
        retention_ms(text)


@pytest.mark.parametrize(("age_ms", "is_known"), [(5 * DAY_MS, True), (6 * DAY_MS + 1, False)])
def test_what_is_nearly_forgotten_is_not_decided(age_ms: int, is_known: bool) -> None:
    """All members were away for a week; an operator decides."""
    table = FakeTable(None)
    table.kept = "interval 7 days"

    if is_known:
        assert settle(table, 7, 9, age_ms) == "abort"
        return
    with pytest.raises(CannotReach, match="forgotten"):
        settle(table, 7, 9, age_ms)
    assert table.versions == [None]
