"""Whether a batch is in its Delta table, asked when its writer has said nothing.

The writer commits its rows under an application id of its own, with the offset of its
PendingCommit as `txnVersion`: the entry's token. It may be dead, or it may have stalled on its way
to that commit. So whoever asks first shuts it out: a commit of no rows under the same application
id, with a later token of the same log. From then on Delta refuses the writer's. What was there
before that commit is there for ever, so everybody who asks finds the same.  # INV-91, INV-100

    the application's version           the batch
    the entry's                         is in the table: commit
    lower, or none                      not yet: shut the writer out, and look again
    higher                              look at the newest version of the table at which it was not

A claim of an asker that died before it said anything hides nothing, since the last row looks below
all claims. What an application wrote Delta keeps for ever, unless the table says for how long: then
what is nearly as old is not decided here. Delta keeps it, too, where RESTORE, an overwrite or a
replacement of the table has taken the rows back: then nobody can say by the log alone whether they
are to count, and it is left to an operator. So it is where another table lies in the place of the
one that was written to, which may come back: offsets name their table (`Written`).  # INV-120

A `Table` does the IO, over Spark, or over deltalake for members that have no Spark (`DeltaFiles`).
delta-rs writes what it is told to: it does not compare an application's version with the one
before, as Spark does. So a claim is made from the version of the table that was looked at, and
fails if the table has another one by then.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import UNSET

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import Identity, offset_of
from coordlib.core.wire.transactions import ABORT, COMMIT, Result
from coordlib.errors import AnotherTable, CannotReach, CoordError, SetupError
from coordlib.history.plan import digest_of, number_in_commit
from coordlib.installation import how_to_install

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger("coordlib.client")
#: The table property that says for how long; as text of Spark's, such as `interval 7 days`.
RETENTION: Final = "delta.setTransactionRetentionDuration"
DAY_MS: Final = 86_400_000
RETENTION_MIN_MS: Final = 7 * DAY_MS
_UNITS_MS: Final = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_INTERVAL: Final = re.compile(
    rf"(?:interval)?((?:\s*\d+\s+(?:{'|'.join(_UNITS_MS)})s?)+)", re.IGNORECASE
)
_PART: Final = re.compile(r"(\d+)\s+([a-z]+?)s?(?=\s|\d|$)", re.IGNORECASE)
_METADATA: Final = "coord-delta/1 "
#: In UTF-16 code units, of which no character has more than two; see `AwaitedDecision.metadata`.
_METADATA_MAX: Final = limits.TABLE_METADATA_LENGTH_MAX
DECIDE: Final = "If it is gone for ever: coord transactions decide"
#: A claim fails when something else is committed at the same moment.
CLAIMS_MAX: Final = 20


class Table(Protocol):
    """A Delta table as one application sees it. All calls raise CannotReach, SetupError."""

    uri: str
    """Its name for all who can reach its store."""

    def id(self) -> str:
        """Delta's id of the table as it was last read."""

    def retention(self) -> str | None:
        """Its RETENTION; None: not set."""

    def newest(self) -> int:
        """The newest version of the table."""

    def app_version(self, version: int) -> int | None:
        """The application's version as of this version of the table; None: it wrote nothing.

        Raises Unreadable: Delta has removed the log up to there.
        """

    def commit_file(self, version: int) -> str | None:
        """The text of a commit's file; None: it is not there, as Delta removes the oldest."""

    def taken_back(self, after: int) -> str:
        """The newest operation behind this version that `takes_back`; empty: there is none."""

    def claim(self, token: int) -> None:
        """Commit no rows with this token, unless the application has a higher version.

        Nothing is committed when something else of the application was at the same moment.
        """


class Unreadable(Exception):
    """A version of a table is so old that its log is removed."""


class Written(NamedTuple):
    """A Delta table that a group has written to, as its offsets name it."""

    #: Delta's own: another table at the same place has another one.
    id: str
    #: A version that it had then. A table never goes back.
    version: int
    #: How many tables at this place it follows, each replaced on purpose.
    turn: int = 0
    #: Of that version: an old copy that has grown again has another one. "": not known.
    digest: str = ""
    #: The application whose commit must come behind that version; "": none has to.
    behind: str = ""


def metadata_of(tables: Mapping[str, Written]) -> str:
    """The metadata of offsets that are committed with rows in these tables, URI to table.

    It has the newest of them that have room.
    """
    kept = dict(tables)
    while kept and len(text := _METADATA + json.dumps(kept, ensure_ascii=False)) > _METADATA_MAX:
        del kept[next(iter(kept))]
    return text if kept else ""


def tables_in(metadata: str) -> dict[str, Written]:
    """The tables that an offset names; none where its metadata are somebody else's."""
    if not metadata.startswith(_METADATA):
        return {}
    try:
        found = json.loads(metadata.removeprefix(_METADATA))
        return {
            str(uri): Written(
                str(each[0]), int(each[1]), int(each[2]), *(str(more) for more in each[3:5])
            )
            for uri, each in found.items()
        }
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


def newest_of(uri: str, metadata: Iterable[str]) -> Written | None:
    """The table at a URI, by the offsets of its group; None: none was written to."""
    found = (tables_in(each).get(uri) for each in metadata)
    return max(filter(None, found), key=lambda each: (each.turn, each.version), default=None)


def refuse_another(table: Table, known: Written | None, version: int, hint: str) -> None:
    """Raises AnotherTable: the table there is not the one that is known, or an old copy of it.

    An old copy may have grown since it was put back, so its number of versions says little: it has
    other commits under these numbers.  # INV-157

    Args:
        version: the table's newest.
    """
    if known is None:
        return
    if (found := table.id()) != known.id:
        what = "Another Delta table is in the place of the one that was written to."
        raise AnotherTable(what, f"{table.uri}: table {found}, and it was {known.id}", hint)
    if version < known.version:
        what = "The Delta table has lost its newest versions: an old copy was put in its place."
        where = f"{table.uri}: version {version}, and it was at {known.version}"
        raise AnotherTable(what, where, hint)
    text = table.commit_file(known.version) if known.digest else None
    if text is not None and digest_of(text) != known.digest:
        what = "The Delta table has other commits: an old copy was put in its place, and has grown."
        where = f"{table.uri}: version {known.version} has another content than it had"
        raise AnotherTable(what, where, hint)
    if known.behind and not _is_behind(table, known, version):
        what = "The Delta table lacks a batch that was committed: an old copy is in its place."
        where = f"{table.uri}: no commit of {known.behind} behind version {known.version}"
        raise AnotherTable(what, where, hint)


def _is_behind(table: Table, known: Written, newest: int) -> bool:
    """Whether the application's commit is there, or may be: Delta removes old files."""
    for version in range(known.version + 1, newest + 1):
        text = table.commit_file(version)
        if text is None or number_in_commit(text, known.behind) is not None:
            return True
    return False


def app_id(identity: Identity, member: str) -> str:
    """The `txnAppId` of a member: no later one, of any group or log, ever has it."""
    return f"coordlib/{identity.incarnation}/{identity.group}/{member}"


def takes_back(operation: str, parameters: Mapping[str, Any] | None) -> bool:
    """Whether a commit removes what earlier ones have written, by the words of Delta's history.

    Rows that DELETE, UPDATE or MERGE change were in the table, so their batch counts.
    """
    modes = {str(each).upper() for each in (parameters or {}).values()}
    is_overwrite = operation in ("WRITE", "STREAMING UPDATE") and modes & {"OVERWRITE", "COMPLETE"}
    return operation in ("RESTORE", "CLONE") or "REPLACE TABLE" in operation or bool(is_overwrite)


def retention_ms(text: str | None) -> int | None:
    """For how long Delta keeps what an application wrote; None: for ever.

    Raises SetupError: too short to rely on, or in words that are not known.
    """
    if text is None:
        return None
    found = _INTERVAL.fullmatch(text.strip())
    parts = _PART.findall(found[1]) if found else []
    kept_ms = sum(int(number) * _UNITS_MS[unit.lower()] for number, unit in parts)
    if kept_ms < RETENTION_MIN_MS:
        what = "The table forgets too soon which batches it has."
        hint = f"Unset the table property {RETENTION}, or set it to 'interval 7 days' or more."
        raise SetupError(what, f"{RETENTION} = {text!r}", hint)
    return kept_ms


def settle(
    table: Table, entry: int, claim: int, age_ms: int, known: Written | None = None
) -> Result:
    """Shut the writer of an entry out, and find whether its batch is in the table.

    Args:
        table: as the entry's sender sees it.
        entry: the entry's token.
        claim: a later offset of the same log, at which the entry was not decided yet: the sender
            has no other entry until then, so all its later tokens are above.
        age_ms: how long ago the entry was made, within some minutes.
        known: the table that the entry's sender was to write to; None: it named none.

    Raises:
        CannotReach: the table does not answer, it is another one, or its log is removed.
        SetupError: the table is not one of which this can be known.
    """
    if claim <= entry:
        raise ValueError(f"A claim at {claim} shuts nobody out that writes at {entry}.")
    kept_ms = retention_ms(table.retention())
    if kept_ms is not None and age_ms > kept_ms - DAY_MS:
        what = "The table may have forgotten by now whether it has the batch."
        hint = "Look for the batch's rows, then: coord transactions decide"
        raise CannotReach(what, f"{RETENTION} = {table.retention()!r}", hint)
    if known is not None:
        known = known._replace(behind="")  # whether this very commit is there is the question
    below = -1
    for _ in range(CLAIMS_MAX):
        newest = table.newest()
        refuse_another(table, known, newest, DECIDE)
        found = table.app_version(newest)
        if found is not None and found > entry:
            at, found = _before_claims(table, entry, below, newest)
            return _committed(table, entry, at, newest) if found == entry else ABORT
        if found == entry:
            return _committed(table, entry, newest, newest)
        below = newest
        table.claim(claim)
    what = f"Other writers are always faster: {CLAIMS_MAX} claims have failed."
    raise CannotReach(what, "Delta table", "It is tried again.")


def _committed(table: Table, entry: int, at: int, newest: int) -> Result:
    """The batch was committed, as of the table version `at`. Raises CannotReach: and taken back."""
    version = _commit_of(table, entry, at)
    how = table.taken_back(version) if version < newest else ""
    if how:
        what = f"The batch is version {version} of the table, and was taken back by a later {how}."
        hint = "Look whether its rows are to count, then: coord transactions decide"
        raise CannotReach(what, "Delta table", hint)
    return COMMIT


def _commit_of(table: Table, entry: int, at: int) -> int:
    """The oldest table version that has the entry's commit; `at` is one that has it."""
    below, is_known, step = -1, False, 1
    while at - below > 1:
        look = (at + below) // 2 if is_known else max(at - step, 0)
        step *= 2
        if _version_at(table, look) == entry:
            at = look
        else:
            below, is_known = look, True
    return at


def _version_at(table: Table, at: int) -> int | None:
    """The application's version there. Raises CannotReach: that part of the log is removed."""
    try:
        return table.app_version(at)
    except Unreadable as problem:
        what = f"Version {at} of the table is removed, and with it what could be known."
        hint = "Look for the batch's rows, then: coord transactions decide"
        raise CannotReach(what, "Delta table", hint) from problem


def _before_claims(table: Table, entry: int, below: int, above: int) -> tuple[int, int | None]:
    """The newest table version at which the application's was not above the entry's, and that.

    Args:
        below: a table version at which it was not; -1: before the table was made.
        above: one at which it is.
    """
    step, is_known = 1, below >= 0
    found: int | None = table.app_version(below) if is_known else None
    while above - below > 1:
        # Claims are young, so it goes back in growing steps until it is below them.
        at = (above + below) // 2 if is_known else max(above - step, 0)
        step *= 2
        version = _version_at(table, at)
        if version is not None and version > entry:
            above = at
        else:
            below, found, is_known = at, version, True
    return below, found


_OR_SPARK: Final = "; or let a reader with Spark join the group."


class DeltaFiles:
    """A Delta table as one application sees it (`Table`).

    Args:
        uri: as its writer has named it.
        app: the `txnAppId`.
        lake: the module deltalake, or what stands for it; None: it is imported.

    Raises:
        CannotReach: there is no such table, or it cannot be read.
        SetupError: deltalake is not installed.
    """

    def __init__(self, uri: str, app: str, lake: Any = None) -> None:
        self._lake, self.uri, self._app = lake or _deltalake(uri), uri, app
        self._table = self._open()

    def id(self) -> str:
        return str(self._table.metadata().id)

    def retention(self) -> str | None:
        found: dict[str, Any] = self._table.metadata().configuration
        return found.get(RETENTION)

    def newest(self) -> int:
        self._table = self._open()
        return int(self._table.version())

    def app_version(self, version: int) -> int | None:
        if version == self._table.version():
            now: int | None = self._table.transaction_version(self._app)
            return now
        try:
            then = self._lake.DeltaTable(self.uri, version=version)
            found: int | None = then.transaction_version(self._app)
        except self._lake.exceptions.DeltaError as problem:
            raise Unreadable(str(problem)) from problem
        return found

    def commit_file(self, version: int) -> str | None:
        # What `deltalake.fs` makes of it needs pyarrow.
        files = self._lake._internal.DeltaFileSystemHandler.from_table(self._table._table)
        try:
            file = files.open_input_file(f"_delta_log/{version:020d}.json")
        except FileNotFoundError:
            return None
        return bytes(file.read(file.size())).decode()

    def taken_back(self, after: int) -> str:
        for row in self._table.history(int(self._table.version()) - after):
            is_later = int(row["version"]) > after
            if is_later and takes_back(row["operation"], row.get("operationParameters")):
                return str(row["operation"])
        return ""

    def claim(self, token: int) -> None:
        table = self._table
        now = table.transaction_version(self._app)
        if now is not None and now >= token:
            return
        there = self._open()
        if there.metadata().id != table.metadata().id or there.version() != table.version():
            return  # delta-rs would write its commit's file behind whatever lies there by now
        claim = self._lake.CommitProperties(
            app_transactions=[self._lake.Transaction(self._app, token)],
            max_commit_retries=0,  # from this very version of the table, or not at all
        )
        try:
            table.create_write_transaction([], "append", table.schema(), commit_properties=claim)
        except self._lake.exceptions.CommitFailedError:
            return  # the next look shows what has come first
        except (self._lake.exceptions.DeltaError, OSError) as problem:
            raise CannotReach(f"The table takes no commit: {problem}", self.uri) from problem

    def _open(self) -> "DeltaTable":
        try:
            table: DeltaTable = self._lake.DeltaTable(self.uri)
        except (self._lake.exceptions.DeltaError, OSError, ValueError) as problem:
            what = f"The table cannot be read: {problem}"
            raise CannotReach(what, self.uri, DECIDE) from problem
        return table


def _deltalake(uri: str) -> Any:
    """Raises SetupError: it is not installed."""
    try:
        import deltalake
    except ImportError as problem:
        what = f"To look into a Delta table deltalake is needed: {problem}"
        raise SetupError(what, uri, how_to_install("cli") + _OR_SPARK) from problem
    return deltalake


#: Opens the table at a path or URI, as the application with this id sees it.
Opener = Callable[[str, str], Table]


class DeltaCommitChecker:
    """Finds out for one member what became of other members' batches.

    Args:
        feed: the member's own.
        now_ms: the member's clock.
        spawn: runs a look; if it raises, the member fails.
    """

    def __init__(
        self,
        identity: Identity,
        feed: Callable[[sg.Input], None],
        now_ms: Callable[[], int],
        spawn: Callable[[Callable[[], None]], None],
    ) -> None:
        self._identity, self._feed, self._now_ms = identity, feed, now_ms
        #: A reader with Spark puts its own here.
        self.opener: Opener = DeltaFiles
        #: Tests have time that stands still, and run a look themselves.
        self.spawn = spawn
        #: Why something could not be found out; "": nothing of the kind, or it was since.
        self.trouble = ""

    def begin(self, look: sg.CheckCommit) -> None:
        """Look without waiting; what was found is fed to the member."""
        self.spawn(partial(self._look, look))

    def _look(self, look: sg.CheckCommit) -> None:
        entry = look.awaited
        result = None
        try:
            table, member = entry.table or "", entry.member or ""
            since_ms = 0 if entry.since_ms is UNSET else entry.since_ms
            opened = self.opener(table, app_id(self._identity, member))
            age_ms = int(time.time() * 1000) - since_ms
            known = newest_of(table, [entry.metadata or ""])
            result = settle(opened, offset_of(entry.key), look.token, age_ms, known)
            self.trouble = ""
            _log.info("%s, an undecided batch, is decided by %s: %s", entry.key, table, result)
        except CoordError as problem:
            self._failed(entry.key, str(problem))
        except Exception as problem:  # noqa: BLE001  of Spark, of deltalake, of any store
            self._failed(entry.key, repr(problem)[:500])
        finally:
            self._feed(sg.CommitChecked(self._now_ms(), entry.key, result))

    def _failed(self, key: str, why: str) -> None:
        self.trouble = f"Offsets wait for {key}, which cannot be looked for: {why}"
        _log.warning("group %s: %s", self._identity.group, self.trouble)
