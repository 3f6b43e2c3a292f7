"""How far the tables are behind the topics, for whoever looks from outside: no JVM is needed.

It is asked of the tables and of Kafka, and not of the archive: one that hangs, or does not run at
all, is behind all the same.
"""

import time
from collections.abc import Container, Iterable, Mapping
from functools import reduce
from typing import Any, Final

from coordlib.errors import CannotReach, SetupError
from coordlib.history.commit import Commit, Source, merged
from coordlib.history.plan import Backlog
from coordlib.history.tables import TABLES, path_of
from coordlib.history.topics_read import places_of, topic_ids_of
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching
from coordlib.kafka.denied import refusing
from coordlib.kafka.first_times import first_times
from coordlib.kafka.places import Place

#: Commits that are searched for the newest one of an archive, in two goes: nearly always it is the
#: newest of all.
SEARCHED: Final = (5, 1_000)
TIMEOUT_S: Final = 5.0
NAMED_MAX: Final = 5  # partitions that an error names
_NO_TABLE: Final = Commit()


def backlog(tables_dir: str, client: Mapping[str, Any], prefix: str) -> Backlog | None:
    """None where there are no tables, or where it cannot be told how far they are.

    All waits where an archive has made the tables and written nothing: that is how a new prefix
    begins, and how one looks whose archive has never worked.

    Raises:
        CannotReach: no broker answers, or the tables cannot be read.
        SetupError: deltalake is not installed.
        StartRefused: the topics are not there, or the tables have records of others.
    """
    commits = newest_commits(tables_dir)
    if commits is None:
        return None
    with reaching("Kafka stopped answering", "Look into the broker's log."):
        places = places_of(client, prefix)
        source = Source(prefix, topic_ids_of(open_admin(client), places, client, prefix))
        continued = (commit.continued(source, path) for path, commit in commits.items())
        next_ = reduce(merged, (commit.next for commit in continued))
        logs = log_bounds(
            open_admin(client), places, TIMEOUT_S, is_committed=True, on_denied=refusing(client)
        )
        _require_all(places, logs)
        waiting: dict[Place, int] = {}
        records = 0
        for place, log in logs.items():
            if log is None:
                continue
            bare = Place(place.topic.removeprefix(f"{prefix}."), place.partition)
            at = max(log.start, next_.get(bare.topic, {}).get(str(bare.partition), 0))
            if at < log.end:
                waiting[place] = at
                records += log.end - at
        found = first_times(client, waiting, TIMEOUT_S, is_committed=True)
        _require_all(waiting, found)
    oldest_ms = min((each for each in found.values() if each is not None), default=None)
    # What is left of a transaction that was aborted is no record for anybody.
    if oldest_ms is None:
        return Backlog()
    return Backlog(records, max(0, time.time_ns() // 1_000_000 - oldest_ms))


def newest_commits(tables_dir: str) -> dict[str, Commit] | None:
    """The newest commit of each table, by its path; None: that is not known of one of them, or
    there are none."""
    paths = [path_of(tables_dir, table) for table in TABLES]
    found = {path: _newest(path) for path in paths}
    there = {path: commit for path, commit in found.items() if commit is not _NO_TABLE}
    known = {path: commit for path, commit in there.items() if commit is not None}
    return known if known and len(known) == len(there) else None


def _require_all(asked: Iterable[Place], answered: Container[Place]) -> None:
    """Raises CannotReach where a partition is silent: nobody knows what waits there."""
    silent = [f"{place.topic}-{place.partition}" for place in asked if place not in answered]
    if silent:
        raise CannotReach(
            "How far history is behind is not known: partitions did not answer.",
            f"{', '.join(silent[:NAMED_MAX])} ({len(silent)} in all)",
            "Check that each partition has a leader, then try again.",
        )


def _newest(path: str) -> Commit | None:
    """The newest commit of an archive; `_NO_TABLE` where there is no table."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as problem:
        raise SetupError(
            f"{problem.name} is not installed in this Python.",
            "the archive's backlog",
            "Run: pip install 'coordlib[cli]'",
        ) from problem
    try:
        table = DeltaTable(path)
        for limit in SEARCHED:
            for entry in table.history(limit):
                if (commit := Commit.from_json(entry.get("userMetadata"))) is not None:
                    return commit
    except TableNotFoundError:
        return _NO_TABLE
    except (DeltaError, OSError) as problem:
        raise CannotReach(
            "The history's tables cannot be read.", f"{path}: {problem}", "Check --tables."
        ) from problem
    return None
