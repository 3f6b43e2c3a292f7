"""A simulated Delta table: its versions, and what each application has written.

Delta's rule is in `DeltaLog.commit`. How writers come to it is what Spark and delta-rs do: each
step takes time, may fail, and is a point at which a process may die or stand still.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from coordlib.client.transactions.in_doubt import Unreadable
from coordlib.errors import CannotReach

URI: Final = "file:///lake"
#: Where the process that uses a table may die or stand still: a writer, and one that looks.
STAGED, ACCEPTED, APPENDING, APPENDED = "staged", "accepted", "appending", "appended"
CLAIMING, CLAIMED = "claiming", "claimed"
#: What a writer or one that looks has met.
CONFLICT: Final = "write and claim at one moment"
CLAIM_LATE: Final = "claim came too late"
FAILED: Final = "table did not answer"
FAILED_BEHIND: Final = "write failed after its commit"

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
    """The table itself. A version is the number of a commit; version 0 made the table."""

    def __init__(self) -> None:
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

    def commit(self, app: str, token: int, rows: tuple[Row, ...], seen: int) -> None:
        """One more version, by a writer that has seen the table up to there. Raises Conflict."""
        if any(each.app == app for each in self.commits[seen + 1 :]):
            raise Conflict(app)
        self.commits.append(Commit(app, token, rows))


@dataclass
class Store:
    """How the table is reached, by all processes of a world."""

    log: DeltaLog
    luck: Random
    #: Whether half of all calls fail.
    fails: bool = False
    #: How long one step takes, at the most.
    step_ms: int = 200

    def __post_init__(self) -> None:
        self.met: Counter[str] = Counter()

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
        strike: it comes to a point. Raises Gone.
    """

    store: Store
    wait: Callable[[float], None]
    strike: Strike

    def step(self) -> None:
        """One call of the store takes its time, and may fail. Raises StoreAway, Gone."""
        self.wait(self.store.luck.uniform(1, self.store.step_ms))
        self.store.may_fail()

    def write(self, app: str, token: int, rows: tuple[Row, ...], seen: int | None = None) -> bool:
        """As Spark writes: whether there was a commit. Raises Conflict, StoreAway, Gone.

        Args:
            seen: the table's version that it was decided by; None: the newest one now.
        """
        log = self.store.log
        self.step()
        seen = log.newest if seen is None else seen
        now = log.app_version(app, seen)
        if now is not None and now >= token:
            return False
        self.step()
        self.strike(APPENDING if rows else CLAIMING)
        log.commit(app, token, rows, seen)
        self.strike(APPENDED if rows else CLAIMED)
        self.wait(self.store.luck.uniform(1, self.store.step_ms))
        if rows:
            self.store.may_fail(FAILED_BEHIND)
        return True


class SparkLake:
    """What stands for a SparkSession: all that is asked of it is its tables."""

    def __init__(self, access: Access) -> None:
        self.access = access


class LakeTable:
    """Stands for `SparkTable`, with its constructor: a table as one application sees it."""

    uri = URI

    def __init__(self, spark: SparkLake, path: str, app: str) -> None:
        assert path == URI
        self._access, self._app, self._log = spark.access, app, spark.access.store.log

    def retention(self) -> str | None:
        self._look()
        return None

    def newest(self) -> int:
        self._look()
        return self._log.newest

    def app_version(self, version: int) -> int | None:
        self._look()
        return self._log.app_version(self._app, version)

    def taken_back(self, after: int) -> str:
        return ""

    def prepare(self, rows: Any) -> None:
        """It is there."""

    def stage(self, rows: tuple[Row, ...]) -> "LakeBatch":
        self._access.step()
        batch = LakeBatch(self._access, self._app, rows, self._log.newest)
        self._access.strike(STAGED)
        return batch

    def claim(self, token: int) -> None:
        try:
            self._access.write(self._app, token, ())
        except Conflict:
            self._access.store.met[CLAIM_LATE] += 1

    def _look(self) -> None:
        """Raises CannotReach, Gone."""
        try:
            self._access.step()
        except StoreAway as problem:
            raise CannotReach("The table cannot be read.", URI) from problem


class LakeBatch:
    """Stands for `StagedBatch`: rows that are written, and in no version of the table yet.

    Args:
        seen: the table's version that the writer goes by.
    """

    def __init__(self, access: Access, app: str, rows: tuple[Row, ...], seen: int) -> None:
        self._access, self._app, self._rows, self._seen = access, app, rows, seen

    def commit(self, token: int) -> bool:
        self._access.strike(ACCEPTED)
        try:
            return self._access.write(self._app, token, self._rows, self._seen)
        except Conflict:
            self._access.store.met[CONFLICT] += 1
            return False
