"""What an act has left behind in Delta."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coordlib.errors import CannotReach
from coordlib.history.sql import query_tables


def archived(tables: Path, sql: str, *parameters: object) -> Sequence[Any]:
    """The rows of a query; none before the first archive batch."""
    try:
        return query_tables(tables, sql, parameters).rows
    except CannotReach:
        return ()
