"""`coord history maintain`: keep the history's tables small and quick to ask."""

from dataclasses import asdict
from typing import Annotated, Any, Final

from cyclopts import Parameter

from coordlib.cli.kit.output import print_json, print_table, say
from coordlib.cli.kit.where import TABLES_HERE, WhereTables
from coordlib.history.keeping import kept

_KEYS: Final = ("table", "dropped_rows", "rewritten", "deleted_files", "files", "bytes")


def require_kept(_: Any, given: list[str] | None) -> None:
    """Raises SetupError for what does not say how long something is kept."""
    kept(given or ())


def maintain(
    *,
    keep: Annotated[
        list[str] | None, Parameter(negative="", show_default=False, validator=require_kept)
    ] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Compact the history's tables, drop what is old, and delete files that nothing needs.

    It may run while the archive writes, once a day. Dates that are over become one file each, in
    order of their groups; the log of each table gets a checkpoint.

    Parameters
    ----------
    keep
        What may go after a time, such as commits=30d, lag=30d, snapshots=1d; else all is kept.
    dry_run
        Show what would be done, and change nothing.
    """
    from coordlib.history.maintain import maintain as maintain_tables

    prefix = where.prefix if where.tables is not None else where.topic_prefix()
    told = [
        asdict(each)
        for each in maintain_tables(
            where.tables_dir(), kept(keep or ()), prefix=prefix, is_dry_run=dry_run
        )
    ]
    if where.format == "json":
        print_json("history maintain", dry_run=dry_run, tables=told)
        return 0
    headers = [key.upper().replace("_", "-") for key in _KEYS]
    print_table(headers, [[row[key] for key in _KEYS] for row in told])
    if dry_run:
        say("Nothing was changed; FILES and BYTES are as they are.")
    return 0
