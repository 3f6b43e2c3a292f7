"""Stands for the module `deltalake`, as far as `DeltaFiles` uses it, over a simulated table.

delta-rs commits what it is told to, and does not compare versions of an application; with no
retries a commit fails unless it makes the very next version of the table.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coordlib.client.transactions.delta_commits import Unreadable
from tests.tools.simulation.lake.table import (
    CLAIM_LATE,
    CLAIMED,
    CLAIMING,
    Access,
    Commit,
    DeltaLog,
    Snapshot,
    StoreAway,
)


class DeltaError(Exception):
    """Base of what deltalake raises."""


class CommitFailedError(DeltaError):
    """Another commit came first."""


@dataclass
class Transaction:
    """What an application has written."""

    app_id: str
    version: int


@dataclass
class CommitProperties:
    """How a commit is to be made."""

    app_transactions: list[Transaction]
    max_commit_retries: int


class Files:
    """What reads the files of a table that was opened."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log

    @classmethod
    def from_table(cls, log: DeltaLog) -> "Files":
        return cls(log)

    def open_input_file(self, path: str) -> Any:
        text = self._log.commit_file(int(Path(path).stem)).encode()
        return SimpleNamespace(size=lambda: len(text), read=lambda size: text[:size])


class DeltaRs:
    """The module, as one process imports it."""

    _internal = SimpleNamespace(DeltaFileSystemHandler=Files)
    exceptions = SimpleNamespace(DeltaError=DeltaError, CommitFailedError=CommitFailedError)
    Transaction, CommitProperties = Transaction, CommitProperties

    def __init__(self, access: Access) -> None:
        self._access = access

    def DeltaTable(self, uri: str, version: int | None = None) -> "Opened":  # noqa: N802
        """deltalake's name: the table as of a version, by default the newest."""
        return Opened(self._access, version)


class Opened:
    """A `DeltaTable`: it stays at the version with which it was opened."""

    def __init__(self, access: Access, version: int | None) -> None:
        self._access = access
        self._step()
        found = access.store.look()
        if found.version() < 0:
            raise DeltaError("there is no table")
        self._log = self._table = found.log
        self._version = found.version() if version is None else version

    def version(self) -> int:
        return self._version

    def metadata(self) -> Any:
        return SimpleNamespace(id=self._log.id, configuration={})

    def schema(self) -> None:
        return None

    def history(self, limit: int) -> list[dict[str, Any]]:
        newest = self._version
        return [
            {"version": number, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
            for number in range(newest, max(newest - limit, -1), -1)
        ]

    def transaction_version(self, app: str) -> int | None:
        try:
            return self._log.app_version(app, self._version)
        except Unreadable as problem:
            raise DeltaError(str(problem)) from problem

    def create_write_transaction(
        self, actions: list[Any], mode: str, schema: Any, commit_properties: CommitProperties
    ) -> None:
        """Raises CommitFailedError, DeltaError."""
        assert (actions, mode) == ([], "append")
        self._step()
        self._access.maybe_crash(CLAIMING)
        is_next = self._version == self._log.newest
        if not (is_next or commit_properties.max_commit_retries):
            self._access.store.met[CLAIM_LATE] += 1
            raise CommitFailedError
        for each in commit_properties.app_transactions:
            made = Commit(each.app_id, each.version, ())
            self._access.store.commit(made, Snapshot(self._log, self._log.newest))
        self._access.maybe_crash(CLAIMED)

    def _step(self) -> None:
        try:
            self._access.step()
        except StoreAway as problem:
            raise DeltaError("the store is away") from problem
