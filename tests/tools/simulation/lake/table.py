"""A simulated Delta table: its versions, and what each application has written.

Delta's rule is in `DeltaLog.commit`. How writers come to it is what Spark and delta-rs do: each
step takes time, may fail, and is a point at which a process may die or stand still. The table may
vanish from its place, where another one may lie meanwhile (`Store.place`).
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar

from coordlib.client.spark.delta import AWAY_S, How, SparkTable, _Known
from coordlib.client.transactions.delta_commits import Unreadable, Written
from coordlib.errors import AnotherTable, CannotReach
from coordlib.history.delta_append import Append, OvertakenByAnother, Staged
from coordlib.history.plan import digest_of

T = TypeVar("T")

URI: Final = "file:///lake"
#: Where the process that uses a table may die or stand still: a writer, and one that looks.
STAGED, ACCEPTED, APPENDING, APPENDED = "staged", "accepted", "appending", "appended"
CLAIMING, CLAIMED = "claiming", "claimed"
#: What a writer or one that looks has met.
CONFLICT: Final = "write and claim at one moment"
CLAIM_LATE: Final = "claim came too late"
FAILED: Final = "table did not answer"
FAILED_BEHIND: Final = "write failed after its commit"
AWAY: Final = "table was away from its place"
ANOTHER: Final = "another table was at the place"
OLD_COPY: Final = "old copy that has grown was at the place"

#: One row for each record that was read: its topic, partition and offset.
Row = tuple[str, int, int]
#: A process comes to a point: its name.
Strike = Callable[[str], None]


class Commit(NamedTuple):
    """One version of the table: who wrote it under which token, and its rows."""

    app: str
    token: int
    rows: tuple[Row, ...]


class Conflict(Exception):
    """Another commit of the same application came first."""


class StoreAway(Exception):
    """The store of the table does not answer."""


class DeltaLog:
    """The table itself. A version is the number of a commit; version 0 made the table.

    Args:
        id_: Delta's: each table has another one.
    """

    def __init__(self, id_: str = "the table") -> None:
        self.id = id_
        self.commits: list[Commit] = [Commit("", 0, ())]

    @property
    def newest(self) -> int:
        """The newest version of the table."""
        return len(self.commits) - 1

    def app_version(self, app: str, version: int) -> int | None:
        """The application's version as of a version of the table. Raises Unreadable."""
        if not 0 <= version <= self.newest:
            raise Unreadable(f"There is no version {version}.")
        known = [each.token for each in self.commits[: version + 1] if each.app == app]
        return known[-1] if known else None

    def commit_file(self, version: int) -> str:
        """The text of a commit's file."""
        made = self.commits[version]
        txn = json.dumps({"txn": {"appId": made.app, "version": made.token}})
        return f"{json.dumps({'rows': made.rows})}\n{txn}"

    def old_copy(self) -> "DeltaLog":
        """As the table was when it was made, and then written to by others until it is longer."""
        copy = DeltaLog(self.id)
        copy.commits += [Commit("others", n, ()) for n in range(self.newest + 3)]
        return copy

    def commit(self, app: str, token: int, rows: tuple[Row, ...], seen: int) -> None:
        """One more version, by a writer that has seen the table up to there. Raises Conflict."""
        if any(each.app == app for each in self.commits[seen + 1 :]):
            raise Conflict(app)
        self.commits.append(Commit(app, token, rows))


class Snapshot:
    """Delta's, of what lay at the table's place; of version -1: nothing did."""

    def __init__(self, log: DeltaLog, version: int) -> None:
        self.log, self._version = log, version

    def version(self) -> int:
        return self._version

    def metadata(self) -> Any:
        return SimpleNamespace(id=lambda: self.log.id)


_NOTHING: Final = Snapshot(DeltaLog("nothing"), -1)


@dataclass
class Store:
    """How the table is reached, by all processes of a world."""

    #: The table that the members write to.
    log: DeltaLog
    luck: Random
    #: Whether half of all calls fail.
    fails: bool = False
    #: How long one step takes, at the most.
    step_ms: int = 200

    def __post_init__(self) -> None:
        self.met: Counter[str] = Counter()
        #: What lies at the table's place; None: nothing.
        self.place: DeltaLog | None = self.log
        #: Commits that were written into the log of another table than they were made for.
        self.astray: list[Commit] = []

    def look(self) -> Snapshot:
        """The newest version of what lies there."""
        if self.place is not self.log:
            self.met[self._what_lies_there()] += 1
        return _NOTHING if self.place is None else Snapshot(self.place, self.place.newest)

    def _what_lies_there(self) -> str:
        if self.place is None:
            return AWAY
        return OLD_COPY if self.place.id == self.log.id else ANOTHER

    def commit(self, made: Commit, seen: Snapshot) -> None:
        """A file in whatever log lies there, as Delta writes it. Raises Conflict."""
        if self.place is not seen.log:
            self.astray.append(made)
        seen.log.commit(made.app, made.token, made.rows, seen.version())

    def may_fail(self, what: str = FAILED) -> None:
        """Raises StoreAway, half of the time, while the store fails."""
        if self.fails and self.luck.random() < 0.5:
            self.met[what] += 1
            raise StoreAway(what)


@dataclass
class Access:
    """One process's way to the table.

    Args:
        wait: its thread waits so many milliseconds. Raises Gone.
        maybe_crash: it comes to a point. Raises Gone.
    """

    store: Store
    wait: Callable[[float], None]
    maybe_crash: Strike

    def step(self) -> None:
        """One call of the store takes its time, and may fail. Raises StoreAway, Gone."""
        self.wait(self.store.luck.uniform(1, self.store.step_ms))
        self.store.may_fail()


class SparkLake:
    """What stands for a SparkSession: all that is asked of it is its tables."""

    def __init__(self, access: Access) -> None:
        self.access = access


class LakeStaged(Staged):
    """`Staged` where Spark and Delta are simulated: what it refuses is the real one's."""

    def __init__(
        self, spark: SparkLake, snapshot: Snapshot, rows: tuple[Row, ...], digest: str
    ) -> None:
        self._spark: Any = spark
        self.snapshot, self._path, self.rows = snapshot, URI, rows
        self._before = digest or self._digest()

    def commit(self, what: Append) -> int:
        """Nothing else comes between the look at the table and the commit's file."""
        access, rows = self._spark.access, self.rows
        access.step()
        access.maybe_crash(APPENDING if rows else CLAIMING)
        self._refuse_another()
        try:
            access.store.commit(Commit(what.app_id, what.number, rows), self.snapshot)
        except Conflict as problem:
            access.store.met[CONFLICT if rows else CLAIM_LATE] += 1
            raise OvertakenByAnother("Another append was committed first.") from problem
        access.maybe_crash(APPENDED if rows else CLAIMED)
        access.wait(access.store.luck.uniform(1, access.store.step_ms))
        if rows:
            access.store.may_fail(FAILED_BEHIND)
        return int(self.snapshot.log.newest)

    def _digest(self) -> str | None:
        place, version = self._spark.access.store.place, self.snapshot.version()
        is_there = place is not None and version <= place.newest
        return digest_of(place.commit_file(version)) if place and is_there else None


def newest_snapshot(spark: SparkLake, path: str) -> Snapshot:
    """Stands for Delta's."""
    assert path == URI
    return spark.access.store.look()


class LakeTable(SparkTable):
    """`SparkTable` where Spark and Delta are simulated: whether a table may be made, is waited for
    or is refused, is the real one's."""

    def __init__(self, spark: SparkLake, path: str, app: str) -> None:
        assert path == URI
        self.uri, self._app, self._access = URI, app, spark.access
        self._spark: Any = spark
        self.written: Written | None = None
        self.may_wait: Callable[[], bool] = lambda: True
        self.ask_again: Callable[[], Written | None] = lambda: None
        self._seen: Snapshot | None = None
        self._known = None

    def retention(self) -> str | None:
        self._snapshot()
        return None

    def app_version(self, version: int) -> int | None:
        found: Snapshot = self.look()
        return found.log.app_version(self._app, version)

    def commit_file(self, version: int) -> str:
        log: DeltaLog = self._snapshot().log
        return log.commit_file(version)

    def taken_back(self, after: int) -> str:
        return ""

    def claim(self, token: int) -> None:
        try:
            self.commit_staged(self._staged(()), token)
        except OvertakenByAnother:
            return

    def write_files(self, rows: Any, how: How) -> Any:
        self._access.step()
        staged = self._staged(rows)
        self._access.maybe_crash(STAGED)
        return staged

    def commit_staged(self, staged: Any, token: int) -> bool:
        if staged.rows:
            self._access.maybe_crash(ACCEPTED)
        self._access.step()
        return super().commit_staged(staged, token)

    def _newest_number(self, snapshot: Snapshot) -> int | None:
        self._known = _Known(snapshot.log.id, snapshot.version(), None)
        return snapshot.log.app_version(self._app, snapshot.version())

    def _staged(self, rows: tuple[Row, ...]) -> LakeStaged:
        digest = "" if self.written is None else self.written.digest
        return LakeStaged(self._spark, self._snapshot(), rows, digest)

    def wait_for(self, step: Callable[[], T]) -> T:
        """As the real one, on virtual time."""
        for _ in range(int(AWAY_S)):
            try:
                return step()
            except AnotherTable:
                raise
            except CannotReach:
                if self.written is None or not self.may_wait():
                    raise
                self._access.wait(1_000)
        return step()

    def _make(self, rows: Any, how: How) -> None:
        self._access.step()
        if self._access.store.place is None:
            self._access.store.place = DeltaLog("made")
        self.look()

    def _is_there(self) -> bool:
        """Raises CannotReach, too; Gone."""
        try:
            self._access.step()
        except StoreAway as problem:
            raise CannotReach("The table cannot be read.", URI) from problem
        return super()._is_there()
