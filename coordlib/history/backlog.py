"""How far the tables are behind the topics, for whoever looks from outside: no JVM is needed.

It is asked of the tables and of Kafka, and not of the archive: one that hangs, or does not run at
all, is behind all the same.
"""

import time
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from coordlib.errors import CannotReach, SetupError
from coordlib.history.commit import Commit, Positions, merged
from coordlib.history.plan import Backlog, position
from coordlib.history.tables import TABLES, path_of
from coordlib.history.topics_read import places_of
from coordlib.lag import Place
from coordlib.log_bounds import log_bounds

#: Commits that are searched for the newest one of an archive, in two goes: nearly always it is the
#: newest of all.
SEARCHED: Final = (5, 1_000)
TIMEOUT_S: Final = 5.0


def backlog(tables_dir: str, client: Mapping[str, Any], prefix: str) -> Backlog | None:
    """None where nothing was ever archived, or where that cannot be told.

    Raises:
        CannotReach: no broker answers, or the tables cannot be read.
        SetupError: deltalake is not installed.
        StartRefused: the topics are not there.
    """
    next_ = positions(tables_dir)
    return None if next_ is None else behind(next_, client, prefix)


def positions(tables_dir: str) -> Positions | None:
    """Up to where the tables are complete, by their newest commits; None: that is not known."""
    found = [_newest(path_of(tables_dir, table)) for table in TABLES]
    if None in found or not any(commit and commit.number for commit in found):
        return None
    return reduce(merged, [commit.next for commit in found if commit])


def behind(next_: Positions, client: Mapping[str, Any], prefix: str) -> Backlog:
    """What stands behind these positions, read committed. Raises CannotReach, StartRefused."""
    try:
        places = places_of(client, prefix)
        admin = AdminClient({**client, "log_level": 0})
        waiting: dict[Place, int] = {}
        records = 0
        for place, log in log_bounds(admin, places, TIMEOUT_S, is_committed=True).items():
            if log is None:
                continue
            bare = Place(place.topic.removeprefix(f"{prefix}."), place.partition)
            at = max(log.start, position(next_, bare, log))
            if at < log.end:
                waiting[place] = at
                records += log.end - at
        oldest_ms = min(_times(client, waiting), default=None)
    except (KafkaException, TimeoutError) as problem:
        raise CannotReach(
            "Kafka stopped answering", str(problem), "Look into the broker's log."
        ) from problem
    # What is left of a transaction that was aborted is no record for anybody.
    if oldest_ms is None:
        return Backlog()
    return Backlog(records, max(0, time.time_ns() // 1_000_000 - oldest_ms))


def _newest(path: str) -> Commit | None:
    """The newest commit of an archive; number 0 where there is no table."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as problem:
        raise SetupError(
            f"{problem.name} is not installed in this Python",
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
        return Commit()
    except (DeltaError, OSError) as problem:
        raise CannotReach(
            "The history's tables cannot be read", f"{path}: {problem}", "Check --tables."
        ) from problem
    return None


def _times(client: Mapping[str, Any], waiting: Mapping[Place, int]) -> Iterable[int]:
    """When the first record was written that stands at each of these positions or behind it."""
    if not waiting:
        return []
    consumer = Consumer(
        {
            **client,
            "group.id": "coordlib-reader",  # required by the client; never joined or committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 65_536,
            "queued.min.messages": 1,
            "log_level": 0,
        }
    )
    times: list[int] = []
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in waiting.items()])
        open_, deadline = set(waiting), time.monotonic() + TIMEOUT_S
        while open_ and time.monotonic() < deadline:
            for record in consumer.consume(len(open_), 0.5):
                error = record.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                place = Place(record.topic() or "", record.partition() or 0)
                if place in open_:
                    open_.discard(place)
                    consumer.pause([TopicPartition(*place)])
                    if error is None:
                        times.append(int(record.timestamp()[1]))
    finally:
        consumer.close()
    return times
