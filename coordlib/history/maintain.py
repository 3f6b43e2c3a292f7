"""Upkeep of the tables: drop what was kept long enough, put dates that are over in order, delete
files that nothing needs, and write a checkpoint of each table's log.

It may run beside an archive, and beside itself: each step is one commit of Delta's, and one that
another writer forestalled is begun again with what is there then. Files of the day that goes on
are the archive's own to pack. No step changes the rows that are kept.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from coordlib.errors import AnotherTable, CoordError, SetupError
from coordlib.history.delta_files import local_folder, open_table
from coordlib.history.plan import digest_of
from coordlib.history.rewriting import Overtaken, Replacement, Rewriter, engine
from coordlib.history.sql import tables_in
from coordlib.history.tables import CALLED, EVENTS, path_of

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable

#: Files that no version needs are deleted after it, Delta's own default: no query runs longer.
VACUUM_AFTER: Final = timedelta(days=7)
#: Of one commit: the archive reads the commits of others, so there are few; and what is lost when
#: another writer is first is little.
DATES_PER_COMMIT: Final = 30
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What was done to a table; in a dry run what would be, and the files are as they were."""

    table: str
    dropped_rows: int
    #: Dates that were written anew; of a table without dates at most one.
    rewritten: int
    deleted_files: int
    files: int
    bytes: int


def maintain(
    tables_dir: str,
    keep: Mapping[str, timedelta],
    *,
    prefix: str | None = None,
    now: datetime | None = None,
    is_dry_run: bool = False,
) -> list[Maintained]:
    """Maintain all tables of a history.

    Args:
        tables_dir: the folder that holds them, on this machine.
        keep: how long what is kept, as `keeping.kept` reads it; what is absent is kept for ever.
        prefix: of the topics that must have been archived here; None: of any.

    Raises:
        CannotReach: there is no history.
        SetupError: they are tables of another prefix, or cannot be maintained from here.
        CoordError: another writer was always first. What was done stays.
    """
    opened = tables_in(tables_dir)
    if prefix is not None:
        _require_prefix(opened[EVENTS], prefix)
    today = (now or datetime.now(UTC)).date()
    with engine() as connection:
        return [
            _Upkeep(connection, name, path_of(tables_dir, name), table, today, is_dry_run)(
                keep.get(CALLED[name])
            )
            for name, table in opened.items()
        ]


def _require_prefix(events: "DeltaTable", prefix: str) -> None:
    if events.file_uris() and events.transaction_version(f"{prefix}-archive") is None:
        raise SetupError(
            "These tables are of another prefix.",
            f"{events.table_uri}: no archive of the prefix {prefix} has written there",
            "Check --tables and --prefix.",
        )


class _Upkeep:
    """One table and its steps."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: str,
        path: str,
        table: "DeltaTable",
        today: date,
        is_dry_run: bool,
    ) -> None:
        self._connection, self._name, self._path = connection, name, path
        #: Of the table that was there at the beginning, as of the newest look.
        self._seen = self._look(table)
        self._today, self._is_dry_run = today, is_dry_run
        self._dropped, self._rewritten = 0, set[date | None]()

    def __call__(self, kept: timedelta | None) -> Maintained:
        if kept is not None:
            self._often(lambda: self._drop(kept))
        self._often(self._order)
        deleted = self._vacuum()
        table = self._open()
        if not self._is_dry_run:
            table.create_checkpoint()
        left = self._rewriter(table).files
        return Maintained(
            table=self._name,
            dropped_rows=self._dropped,
            rewritten=len(self._rewritten),
            deleted_files=deleted,
            files=len(left),
            bytes=sum(file.size for file in left),
        )

    def _drop(self, kept: timedelta) -> None:
        until = datetime.combine(self._today, datetime.min.time(), UTC) - kept
        self._rewrite("drop", lambda rewriter: rewriter.superseded(until))

    def _order(self) -> None:
        self._rewrite("order", lambda rewriter: rewriter.unordered(self._today))

    def _rewrite(self, why: str, plan: Callable[[Rewriter], list[Replacement]]) -> None:
        """Write dates anew, a few in each commit. Each commit is of the version that it was planned
        on: a file that another writer has replaced since would otherwise be doubled, and not be a
        conflict. What was committed is counted at once: a later commit may come too late."""
        done = set[date | None]()
        while True:
            some = self._next(why, plan, done)
            dates = {each.files[0].date for each in some}
            done |= dates
            self._rewritten |= dates
            self._dropped += sum(each.dropped for each in some)
            if self._is_dry_run or len(some) < DATES_PER_COMMIT:
                return

    def _next(
        self, why: str, plan: Callable[[Rewriter], list[Replacement]], done: Set[date | None]
    ) -> list[Replacement]:
        """Write the next dates anew; in a dry run nothing changes, and all of them are next."""
        rewriter = self._rewriter(self._open())
        left = [each for each in plan(rewriter) if each.files[0].date not in done]
        if self._is_dry_run:
            return left
        some = left[:DATES_PER_COMMIT]
        if some:
            rewriter.replace(some, why)
        return some

    def _vacuum(self) -> int:
        """Delete what no version of the last days needs; else nothing is committed."""
        hours = VACUUM_AFTER // timedelta(hours=1)
        unneeded = self._open().vacuum(hours, dry_run=True, full=True)
        if unneeded and not self._is_dry_run:
            self._open().vacuum(hours, dry_run=False, full=True)
        return len(unneeded)

    def _often(self, step: Callable[[], None]) -> None:
        """Take a step anew where another writer was first."""
        overtaken: Overtaken | None = None
        for _ in range(ATTEMPTS):
            try:
                return step()
            except Overtaken as problem:
                overtaken = problem
        raise CoordError(
            "Another writer always replaced the same files first.",
            self._path,
            "Let one coord history maintain run at a time, then run it again: what was done stays.",
        ) from overtaken

    def _open(self) -> "DeltaTable":
        """The table as it is now. To tidy up another one by this one's log, or to write a
        checkpoint into its log, would leave it without its rows.  # INV-120"""
        table = open_table(self._path)
        if table is None:
            raise CoordError(
                "A table was deleted while it was maintained.", self._path, "Check --tables."
            )
        seen, found = self._seen, self._look(table)
        # An old copy that has grown again has other commits under these numbers.  # INV-157
        then = self._digest_of(seen.version)
        is_copy = found.version < seen.version or then not in ("", seen.digest)
        if found.id != seen.id or is_copy:
            raise AnotherTable(
                "Another table, or an old copy, has come to the place of the one that was "
                "maintained.",
                f"{self._path}: table {found.id}, version {found.version}, and it was {seen.id}, "
                f"version {seen.version}",
                "Run it again when the right one is there: what was done stays.",
            )
        self._seen = found
        return table

    def _look(self, table: "DeltaTable") -> "_Seen":
        version = table.version()
        return _Seen(str(table.metadata().id), version, self._digest_of(version))

    def _digest_of(self, version: int) -> str:
        """Of a commit's file; "": it is not there, or not on this machine."""
        file = Path(local_folder(self._path) or "", "_delta_log", f"{version:020d}.json")
        return digest_of(file.read_text()) if file.exists() else ""

    def _rewriter(self, table: "DeltaTable") -> Rewriter:
        return Rewriter(self._connection, self._name, table, self._open)


class _Seen(NamedTuple):
    """Which table it was."""

    #: Delta's.
    id: str
    version: int
    digest: str
