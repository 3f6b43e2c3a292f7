"""What an archive's commits say of its tables, and what it reads next."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from coordlib.core.wire.topics import CLAIMS_ARCHIVED
from coordlib.errors import StartRefused
from coordlib.kafka.logs import Bounds, Lost, Place, Why
from coordlib.kafka.options import KafkaOptions
from coordlib.kafka.plans import REPLACEABLE

_Each = TypeVar("_Each")
_Value = TypeVar("_Value")
Positions = dict[str, dict[str, int]]
"""Topic without prefix -> partition (as text, for JSON) -> next offset to read."""


NewestRead = tuple[int, int, str]
"""Offset of a record, its time in epoch milliseconds, and the digest of its key and value."""


class Hole(NamedTuple):
    """Records that are not in the topic any more: from `first` up to `end`, exclusive.

    Kafka had deleted them before they were read; or the topic was cut, and what was written there
    since is not read.
    """

    topic: str
    partition: int
    first: int
    end: int
    why: Why = Why.REMOVED


@dataclass(frozen=True, slots=True)
class Source:
    """The topics whose records are archived."""

    prefix: str
    #: Topic without prefix -> Kafka's id of it: a topic that was deleted and made anew has another.
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """The metadata of a table's newest commit by an archive."""

    #: Id of the checkpoint that made it.
    identity: str = ""
    #: Rises by one with each commit of an archive.
    number: int = 0
    #: The table is complete up to here.
    next: Positions = field(default_factory=dict)
    #: Records that were not ours, since the table was made.
    skipped: int = 0
    #: Where the batch of this commit ends in the topics of all tables.
    until: Positions = field(default_factory=dict)
    #: Up to here the lines of lost history have been written (`events` alone has them).
    reported: Positions = field(default_factory=dict)
    #: Shard (as text) -> time of its newest row, epoch ms (`group_snapshots` alone has them).
    as_of_ms: dict[str, int] = field(default_factory=dict)
    #: Whose records the table has: positions are of this prefix and of topics with these ids.
    prefix: str = ""
    topic_ids: dict[str, str] = field(default_factory=dict)
    #: Topic -> partition -> the newest record read: whether it still stands there is asked.
    read: dict[str, dict[str, NewestRead]] = field(default_factory=dict)

    @classmethod
    def first(cls, source: Source) -> "Commit":
        """The commit that makes a table."""
        return cls(prefix=source.prefix, topic_ids=dict(source.topic_ids))

    def continued(self, source: Source, path: str) -> "Commit":
        """This commit, where the archive of these topics goes on from it.

        A topic that may be made anew, and was, begins at 0 again.

        Args:
            path: the table's, for the error.

        Raises:
            StartRefused: the table has records of other topics.  # INV-39
        """
        if self.prefix != source.prefix:
            raise StartRefused(
                "These tables hold the history of another prefix.",
                f"{path}: prefix {self.prefix}, and the archive is of {source.prefix}",
                "Check the prefix and the tables' folder: each prefix has a folder of its own.",
            )
        now = source.topic_ids
        anew = {name for name, id_ in self.topic_ids.items() if now.get(name, id_) != id_}
        if other := sorted(anew - _REPLACEABLE):
            raise StartRefused(
                "Topics were created again since these tables were written.",
                f"{path}: {source.prefix}.{other[0]} had the id {self.topic_ids[other[0]]}, "
                f"and has {now[other[0]]}",
                BEGIN_ANEW,
            )
        return replace(
            self,
            next=_without(self.next, anew),
            until=_without(self.until, anew),
            reported=_without(self.reported, anew),
            read=_without(self.read, anew),
            topic_ids={**self.topic_ids, **now},
        )

    def following(
        self,
        identity: str,
        ends: Positions,
        bad: int,
        until: Positions,
        holes: Iterable[Hole],
        as_of_ms: Mapping[str, int] | None = None,
        read: dict[str, dict[str, NewestRead]] | None = None,
    ) -> "Commit":
        """The commit after this one.

        Args:
            ends: of the table's own topics, where the batch ends.
            bad: records of the batch that were not ours.
            until: where the batch ends in all topics.
            holes: lost records for which this commit has events.
            as_of_ms: the time of the newest row of each shard that has rows in it.
            read: the newest records read of the table's own topics.
        """
        return Commit(
            identity,
            self.number + 1,
            moved(self.next, ends),
            self.skipped + bad,
            until,
            merged(self.reported, _ends_of(holes)),
            {**self.as_of_ms, **(as_of_ms or {})},
            self.prefix,
            self.topic_ids,
            self.read if read is None else read,
        )

    def to_json(self, batch: int) -> str:
        return json.dumps(
            {
                "coord_archive": self.identity,
                "number": self.number,
                "next": self.next,
                "skipped": self.skipped,
                "batch": batch,
                "until": self.until,
                "told": self.reported,
                "as_of_ms": self.as_of_ms,
                "prefix": self.prefix,
                "topic_ids": self.topic_ids,
                "read": self.read,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | None) -> "Commit | None":
        """The metadata of an archive's commit; None for any other commit."""
        try:
            found = json.loads(text or "{}")
            rest: dict[str, Any] = {name: found[name] for name in _KEPT}
            rest["reported"] = found["told"]
            rest["read"] = {
                topic: {partition: tuple(record) for partition, record in each.items()}
                for topic, each in found["read"].items()
            }
            return cls(found["coord_archive"], **rest)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


#: The topics of claims, too: where their coordination topic has lost its end, or has grown, they
#: are made anew, and the history of the groups goes on.
_REPLACEABLE = REPLACEABLE.union(CLAIMS_ARCHIVED)
_KEPT = ("number", "next", "skipped", "until", "as_of_ms", "prefix", "topic_ids")
BEGIN_ANEW = (
    "Begin anew: keep this folder aside, and name a fresh one for the tables. What is still in the "
    "topics is written into it."
)


def commit_in(log_file: str) -> Commit | None:
    """An archive's commit, if this file of Delta's log is one."""
    actions = (json.loads(line) for line in log_file.splitlines() if line)
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return Commit.from_json(info.get("userMetadata"))


def digest_of(commit_file: str) -> str:
    """Of a version of a table, by the text of its commit's file."""
    return hashlib.sha256(commit_file.encode()).hexdigest()[:16]


def number_in_commit(commit_file: str, app: str) -> int | None:
    """The version that a commit gives an application; None: it is another one's commit."""
    for line in filter(None, commit_file.splitlines()):
        found = json.loads(line).get("txn") if '"txn"' in line else None
        if found is not None and found["appId"] == app:
            return int(found["version"])
    return None


def merged(left: Positions, right: Positions) -> Positions:
    """The later position of each partition."""
    found = {topic: dict(partitions) for topic, partitions in left.items()}
    for topic, partitions in right.items():
        mine = found.setdefault(topic, {})
        for partition, offset in partitions.items():
            mine[partition] = max(offset, mine.get(partition, 0))
    return found


def _without(positions: dict[str, _Each], topics: set[str]) -> dict[str, _Each]:
    return {topic: at for topic, at in positions.items() if topic not in topics}


def moved(
    positions: Mapping[str, Mapping[str, _Value]], ends: Mapping[str, Mapping[str, _Value]]
) -> dict[str, dict[str, _Value]]:
    """Some partitions are elsewhere now: further, or where another log goes on."""
    found = {topic: dict(partitions) for topic, partitions in positions.items()}
    for topic, partitions in ends.items():
        found.setdefault(topic, {}).update(partitions)
    return found


def _ends_of(holes: Iterable[Hole]) -> Positions:
    ends: Positions = {}
    for hole in holes:
        if hole.why is Why.REMOVED:
            ends.setdefault(hole.topic, {})[str(hole.partition)] = hole.end
    return ends


def times_of(
    known: Mapping[str, int], counted: Sequence[Any]
) -> tuple[dict[int, int], dict[str, int]]:
    """The least times of a batch's snapshots, of shards whose times went back, and the newest ones.

    What holds now is the newest row of a group. The times of records are those of drivers' clocks,
    which may be behind that of the driver before; and one topic may be read further than the other.

    Args:
        known: the time of each shard's newest row before this batch.
    """
    least, newest = dict[int, int](), dict[str, int]()
    for row in counted:
        if not row.good:
            continue
        shard = str(row.partition)
        newest[shard] = max(newest.get(shard, 0), row.last_ms)
        if known.get(shard, -1) >= row.first_ms:
            least[row.partition] = known[shard] + 1
    return least, {each: max(at, least.get(int(each), 0)) for each, at in newest.items()}


class Range(NamedTuple):
    """Records to read of one partition; `end` is exclusive. The topic is without prefix."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records that are in the topics and not in the tables."""

    records: int = 0
    #: Age of the oldest of them; where nobody has looked at it, the age that it has at most.
    ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One batch."""

    #: Where each partition's next batch begins.
    until: Positions
    #: In order; none of them is empty.
    ranges: tuple[Range, ...] = ()
    holes: tuple[Hole, ...] = ()
    #: Records that are there by now and come with later batches.
    left: int = 0
    #: The partitions that have them.
    cut: tuple[Place, ...] = ()

    @property
    def records(self) -> int:
        """How many it reads; ends of transactions, and what compaction has left out, count too."""
        return sum(each.end - each.first for each in self.ranges)


def plan(
    next_: Positions,
    bounds: Mapping[Place, Bounds],
    records_max: int,
    begun: Positions,
    cut: Iterable[Lost] = (),
) -> Plan:
    """The next batch.

    Args:
        next_: where each table stands, all topics together; what is absent begins at 0.
        bounds: the logs, their ends as read-committed readers see them.
        records_max: about so many; each partition that has records gets at least one.
        begun: where the newest batch ends that any of the tables has.
        cut: of which logs the end is gone, and that is accepted.
    """
    cut = list(cut)
    whole = dict(_waiting(next_, bounds))
    # Each table has its part of a batch whole or not at all, so this is one batch's size again.
    unfinished = {
        place: (first, _at(begun, place))
        for place, (first, end) in whole.items()
        if first < _at(begun, place) <= end
    }
    wanted = unfinished or _shares(whole, records_max)
    until: Positions = {}
    for place, (first, _) in sorted(whole.items()):
        until.setdefault(place.topic, {})[str(place.partition)] = wanted.get(place, (0, first))[1]
    ranges = (Range(*place, first, end) for place, (first, end) in sorted(wanted.items()))
    left = {p: end - until[p.topic][str(p.partition)] for p, (_, end) in sorted(whole.items())}
    return Plan(
        until=until,
        ranges=tuple(each for each in ranges if each.first < each.end),
        holes=(
            *_holes(next_, bounds),
            *(Hole(*place, first, end, why) for place, first, end, why in cut),
        ),
        left=sum(left.values()),
        cut=tuple(place for place, count in left.items() if count),
    )


def unreported(holes: tuple[Hole, ...], reported: Positions) -> tuple[Hole, ...]:
    """What of the holes has no line of history yet; a cut log has one for each time."""
    rest = (
        hole._replace(
            first=max(hole.first, reported.get(hole.topic, {}).get(str(hole.partition), 0))
        )
        if hole.why is Why.REMOVED
        else hole
        for hole in holes
    )
    return tuple(hole for hole in rest if hole.first < hole.end)


def _waiting(
    next_: Positions, bounds: Mapping[Place, Bounds]
) -> Iterator[tuple[Place, tuple[int, int]]]:
    """Of each partition, what is there and not in its table."""
    for place, log in sorted(bounds.items()):
        yield place, (min(max(_at(next_, place), log.start), log.end), log.end)


def _holes(next_: Positions, bounds: Mapping[Place, Bounds]) -> Iterator[Hole]:
    for place, log in sorted(bounds.items()):
        if (at := _at(next_, place)) < log.start:
            yield Hole(place.topic, place.partition, at, log.start)


def _shares(
    whole: Mapping[Place, tuple[int, int]], records_max: int
) -> dict[Place, tuple[int, int]]:
    """Each partition's part of a batch, in proportion to what it has, as in Spark's sources."""
    total = sum(end - first for first, end in whole.values())
    if total <= records_max:
        return dict(whole)
    return {
        place: (first, min(end, first + max(1, (end - first) * records_max // total)))
        for place, (first, end) in whole.items()
    }


def _at(positions: Positions, place: Place) -> int:
    return positions.get(place.topic, {}).get(str(place.partition), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What the archive reads and where it writes."""

    bootstrap_servers: str
    prefix: str = "coord"
    #: Folder or URI of the Delta tables.
    tables: str
    #: Folder or URI that holds the archive's id.
    checkpoint: str
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    #: From one batch to the next; while more is there than a batch may have, no time.
    interval_seconds: float = 30.0
    #: About so many records per batch: bounds the work after the archive was away.
    max_offsets_per_trigger: int = 200_000
    #: Whether the first batch goes on in topics that have lost their ends.
    accepts_loss: bool = False
