"""INV-26, its upper side: what is due at a check of retention is gone after it.

When an offset was committed, and since when nobody is in its group, the history says; how far the
shard's clock has gone since then follows from the timestamps of the log. An offset may outlive its
time by one interval between two checks. Not asked of:

- groups with members that are not known to be at rest, or whose members may want the topic;
- groups that are set aside, whose time counts from their release here;
- groups that have told a first member its id since nobody is in them: how long that id is kept
  depends on ticks that this does not follow;
- worlds that can have too many large answers unread, where retention waits for a tick (INV-68).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.wire import api
from coordlib.errors import ErrorCode
from tests.tools.core import config_of
from tests.tools.simulation.evidence import Evidence, Told, newest_marker
from tests.tools.simulation.log_clock import LogClock, of_requests
from tests.tools.simulation.strangers import ELSEWHERE
from tests.tools.simulation.world import PREFIX, Violation, World

Place = tuple[str, int]
#: After these lines the members of a group are at rest; until any other line that is not neutral.
AT_REST: Final = ("AssignmentIssued", "GroupSettled")
#: The kind of entities that keep no offsets, and that retention does not end.
CLUSTERS: Final = "brokers"
#: They say nothing of who is in a group.
NEUTRAL: Final = ("CommitRefused", "RequestRejected")
GONE: Final = ("OffsetsExpired", "OffsetsDeleted")


@dataclass
class Kept:
    """What a group keeps by a point of its history, and since which record."""

    since: int
    is_empty: bool = True
    is_at_rest: bool = False
    is_aside: bool = False
    #: Place of an offset -> the record at whose clock it was committed; None: before any record.
    offsets: dict[Place, int | None] = field(default_factory=dict)
    #: Since when it has no offsets.
    bare_since: int = 0


def check(world: World, evidence: Evidence) -> None:
    """The first offset, or group without offsets, that is still there is raised."""
    if not world.plan.retention_ms or world.plan.sizes > 1:
        return
    marker = newest_marker(world.cluster)
    ends = {} if marker is None else marker.next_offsets.get(f"{PREFIX}.requests", {})
    for shard in range(world.plan.shards):
        Retention(world, evidence, shard).check(ends.get(str(shard), 0) - 1)


class Retention:
    """What the groups of one shard keep, line by line."""

    def __init__(self, world: World, evidence: Evidence, shard: int) -> None:
        settings = world.engine.settings
        self._retention_ms = config_of(settings).offsets_retention_ms
        self._interval_ms = settings.bounds.check_interval_ms
        self._clock: LogClock = of_requests(evidence, shard)
        self._lines = [
            event for event in evidence.told if event.shard == shard and event.kind != CLUSTERS
        ]
        self._stood = {
            each.coordinate: evidence.stood_at(each)
            for each in evidence.positions
            if each.shard == shard
        }
        #: Group -> the JoinGroups that were answered with an id to join with.
        self._announced: dict[str, list[int]] = {}
        for each in evidence.asked:
            if each.shard == shard and isinstance(each.request, api.JoinGroup):
                answers = evidence.answers.get(each.coordinate, ())
                if any(
                    answer.get("error") == ErrorCode.MEMBER_ID_REQUIRED.name for answer in answers
                ):
                    self._announced.setdefault(each.request.group, []).append(each.offset)
        self._groups: dict[str, Kept] = {}

    def check(self, last: int) -> None:
        """`last`: the newest record that has been judged."""
        for event in self._lines:
            at = self._place(event)
            group = self._groups.get(event.group)
            if group is None:
                if event.type == "GroupCreated":
                    self._groups[event.group] = Kept(at, bare_since=at)
            elif event.type not in NEUTRAL:
                self._judge(event, group, at)
        for name, group in self._groups.items():
            self._must_go(name, group, group.offsets, last)

    def _place(self, event: Told) -> int:
        """The newest request that had moved the clock by then; -1: none."""
        if event.offset >= 0:
            return event.offset
        # A step of a position: its line has the coordinate of that position.
        coordinate = event.event_id.split("-", 1)[1].rsplit("-", 1)[0]
        return self._stood.get(coordinate, -1)

    def _judge(self, event: Told, group: Kept, at: int) -> None:
        """One more line about a group that is there."""
        # What this record did, it did with its own time: all before it must have been right.
        before = at - 1 if event.offset >= 0 else at
        if event.type == "OffsetsCommitted":
            places = _places(event)
            self._must_go(event.group, group, places, before)
            group.offsets.update(dict.fromkeys(places, at if at >= 0 else None))
        elif event.type in GONE:
            places = _places(event)
            self._must_go(event.group, group, places, before)
            for place in places:
                group.offsets.pop(place, None)
            group.bare_since = at
        else:
            self._must_go(event.group, group, group.offsets, before)
            self._enter(event, group, at)

    def _enter(self, event: Told, group: Kept, at: int) -> None:
        if event.type == "GroupDeleted":
            del self._groups[event.group]
        group.since = at
        group.is_at_rest = event.type in AT_REST
        if event.type in ("GroupEmptied", "MemberJoined"):
            group.is_empty = event.type == "GroupEmptied"
        if event.type in ("GroupQuarantined", "GroupReleased"):
            group.is_aside = event.type == "GroupQuarantined"

    def _must_go(self, name: str, group: Kept, places: Iterable[Place], last: int) -> None:
        """Raise if one of these was there after this record, and was due before."""
        if group.is_aside or not (group.is_empty or group.is_at_rest):
            return
        if any(group.since <= each <= last for each in self._announced.get(name, ())):
            return
        if group.is_empty and not group.offsets:
            self._demand(name, "it", max(group.since, group.bare_since), last, self._interval_ms)
        for place in places:
            committed = group.offsets.get(place)
            if committed is None:
                continue
            if group.is_empty or place[0] == ELSEWHERE:
                since, most_ms = max(group.since, committed), self._retention_ms
                self._demand(name, f"{place[0]}-{place[1]}", since, last, most_ms)

    def _demand(self, name: str, what: str, since: int, last: int, most_ms: int) -> None:
        kept_ms = self._clock.least_ms(max(since, 0), last)
        if kept_ms >= most_ms + self._interval_ms:
            raise Violation(
                f"INV-26: {what} of group {name} is kept for {kept_ms} ms of the clock, from "
                f"{REQUESTS}-{since} to {REQUESTS}-{last}; it is due after {most_ms} ms"
            )


def _places(event: Told) -> dict[Place, None]:
    return {(row["topic"], row["partition"]): None for row in event.detail["offsets"]}
