"""The user metadata of an archive's commit: its number, and how far its table is complete.

Data and position are in one commit, so they can never disagree. New fields
come last, with defaults that mean "as before".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Positions = dict[str, dict[str, int]]
"""Topic without prefix -> partition (as text, for JSON) -> next offset to read."""


class Hole(NamedTuple):
    """Records that Kafka had deleted before they were read: from `first` up to `end`, exclusive."""

    topic: str
    partition: int
    first: int
    end: int


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
    told: Positions = field(default_factory=dict)
    #: Shard (as text) -> time of its newest row, epoch ms (`group_snapshots` alone has them).
    as_of_ms: dict[str, int] = field(default_factory=dict)

    def following(
        self,
        identity: str,
        ends: Positions,
        bad: int,
        until: Positions,
        holes: Iterable[Hole],
        as_of_ms: Mapping[str, int] | None = None,
    ) -> "Commit":
        """The commit after this one.

        Args:
            ends: of the table's own topics, where the batch ends.
            bad: records of the batch that were not ours.
            until: where the batch ends in all topics.
            holes: lost records for which this commit has events.
            as_of_ms: the time of the newest row of each shard that has rows in it.
        """
        return Commit(
            identity,
            self.number + 1,
            moved(self.next, ends),
            self.skipped + bad,
            until,
            merged(self.told, _ends_of(holes)),
            {**self.as_of_ms, **(as_of_ms or {})},
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
                "told": self.told,
                "as_of_ms": self.as_of_ms,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | None) -> "Commit | None":
        """The metadata of an archive's commit; None for any other commit."""
        try:
            found = json.loads(text or "{}")
            later: Mapping[str, Any] = {key: found.get(key) or {} for key in _LATER}
            return cls(
                found["coord_archive"],
                found["number"],
                found["next"],
                found["skipped"],
                *later.values(),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


_LATER = ("until", "told", "as_of_ms")


def commit_in(log_file: str) -> Commit | None:
    """An archive's commit, if this file of Delta's log is one."""
    actions = (json.loads(line) for line in log_file.splitlines() if line)
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return Commit.from_json(info.get("userMetadata"))


def merged(left: Positions, right: Positions) -> Positions:
    """The later position of each partition."""
    found = {topic: dict(partitions) for topic, partitions in left.items()}
    for topic, partitions in right.items():
        mine = found.setdefault(topic, {})
        for partition, offset in partitions.items():
            mine[partition] = max(offset, mine.get(partition, 0))
    return found


def moved(positions: Positions, ends: Positions) -> Positions:
    """Some partitions are elsewhere now: further, or at the beginning of another log."""
    found = {topic: dict(partitions) for topic, partitions in positions.items()}
    for topic, partitions in ends.items():
        found.setdefault(topic, {}).update(partitions)
    return found


def _ends_of(holes: Iterable[Hole]) -> Positions:
    ends: Positions = {}
    for hole in holes:
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
