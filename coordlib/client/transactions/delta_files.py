"""Delta tables as deltalake opens them, for members that have no Spark.

delta-rs writes what it is told to: it does not compare an application's version with the one
before, as Spark does. So a claim is made from the version of the table that was looked at, and
fails if the table has another one by then.
"""

from typing import TYPE_CHECKING, Any, Final

from coordlib.client.transactions.in_doubt import RETENTION, Unreadable, takes_back
from coordlib.errors import CannotReach, SetupError
from coordlib.installation import how_to_install

if TYPE_CHECKING:
    from deltalake import DeltaTable

_OR_SPARK: Final = "; or let a reader with Spark join the group."


class DeltaFiles:
    """A Delta table as one application sees it (`in_doubt.Table`).

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
            mend = "If it is gone for ever: coord transactions decide"
            raise CannotReach(f"The table cannot be read: {problem}", self.uri, mend) from problem
        return table


def _deltalake(uri: str) -> Any:
    """Raises SetupError: it is not installed."""
    try:
        import deltalake
    except ImportError as problem:
        what = f"To look into a Delta table deltalake is needed: {problem}"
        raise SetupError(what, uri, how_to_install("cli") + _OR_SPARK) from problem
    return deltalake


def open_files(uri: str, app: str) -> DeltaFiles:
    """A member's opener (`client/groups/looker.py`)."""
    return DeltaFiles(uri, app)
