"""A Delta table that one archive at a time appends to, each record once.

What a commit says of itself (its number, how far the table is then complete) is in the commit, so
that data and position can never disagree.
"""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812  # its usual name

from coordlib.errors import StartRefused
from coordlib.history.files import read_text
from coordlib.history.tables import COLUMNS, PARTITIONED_BY, PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTORY_READ: Final = 100  # commits searched for ours: others (OPTIMIZE, VACUUM) may lie between

Positions = dict[str, dict[str, int]]
"""Topic without prefix -> partition (as text, for JSON) -> next offset to read."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a table's newest commit of an archive says."""

    #: Id of the checkpoint that made it.
    identity: str = ""
    #: Rises by one with each commit of an archive.
    number: int = 0
    #: The table is complete up to here.
    next: Positions = field(default_factory=dict)
    #: Records that were not ours, since the table was made.
    skipped: int = 0

    def following(self, counted: list[Any], bad: int, identity: str) -> "Commit":
        positions = {topic: dict(partitions) for topic, partitions in self.next.items()}
        for row in counted:
            positions.setdefault(row.topic, {})[str(row.partition)] = row.end
        return Commit(identity, self.number + 1, positions, self.skipped + bad)

    def to_json(self, batch_id: int) -> str:
        return json.dumps(
            {
                "coord_archive": self.identity,
                "number": self.number,
                "next": self.next,
                "skipped": self.skipped,
                "batch": batch_id,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | None) -> "Commit | None":
        """None for the metadata of somebody else's commit."""
        try:
            found = json.loads(text or "{}")
            return cls(found["coord_archive"], found["number"], found["next"], found["skipped"])
        except (ValueError, TypeError, KeyError):
            return None


class ArchivedTable:
    """One Delta table as this archive knows it."""

    def __init__(self, spark: "SparkSession", table: str, path: str) -> None:
        self._spark, self._table, self._path = spark, table, path
        _create_table(spark, table, path)
        self._version, self.newest = _last_commit(spark, path)

    def append(self, rows: "DataFrame", commit: Commit, app_id: str, batch_id: int) -> None:
        """Commit rows, unless another archive did since this one looked.

        Raises:
            StartRefused: it did, before or at the same moment.
        """
        self._refuse_others(commit)
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", app_id)
            .option("txnVersion", commit.number)
            .option("userMetadata", commit.to_json(batch_id))
            .partitionBy(*PARTITIONED_BY[self._table])
            .save(self._path)
        )
        self._refuse_others(commit)
        self.newest = commit

    def _refuse_others(self, ours: Commit) -> None:
        """Read the commits that were made since the last look; OPTIMIZE and the like are fine."""
        while (text := read_text(self._spark, self._log_file(self._version + 1))) is not None:
            self._version += 1
            found = _commit_in(text)
            if found is not None and found != ours:
                raise StartRefused(
                    "Another archive writes these tables",
                    f"{self._path}: commit {found.number} is of checkpoint {found.identity}",
                    "Let only one run: a coordinator brings its own unless started with "
                    "--without-archive. Nothing was doubled or lost.",
                )

    def _log_file(self, version: int) -> str:
        return f"{self._path}/_delta_log/{version:020d}.json"


def _commit_in(log_file: str) -> Commit | None:
    """An archive's commit, if this file of Delta's log is one."""
    actions = (json.loads(line) for line in log_file.splitlines())
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return Commit.from_json(info.get("userMetadata"))


def _create_table(spark: "SparkSession", table: str, path: str) -> None:
    from delta.tables import DeltaTable

    if DeltaTable.isDeltaTable(spark, path):
        return
    columns = (F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS[table].items())
    writer = spark.range(0).select(*columns).write.format("delta")
    writer = writer.options(**PROPERTIES).partitionBy(*PARTITIONED_BY[table])
    writer.option("userMetadata", Commit().to_json(-1)).mode("append").save(path)


def _last_commit(spark: "SparkSession", path: str) -> tuple[int, Commit]:
    """The table's version, and what the newest commit of an archive says.

    Raises:
        StartRefused: none of the newest commits is an archive's.
    """
    from delta.tables import DeltaTable

    history = DeltaTable.forPath(spark, path).history(HISTORY_READ)
    rows = history.select("version", "userMetadata").orderBy(F.desc("version")).collect()
    for _, text in rows:
        commit = Commit.from_json(text)
        if commit is not None:
            return int(rows[0].version), commit
    raise StartRefused(
        "It cannot be told how far this table is complete",
        f"none of the last {HISTORY_READ} commits of {path} was made by an archive",
        "Continuing could double rows: name a fresh folder for the tables, and keep this one.",
    )
