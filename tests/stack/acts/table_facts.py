"""Facts of a Delta table that writers fill: its rows, and the commit that each of them came with.

delta-rs says which files any reader sees, the table's own log which commit has added each.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.stack.acts.table_verdict import Batch, Row


def rows_in(table: Path) -> int:
    """How many rows any reader sees."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(table)):
        return 0
    return int(DeltaTable(str(table)).count())


def batches_in(table: Path) -> list[Batch]:
    """The commits that have rows, in their order; none before the first. Rows that came with no
    commit of the log are one of version -1."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(table)):
        return []
    seen = {uri.rpartition("/")[2] for uri in DeltaTable(str(table)).file_uris()}
    found = []
    for version, actions in _commits(table):
        tokens = [each["txn"]["version"] for each in actions if "txn" in each]
        files = [each["add"]["path"] for each in actions if "add" in each]
        if files := [each for each in files if each in seen]:
            seen.difference_update(files)
            token = int(tokens[0]) if len(tokens) == 1 else -1
            found.append(Batch(version, token, _rows(table, files)))
    if seen:
        found.append(Batch(-1, -1, _rows(table, sorted(seen))))
    return [each for each in found if each.rows]


def _commits(table: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Version and actions. All are there: Delta removes a commit after a month at the earliest."""
    for file in sorted((table / "_delta_log").glob("*.json")):
        if file.stem.isdecimal():
            yield int(file.stem), [json.loads(line) for line in file.read_text().splitlines()]


def _rows(table: Path, files: list[str]) -> tuple[Row, ...]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            'SELECT number, partition, "offset" FROM read_parquet(?)',
            [[str(table / each) for each in files]],
        )
        return tuple(Row(*row) for row in connection.fetchall())
