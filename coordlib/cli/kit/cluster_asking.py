"""What commands ask the coordinator about a cluster, and how its rows of answers are printed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from coordlib.cli.kit.output import now, print_json, print_table
from coordlib.cli.kit.where import Where
from coordlib.errors import ErrorCode

if TYPE_CHECKING:
    from coordlib.client.admin import Admin

RESULT_COLUMNS: Final = ("TOPIC", "PARTITION", "ERROR", "MESSAGE")


@contextmanager
def asking(where: Where) -> "Iterator[Admin]":
    """A client of the coordinator. Raises CannotReach, SetupError."""
    from coordlib.client.admin import Admin

    where.reach()
    with Admin(where.client(), where.topic_prefix()) as admin:
        yield admin


def tell_results(
    where: Where, command: str, cluster: str, rows: Sequence[Any], **fields: object
) -> int:
    """Print each refused row, or in JSON all of them.

    Returns the number of rows that were accepted.
    """
    lines = [_line(row) for row in rows]
    refused = [line for line in lines if line["error"] != ErrorCode.NONE.name]
    if where.format == "json":
        print_json(command, now(), cluster=cluster, results=lines, **fields)
    elif refused:
        columns = [name for name in RESULT_COLUMNS if any(name.lower() in each for each in refused)]
        print_table(columns, [[each.get(name.lower()) for name in columns] for each in refused])
    return len(lines) - len(refused)


def _line(row: Any) -> Mapping[str, object]:
    """A row; those about topics have no partition."""
    line: dict[str, object] = {"topic": row.topic}
    if hasattr(row, "partition"):
        line["partition"] = row.partition
    line["error"] = row.error
    if isinstance(row.message, str):
        line["message"] = row.message
    return line
