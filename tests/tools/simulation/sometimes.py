"""Situations that a simulation must have reached, or it has shown nothing about them.

Counted from what a run has left; `python -m tests.tools.sim` adds them up over all seeds.
"""

from typing import Final

from coordlib.core.wire import api
from tests.tools.defects import DEADLINE
from tests.tools.simulation import (
    forgeries,
    lost,
    memory,
    sometimes_assigned,
    sometimes_beside,
    sometimes_stores,
)
from tests.tools.simulation.evidence import Evidence, Told
from tests.tools.simulation.lake import sometimes as sometimes_lake
from tests.tools.simulation.strangers import STRANGER
from tests.tools.simulation.transactions import sometimes as sometimes_copiers
from tests.tools.simulation.transactions import sometimes_couriers
from tests.tools.simulation.world import GROUP, REPLY_PARTITIONS, World

SITUATIONS: Final = (
    "join while PreparingRebalance",
    "leader dies before its sync",
    "follower syncs before its leader",
    "static member replaced while parked",
    "commit in CompletingRebalance refused",
    "group emptied and filled again",
    "session expired",
    "batch ran again after its commit",
    "request repeated",
    "member fenced by its own clock",
    "rebuilt from the topics",
    "driver fenced by a newer one",
    "late end of a transaction refused",
    "start refused",
    "undecodable request",
    "members of different topics",
    "group is full",
    "let in after the group was full",
    "stranger's commit refused",
    "stranger's commit into an empty group",
    "group set aside",
    "group set aside by a deadline",
    "group set aside once more",
    "group went on after its release",
    "neighbour set aside",
    "leader could not divide",
    "assigned after its leader could not divide",
    *sometimes_assigned.SITUATIONS,
    *forgeries.SITUATIONS,
    *sometimes_beside.SITUATIONS,
    *lost.SITUATIONS,
    *memory.SITUATIONS,
    *sometimes_stores.SITUATIONS,
    *sometimes_copiers.SITUATIONS,
    *sometimes_couriers.SITUATIONS,
    *sometimes_lake.SITUATIONS,
)

#: What a group does that goes on.
PROGRESS: Final = ("RebalanceStarted", "GenerationStarted", "AssignmentIssued", "OffsetsCommitted")


def count_sometimes(world: World) -> dict[str, int]:
    found = dict.fromkeys(SITUATIONS, 0)
    evidence = Evidence(world.cluster, world.plan.shards, REPLY_PARTITIONS)
    events = [event for event in evidence.told if event.group == GROUP]
    _from_events(found, events, evidence)
    _from_requests(found, evidence)
    _from_quarantines(found, evidence.told)
    sometimes_assigned.count(found, world, evidence)
    forgeries.count(found, world, evidence)
    sometimes_beside.count(found, world, evidence)
    lost.count(found, world, evidence)
    memory.count(found, world)
    sometimes_stores.count(found, world, evidence)
    sometimes_copiers.count(found, world, evidence)
    sometimes_couriers.count(found, world, evidence)
    sometimes_lake.count(found, world, evidence)
    topics = {program.wish for program in world.programs}
    found["members of different topics"] += len(topics) > 1
    late = tuple(f"{name}-" for name in world.tried_again)
    for event in events:
        is_late = event.type == "MemberJoined" and event.member.startswith(late)
        found["let in after the group was full"] += is_late
    for line in world.history:
        found["member fenced by its own clock"] += line.what == "lost"
    found["batch ran again after its commit"] += world.engine.crashes.get("P6", 0)
    found["batch ran again after its commit"] += world.engine.crashes.get("unheard-commit", 0)
    found["rebuilt from the topics"] += max(0, world.checkpoints - 1)
    found["driver fenced by a newer one"] += sum(d.was_fenced for d in world.drivers)
    found["late end of a transaction refused"] += world.cluster.late_refused
    found["start refused"] += world.refusals
    return found


def _from_events(found: dict[str, int], events: list[Told], evidence: Evidence) -> None:
    is_open, was_empty, is_unassigned = False, False, False
    for event in events:
        if event.type == "AssignmentFailed":
            found["leader could not divide"] += 1
            is_unassigned = True
        elif event.type == "AssignmentIssued" and is_unassigned and event.detail["partitions"]:
            found["assigned after its leader could not divide"] += 1
            is_unassigned = False
        if event.type == "RebalanceStarted":
            is_open = True
        elif event.type == "MemberJoined":
            found["join while PreparingRebalance"] += is_open
            found["group emptied and filled again"] += was_empty
            was_empty = False
        elif event.type in ("GenerationStarted", "GroupEmptied"):
            is_open, was_empty = False, event.type == "GroupEmptied"
        elif event.type == "MemberRemoved":
            found["session expired"] += event.reason == "session expired"
            found["leader dies before its sync"] += "sync" in event.reason
    known = {(each.shard, each.offset) for each in evidence.asked}
    for event in evidence.told:
        is_unknown = (event.shard, event.offset) not in known
        found["undecodable request"] += event.type == "RequestRejected" and is_unknown


def _from_quarantines(found: dict[str, int], events: list[Told]) -> None:
    was_released, releases = False, 0
    for event in events:
        if event.type == "GroupQuarantined":
            if event.group != GROUP:
                found["neighbour set aside"] += 1
                continue
            found["group set aside"] += 1
            found["group set aside once more"] += releases > 0
            is_by_deadline = DEADLINE in event.detail["exception"]
            found["group set aside by a deadline"] += is_by_deadline
            was_released = False
        elif event.group == GROUP:
            releases += event.type == "GroupReleased"
            goes_on = was_released and event.type in PROGRESS
            found["group went on after its release"] += goes_on
            was_released = event.type == "GroupReleased" or (was_released and not goes_on)


def _from_requests(found: dict[str, int], evidence: Evidence) -> None:
    seen: set[tuple[str, str]] = set()
    for each in evidence.asked:
        key = (each.request.client, each.request.id)
        found["request repeated"] += key in seen
        seen.add(key)
        for answer in evidence.answers.get(each.coordinate, []):
            error = answer["error"]
            if isinstance(each.request, api.OffsetCommit):
                if each.request.client == STRANGER:
                    found["stranger's commit refused"] += error != "NONE"
                    found["stranger's commit into an empty group"] += error == "NONE"
                refused = error == "REBALANCE_IN_PROGRESS"
                found["commit in CompletingRebalance refused"] += refused
            is_join = isinstance(each.request, api.JoinGroup | api.Subscribe)
            if is_join and each.request.group == GROUP:
                found["group is full"] += error == "GROUP_MAX_SIZE_REACHED"
            if isinstance(each.request, api.JoinGroup | api.SyncGroup):
                found["static member replaced while parked"] += error == "FENCED_INSTANCE_ID"
            if isinstance(each.request, api.SyncGroup) and not each.request.assignments:
                found["follower syncs before its leader"] += error == "NONE"
