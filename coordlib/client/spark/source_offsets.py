"""Offsets of `format("coord")`: what Spark's checkpoint says of a batch, and how large one is.

An offset names the ranges of its batch, the group and the query. So a batch that runs again reads
the same records, whoever owns the partitions by then.

Keeps INV-148.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

from coordlib.client.kit.events import TopicPartition
from coordlib.errors import CoordError

VERSION: Final = 1
METADATA: Final = "coord-spark/1"


class PlannedRange(NamedTuple):
    """The records of one partition that one batch reads."""

    begin: int
    end: int
    #: The fencing token under which the partition was owned.
    fence: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch, as Spark's checkpoint has it."""

    group: str
    #: Drawn when the query was new.
    query: str
    #: The number of the batch; 0: nothing was read.
    n: int
    read: Mapping[TopicPartition, PlannedRange]
    #: Topic to the id of the topic that was read, where it is known.
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def first(cls, group: str) -> Self:
        return cls(group, uuid4().hex, 0, {})

    @classmethod
    def parse(cls, text: Mapping[str, Any], group: str) -> Self:
        """Raises CoordError: the checkpoint is of another version or group."""
        if text.get("v") != VERSION:
            what = "The checkpoint is of another version of this source."
            raise CoordError(what, f"version {text.get('v')}", "Start with another checkpoint.")
        if text["group"] != group:
            what = "The checkpoint is of another group."
            hint = f"Set group.id to {text['group']}, or start with another checkpoint."
            raise CoordError(what, f"{text['group']}, not {group}", hint)
        read = {
            TopicPartition(topic, int(number)): PlannedRange(*each)
            for topic, rows in text["read"].items()
            for number, each in rows.items()
        }
        return cls(group, text["query"], text["n"], read, text["ids"])

    def json(self) -> dict[str, Any]:
        read: dict[str, dict[str, list[int]]] = {}
        for place, each in sorted(self.read.items()):
            read.setdefault(place.topic, {})[str(place.partition)] = list(each)
        return {
            "v": VERSION,
            "group": self.group,
            "query": self.query,
            "n": self.n,
            "read": read,
            "ids": dict(self.ids),
        }

    def range_of(self, place: TopicPartition, topic_id: str) -> PlannedRange | None:
        """What this batch read of a partition, unless it was of another topic of the same name."""
        before = self.ids.get(place.topic, "")
        is_other = bool(before and topic_id and before != topic_id)
        return None if is_other else self.read.get(place)

    @property
    def metadata(self) -> str:
        """Of commits whose offsets are behind this batch."""
        return f"{METADATA} {self.query} {self.n}"

    def was_committed_before(self, metadata: str) -> bool:
        """Whether a commit with this metadata was made by this query, before this batch."""
        kind, _, rest = metadata.rpartition(" ")[0].partition(" ")
        number = metadata.rpartition(" ")[2]
        return (
            (kind, rest) == (METADATA, self.query) and number.isdecimal() and int(number) < self.n
        )


def share(
    there: Mapping[TopicPartition, tuple[int, int]], rows_max: int
) -> dict[TopicPartition, int]:
    """The end of each partition's range: together at most so many records, in proportion.

    Args:
        there: of each partition the next offset and the log's end.
    """
    left, ends = rows_max, {}
    total = sum(end - at for at, end in there.values())
    for place, (at, end) in sorted(there.items()):
        size = end - at
        wanted = size if total <= left else -(-size * left // total)
        if taken := min(wanted, left):
            ends[place] = at + taken
        left, total = left - taken, total - size
    return ends
