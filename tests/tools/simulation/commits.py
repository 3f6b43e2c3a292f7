"""What was committed: by whom it was taken, what a fetch shows of it, and that it is all.

Offsets are kept alike for every kind of group. Who is a member, and of which generation, is read
from the history.
"""

from typing import Any, Final

import msgspec

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.wire import api
from tests.tools.simulation.evidence import Asked, Evidence
from tests.tools.simulation.plan import CLASSIC
from tests.tools.simulation.teams import Team
from tests.tools.simulation.world import PREFIX, Violation, World

#: They end CompletingRebalance: somebody has synced, or everybody begins anew.
SYNCED: Final = ("AssignmentIssued", "RebalanceStarted")
#: When a group forgets offsets: before a record is judged, or by it.
BEFORE, BY = 0, 1


def check(evidence: Evidence) -> None:
    """Everything here that a run's log alone can show."""
    check_commits(evidence)
    check_strangers(evidence)


def check_committed(world: World, team: Team, evidence: Evidence) -> None:
    """INV-22, INV-59: all is done and committed that somebody read at last; nothing is lost.

    While they leave, a topic may be nobody's already, and what was committed long ago expires.

    Where a group changed its kind, all start anew, and perhaps nobody wants some topic any more.
    """
    committed = world.cluster.newest_by_key
    found = _expired(evidence)
    for shard in range(world.plan.shards):
        for key, value in committed(f"{PREFIX}.committed", shard).items():
            group, topic, partition = msgspec.json.decode(key)
            if group == team.name:
                found[(topic, partition)] = msgspec.json.decode(value)["offset"]
    for place, partition in world.cluster.partitions.items():
        if place[0] in team.read_at_rest and partition.end and found.get(place) != partition.end:
            raise Violation(
                f"INV-59: {place} ends at {partition.end}, committed by {team.name} is "
                f"{found.get(place)}"
            )


def _expired(evidence: Evidence) -> dict[tuple[str, int], int]:
    """What was committed of partitions whose offsets have expired since."""
    newest: dict[tuple[str, int], int] = {}
    expired: dict[tuple[str, int], int] = {}
    for event in evidence.told:
        if event.group == evidence.group and event.type == "OffsetsCommitted":
            for row in event.detail["offsets"]:
                place = (row["topic"], row["partition"])
                newest[place] = row["offset"]
                expired.pop(place, None)
        elif event.group == evidence.group and event.type == "OffsetsExpired":
            places = [(row["topic"], row["partition"]) for row in event.detail["offsets"]]
            expired |= {place: newest[place] for place in places if place in newest}
    return expired


def check_strangers(evidence: Evidence) -> None:
    """INV-18: who is no member changes no offset, unless nobody is one."""
    living: set[str] = set()
    for event in evidence.told:
        if event.group != evidence.group:
            continue
        if event.type == "MemberJoined":
            living.add(event.member)
        elif event.type in ("MemberRemoved", "MemberFenced"):
            living.discard(event.member)
        elif event.type == "OffsetsCommitted" and living and event.member not in living:
            raise Violation(
                f"INV-18: a commit of {event.member or 'nobody'} was taken (r{event.shard}-"
                f"{event.offset}), who is no member, and {len(living)} are"
            )


def check_commits(evidence: Evidence) -> None:
    """INV-18, INV-22, INV-23: only the living generation commits, and a fetch shows the newest."""
    unassigned, log = _unassigned(evidence), _Log(evidence)
    for each in evidence.judged:
        request = each.request
        if request.group != evidence.group:
            continue
        log.go_to(each)
        answers = evidence.answers.get(each.coordinate, [])
        if isinstance(request, api.OffsetCommit) and answers[0]["error"] == "NONE":
            # -1: an operator's, and nobody is left in the group.
            is_classic = not evidence.is_assigned(each)
            if is_classic and request.generation not in (log.generation, -1):
                raise Violation(
                    f"INV-18: a commit of generation {request.generation} was taken in generation "
                    f"{log.generation} ({each.coordinate})"
                )
            # One without a generation is taken when nobody is left. The cause may be a tick, and no
            # request: check_strangers looks at those.
            is_of_member = request.generation != -1
            if is_of_member and any(first < log.place < last for first, last in unassigned):
                raise Violation(f"INV-18: {each.coordinate} commits before anybody has synced")
            log.committed |= _taken(request, answers[0])
        elif isinstance(request, api.Release) and answers[0]["error"] == "NONE":
            log.committed |= _taken(request, answers[0])
        elif isinstance(request, api.OffsetFetch):
            for answer in answers:
                _check_fetch(each, answer, log.committed)
        log.leave(each)


class _Log:
    """What the group's history says up to a record: its generation, and what it has forgotten."""

    def __init__(self, evidence: Evidence) -> None:
        self.committed: dict[tuple[str, int], int] = {}
        self.generation = 0
        #: Shard and offset of the newest request of it.
        self.place = (-1, -1)
        self._begun = sorted(
            ((event.shard, event.offset), event.generation)
            for event in evidence.told
            if event.group == evidence.group and event.type in ("GenerationStarted", "GroupEmptied")
        )
        self._gone = _forgotten(evidence)

    def go_to(self, each: Asked) -> None:
        """A position stands behind its batch's last request; nothing else happens there."""
        if each.topic != REQUESTS:
            return
        self.place = (each.shard, each.offset)
        while self._begun and self._begun[0][0] <= self.place:
            self.generation = self._begun.pop(0)[1]
        self._forget(BEFORE)

    def leave(self, each: Asked) -> None:
        """What this request deleted is gone; positions of its batch may come back with others."""
        if each.topic == REQUESTS:
            self._forget(BY)

    def _forget(self, when: int) -> None:
        while self._gone and self._gone[0][0] <= (*self.place, when):
            for row in self._gone.pop(0)[1]:
                self.committed.pop(row, None)


def _forgotten(evidence: Evidence) -> list[tuple[tuple[int, int, int], set[tuple[str, int]]]]:
    """What the group was made to forget, and where: before a record is judged, or by it."""
    found = []
    for event in evidence.told:
        if event.group == evidence.group and event.type in ("OffsetsExpired", "OffsetsDeleted"):
            rows = {(row["topic"], row["partition"]) for row in event.detail["offsets"]}
            is_first = event.cause.startswith("deadline:")
            found.append(((event.shard, event.offset, BEFORE if is_first else BY), rows))
    return found


def _taken(
    request: api.OffsetCommit | api.Release, answer: dict[str, Any]
) -> dict[tuple[str, int], int]:
    failed = {(row["topic"], row["partition"]) for row in answer.get("failed") or ()}
    rows = {(row.topic, row.partition): row.offset for row in request.offsets}
    return {place: offset for place, offset in rows.items() if place not in failed}


def _unassigned(evidence: Evidence) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From each generation's beginning to its assignment: CompletingRebalance."""
    found, begun = [], None
    for event in evidence.told:
        if event.group == evidence.group and event.kind != CLASSIC:
            begun = None
        elif event.group == evidence.group and event.type == "GenerationStarted":
            begun = (event.shard, event.offset)
        elif event.group == evidence.group and event.type in SYNCED:
            if begun is not None:
                found.append((begun, (event.shard, event.offset)))
            begun = None
    return found


def _check_fetch(
    each: Asked, answer: dict[str, object], committed: dict[tuple[str, int], int]
) -> None:
    rows = answer.get("offsets")
    for row in rows if isinstance(rows, list) else []:
        expected = committed.get((row["topic"], row["partition"]), -1)
        if row["offset"] != expected:
            raise Violation(
                f"INV-23: {each.coordinate} was told offset {row['offset']} of partition "
                f"{row['partition']}, committed was {expected}"
            )
