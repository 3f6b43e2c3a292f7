"""The engine's topics as the archive reads them, and how far the tables are behind.

Keeps INV-152.
"""

import json
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from coordlib.core.wire.topics import ARCHIVED, CLAIMS_ARCHIVED, claims_prefix
from coordlib.errors import CannotReach, CoordError, NotAllowed, SetupError, StartRefused
from coordlib.history.plan import Backlog, Commit, NewestRead, Range, Source, merged
from coordlib.history.tables import TABLES, path_of
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import first_times, leader_epochs, log_bounds
from coordlib.kafka.clients import READER_GROUP, open_admin, reaching, refusing
from coordlib.kafka.cluster import partitions_of, topic_id_of
from coordlib.kafka.layout import recorded_layout, recorded_partitions
from coordlib.kafka.logs import (
    AGAIN_S,
    Bounds,
    Lost,
    Place,
    Read,
    Why,
    find_lost,
    lost_at_two_looks,
    still_there,
)
from coordlib.kafka.reading import records_at
from coordlib.kafka.topics import look_up

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TIMEOUT_S: Final = 10.0
#: The topics of the table of snapshots: compacted ones.
OF_SNAPSHOTS: Final = ("groups", "committed")
_DIGEST_DIGITS: Final = 32
_UNREACHABLE: Final = (
    "The broker does not answer where topics begin and end",
    "Look into the broker's log.",
)


class ArchivedTopics:
    """The topics of one prefix.

    Args:
        client: librdkafka's options, with bootstrap.servers.

    Raises:
        CannotReach: no broker answers.
        StartRefused: the topics are not there.
    """

    def __init__(self, client: Mapping[str, Any], prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._places = places_of(client, prefix)
        self._admin = open_admin(client, log_level=2)
        #: The leaders' epochs when they were last known to be the logs that were read.
        self._same_at: Mapping[Place, int | None] | None = None
        #: As the archive began with them.
        self.source = Source(prefix, self._topic_ids())

    def are_same(self) -> bool:
        """Whether none of the topics was deleted or made anew since then. Raises CannotReach."""
        return self._topic_ids() == self.source.topic_ids

    def require_same(self, known: Mapping[Place, Read]) -> None:
        """When a batch was read, and before it is written.

        Args:
            known: how far they were read before.

        Raises:
            CoordError: one of them was deleted or made anew since, or has lost its end.
            CannotReach: no broker answers.
        """
        if not self.are_same() or self._is_cut(known):
            raise CoordError(
                "A topic was deleted, created again or cut while it was read.",
                f"prefix {self._prefix}",
                "Nothing of it was written; the archive looks at the topics again.",
            )

    def _is_cut(self, known: Mapping[Place, Read]) -> bool:
        epochs = self._epochs()
        return (epochs is None or epochs != self._same_at) and bool(self._look(known, True)[1])

    def compared(self, known: Mapping[Place, Read]) -> tuple[dict[Place, Bounds], list[Lost]]:
        """The bounds of all partitions that can be read now; and what was read, and is gone.

        Topics are without prefix. Raises CannotReach.
        """
        epochs = self._epochs()  # first: a log that is cut meanwhile has another one afterwards
        is_doubted = epochs is None or epochs != self._same_at
        bounds: dict[Place, Bounds] = {}

        def look() -> list[Lost]:
            nonlocal bounds
            bounds, lost = self._look(known, is_doubted)
            return lost

        if not (lost := lost_at_two_looks(look, self.wait)):
            self._same_at = epochs
        return bounds, lost

    def wait(self) -> None:
        """Between two looks."""
        time.sleep(AGAIN_S)

    def _look(
        self, known: Mapping[Place, Read], is_doubted: bool
    ) -> tuple[dict[Place, Bounds], list[Lost]]:
        bounds = self.bounds()
        found = find_lost(known, bounds, self._records if is_doubted else lambda _: {})
        return bounds, [each for each in found if each.why is not Why.REMOVED]

    def _epochs(self) -> Mapping[Place, int | None] | None:
        """Of the partitions' leaders; None: one of them has none."""
        try:
            with reaching(*_UNREACHABLE):
                return leader_epochs(self._admin, self._places, TIMEOUT_S)
        except CannotReach:
            return None

    def _records(self, offsets: Mapping[Place, int]) -> dict[Place, NewestRead | None]:
        if not offsets:
            return {}
        named = {Place(f"{self._prefix}.{topic}", at): n for (topic, at), n in offsets.items()}
        with reaching(*_UNREACHABLE):
            messages = records_at(self._client, named)
        found = {
            Place(place.topic.removeprefix(f"{self._prefix}."), place.partition): None
            if message is None
            else (
                named[place],
                message.timestamp()[1],
                record_digest(message.key(), message.value()),
            )
            for place, message in messages.items()
        }
        left = {p: each for p, each in found.items() if each or p.topic not in OF_SNAPSHOTS}
        return still_there(left, offsets, lambda _: self.bounds())

    def _topic_ids(self) -> dict[str, str]:
        return topic_ids_of(self._admin, self._places, self._client, self._prefix)

    def bounds(self) -> dict[Place, Bounds]:
        """Of all partitions that can be read now; topics are without prefix. CannotReach."""
        with reaching(*_UNREACHABLE):
            found = log_bounds(self._admin, self._places, TIMEOUT_S, is_committed=True)
        return {
            Place(place.topic.removeprefix(f"{self._prefix}."), place.partition): log
            for place, log in found.items()
            if log is not None
        }

    def read(
        self, spark: "SparkSession", options: Mapping[str, str], ranges: Sequence[Range]
    ) -> "DataFrame":
        """The records of these ranges, read committed; there is at least one range.

        Args:
            options: of Spark's Kafka source, with kafka.bootstrap.servers.
        """
        named = [each._replace(topic=f"{self._prefix}.{each.topic}") for each in ranges]
        return (
            spark.read.format("kafka")
            .options(**options)
            .option("kafka.isolation.level", "read_committed")
            # Spark keeps its consumers under it from one batch to the next.
            .option("kafka.group.id", READER_GROUP)
            # What is to be read is there: a fetch that waits finds the end of a transaction.
            .option("kafka.fetch.max.wait.ms", 5)
            .option("failOnDataLoss", "true")
            .option("assign", _by_topic((each, None) for each in named))
            .option("startingOffsets", _by_topic((each, each.first) for each in named))
            .option("endingOffsets", _by_topic((each, each.end) for each in named))
            .load()
        )


def record_digest(key: bytes | None, value: bytes | None) -> str:
    """By which a record is found again, together with its time; as `digest_column`."""
    parts = ("-" if each is None else sha256(each).hexdigest() for each in (key, value))
    return sha256("".join(parts).encode()).hexdigest()[:_DIGEST_DIGITS]


def digest_column(key: str, value: str) -> "Column":
    """The same of two columns of bytes."""
    from pyspark.sql import functions as F  # noqa: N812  # its usual name

    parts = (F.coalesce(F.sha2(each, 256), F.lit("-")) for each in (key, value))
    return F.substring(F.sha2(F.concat(*parts), 256), 1, _DIGEST_DIGITS)


def topic_ids_of(
    admin: Admin, places: Iterable[Place], client: Mapping[str, Any], prefix: str
) -> dict[str, str]:
    """Kafka's ids of the topics of these partitions, by names without prefix. CannotReach."""
    with reaching(*_UNREACHABLE):
        found = look_up(admin, sorted({place.topic for place in places}), client)
    return {name.removeprefix(f"{prefix}."): topic_id_of(each) for name, each in found.items()}


def places_of(client: Mapping[str, Any], prefix: str) -> list[Place]:
    """The partitions of what is archived, with their full topic names.

    Raises:
        CannotReach: no broker answers.
        StartRefused: the topics are not there.
        NotAllowed: one of them may not be read.
    """
    with reaching(*_UNREACHABLE, client):
        groups, claims = _of_groups(client, prefix), _of_claims(client, prefix)
        found = _recorded(client, prefix, groups)
        if claims:
            found += _recorded(client, claims_prefix(prefix), claims)
    if not any(place.topic == f"{prefix}.{ARCHIVED[0]}" for place in found):
        raise StartRefused(
            "The engine's topics are not there.", f"prefix {prefix}", "Run: coord topics create"
        )
    return found


def _recorded(client: Mapping[str, Any], pipeline: str, places: list[Place]) -> list[Place]:
    """Those that the pipeline was made with: what was added later is not read.  # INV-115"""
    there = _partitions(client, f"{pipeline}.progress")
    layout = recorded_layout(client, pipeline) if there else None
    if layout is None:
        return places
    counts = recorded_partitions(pipeline, layout)
    return [place for place in places if place.partition < counts[place.topic]]


def _of_groups(client: Mapping[str, Any], prefix: str) -> list[Place]:
    names = [f"{prefix}.{name}" for name in ARCHIVED if name not in CLAIMS_ARCHIVED]
    return [place for name in names for place in _partitions(client, name)]


def _of_claims(client: Mapping[str, Any], prefix: str) -> list[Place]:
    """Brokers do not tell a topic that may not be seen from one that is not there. Where one of
    these is there, claims are followed, and the others must be read, too."""
    found: list[Place] = []
    refused: list[NotAllowed] = []
    for name in CLAIMS_ARCHIVED:
        try:
            found += _partitions(client, f"{prefix}.{name}")
        except NotAllowed as problem:
            refused.append(problem)
    if found and refused:
        raise refused[0]
    return found


def _partitions(client: Mapping[str, Any], topic: str) -> list[Place]:
    return [Place(topic, number) for number in partitions_of(client, topic, TIMEOUT_S)]


def _by_topic(values: Iterable[tuple[Range, int | None]]) -> str:
    """Spark's JSON: of offsets an object per topic, of partitions alone a list."""
    offsets: dict[str, dict[str, int]] = {}
    numbers: dict[str, list[int]] = {}
    for each, offset in values:
        if offset is None:
            numbers.setdefault(each.topic, []).append(each.partition)
        else:
            offsets.setdefault(each.topic, {})[str(each.partition)] = offset
    return json.dumps(offsets or numbers)


#: Commits that are searched for the newest one of an archive, in two goes: nearly always it is the
#: newest of all.
SEARCHED: Final = (5, 1_000)
BACKLOG_TIMEOUT_S: Final = 5.0
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
            open_admin(client),
            places,
            BACKLOG_TIMEOUT_S,
            is_committed=True,
            on_denied=refusing(client),
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
        found = first_times(client, waiting, BACKLOG_TIMEOUT_S, is_committed=True)
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
