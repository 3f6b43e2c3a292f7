"""What a run has left in the topics, decoded, in the order of the log."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import Marker, decode_marker
from coordlib.job.progress import MARKER_KEY
from tests.tools.simulation.cluster import Cluster, Record
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.world import GROUP, PREFIX

#: Lines that the group's kind writes; those of the shard about it may name another one.
TOLD_BY_KIND = ("MemberJoined", "GenerationStarted", "GroupEmptied", "GroupKindChanged")


@dataclass(frozen=True)
class Asked:
    """A request of the log, and where and when it was taken."""

    shard: int
    offset: int
    true_ms: int
    request: api.Request
    #: Which input it came by.
    topic: str = REQUESTS

    @property
    def coordinate(self) -> str:
        return f"{self.topic}{self.shard}-{self.offset}"


@dataclass(frozen=True)
class Told:
    """A line of history; `offset` is that of the record that was being judged."""

    shard: int
    offset: int
    type: str
    group: str
    #: Who divides: classic or assigned.
    kind: str
    member: str
    generation: int
    reason: str
    detail: dict[str, Any]
    event_id: str
    cause: str
    #: As it stands in the topic.
    record: Record


def newest_marker(cluster: Cluster) -> Marker | None:
    """Of the batch that was committed last, whether or not its driver heard so."""
    value = cluster.newest_by_key(f"{PREFIX}.progress", 0).get(MARKER_KEY)
    return None if value is None else decode_marker(value)


@dataclass
class Evidence:
    """All topics of one run."""

    cluster: Cluster
    shards: int
    replies: int
    #: The group that is looked at, where a check looks at one.
    group: str = GROUP
    #: Where each batch ended, in order: next offset of each input.
    cuts: list[dict[str, dict[str, int]]] = field(default_factory=list)

    def about(self, group: str) -> "Evidence":
        """The same, of another group; what concerns all of them is not decoded again."""
        other = Evidence(self.cluster, self.shards, self.replies, group, self.cuts)
        for name in ("asked", "positions", "judged", "said", "told", "_answer_records", "answers"):
            other.__dict__[name] = getattr(self, name)
        return other

    @cached_property
    def asked(self) -> list[Asked]:
        """Requests of members and strangers that can be read; no ticks."""
        return list(self._read("requests", REQUESTS))

    @cached_property
    def positions(self) -> list[Asked]:
        """The same of the input for those who are no members."""
        return list(self._read("offsets", COMMITS))

    @cached_property
    def judged(self) -> list[Asked]:
        """Requests and positions of each shard in the order in which they were judged."""
        if not self.positions:
            return self.asked

        def place(each: Asked) -> tuple[int, int, int, int]:
            if each.topic == REQUESTS:
                return (each.shard, each.offset, 0, 0)
            return (each.shard, self.stood_at(each), 1, each.offset)

        return sorted((*self.asked, *self.positions), key=place)

    def stood_at(self, position: Asked) -> int:
        """The newest request that was judged before a position; -1: none."""
        rows = self._ends[position.shard]
        number = bisect_right(rows, position.offset, key=lambda row: row[1])
        return rows[number][0] - 1 if number < len(rows) else self._last(position.shard)

    @cached_property
    def _ends(self) -> dict[int, list[tuple[int, int]]]:
        return {shard: self._ends_of(shard) for shard in range(self.shards)}

    def _ends_of(self, shard: int) -> list[tuple[int, int]]:
        """After each batch: the next request, and the next position."""
        topics = (f"{PREFIX}.requests", f"{PREFIX}.offsets")
        found = [
            tuple(cut.get(topic, {}).get(str(shard), 0) for topic in topics) for cut in self.cuts
        ]
        return [(requests, positions) for requests, positions in found]

    def _last(self, shard: int) -> int:
        return self.cluster.partitions[(f"{PREFIX}.requests", shard)].end

    def _read(self, topic: str, letter: str) -> Iterator[Asked]:
        for shard in range(self.shards):
            # Judged as soon as they stand there, whatever becomes of their transactions.
            place = (f"{PREFIX}.{topic}", shard)
            for record in self.cluster.partitions[place].history:
                if record.is_marker:
                    continue
                request = codec.decode_request(record.value)
                if isinstance(request, api.Request):
                    yield Asked(shard, record.offset, record.true_ms, request, letter)

    @cached_property
    def answers(self) -> dict[str, list[dict[str, Any]]]:
        """Coordinate of a request -> the answers to it."""
        return {
            cause: [answer for answer, _ in rows] for cause, rows in self._answer_records.items()
        }

    @cached_property
    def said(self) -> list[dict[str, Any]]:
        """All answers and notices to members, decoded; those of a partition in order."""
        return [
            msgspec.json.decode(record.value or b"{}")
            for reply in range(self.replies)
            for record in self._visible("responses", reply)
        ]

    @cached_property
    def releases(self) -> set[int]:
        """Where the Releases of the group's shard stand."""
        is_ours = [each for each in self.asked if each.request.group == self.group]
        return {each.offset for each in is_ours if isinstance(each.request, api.Release)}

    @cached_property
    def _kinds(self) -> tuple[list[int], list[str]]:
        lines = [
            event
            for event in self.told
            if event.group == self.group and event.offset >= 0 and event.type in TOLD_BY_KIND
        ]
        return [event.offset for event in lines], [event.kind for event in lines]

    def is_assigned(self, each: Asked) -> bool:
        """Whether the members' group was server-assigned when it judged this."""
        offsets, kinds = self._kinds
        number = bisect_right(offsets, each.offset) - 1
        return number >= 0 and kinds[number] == ASSIGNED

    def answered(self, coordinate: str) -> list[tuple[dict[str, Any], Record]]:
        """The answers to a request, and where they stand."""
        return self._answer_records.get(coordinate, [])

    @cached_property
    def _answer_records(self) -> dict[str, list[tuple[dict[str, Any], Record]]]:
        found: dict[str, list[tuple[dict[str, Any], Record]]] = {}
        for reply in range(self.replies):
            for record in self._visible("responses", reply):
                answer = msgspec.json.decode(record.value or b"{}")
                if "id" in answer:  # notifications have none
                    found.setdefault(answer["cause"], []).append((answer, record))
        return found

    @cached_property
    def told(self) -> list[Told]:
        return [event for shard in range(self.shards) for event in self._events(shard)]

    def _events(self, shard: int) -> Iterator[Told]:
        for record in self._visible("events", shard):
            value = msgspec.json.decode(record.value or b"{}")
            coordinate = value["event_id"].split("-", 1)[1].rsplit("-", 1)[0]
            yield Told(
                shard,
                int(coordinate.rsplit("-", 1)[1]) if coordinate.startswith("r") else -1,
                value["type"],
                value["group"],
                value["kind"],
                value["member"],
                value["generation"],
                value["reason"],
                value["detail"],
                value["event_id"],
                value["cause"],
                record,
            )

    def records(self, topic: str, partition: int) -> list[Record]:
        return self._visible(topic, partition)

    def taken_ms(self, shard: int, offset: int) -> int:
        """True time at which the log took a request."""
        return self.cluster.partitions[(f"{PREFIX}.requests", shard)].at(offset).true_ms

    def clock_stood_ms(self, each: Asked) -> int:
        """True time of the newest request before it: where its shard's clock stood, at the least.

        A position does not move the clock.
        """
        requests = self.cluster.partitions[(f"{PREFIX}.requests", each.shard)].history
        number = bisect_right(requests, each.true_ms, key=lambda record: record.true_ms)
        return min(each.true_ms, requests[number - 1].true_ms) if number else 0

    def _visible(self, topic: str, partition: int) -> list[Record]:
        return self.cluster.partitions[(f"{PREFIX}.{topic}", partition)].read(0)[0]
