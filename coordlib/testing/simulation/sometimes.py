"""Situations that a simulation must have reached, or it has shown nothing about them.

Counted from what a run has left; `coord sim` adds them up over all seeds.
"""

from typing import Final

from coordlib.records import requests as rq
from coordlib.testing.simulation.evidence import Evidence, Told
from coordlib.testing.simulation.world import GROUP, REPLY_PARTITIONS, World

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
    "start refused",
    "undecodable request",
)


def count_sometimes(world: World) -> dict[str, int]:
    found = dict.fromkeys(SITUATIONS, 0)
    evidence = Evidence(world.cluster, world.plan.shards, REPLY_PARTITIONS)
    events = [event for event in evidence.told if event.group == GROUP]
    _from_events(found, events, evidence)
    _from_requests(found, evidence)
    for line in world.history:
        found["member fenced by its own clock"] += line.what == "lost"
    found["batch ran again after its commit"] += world.engine.crashes.get("P6", 0)
    found["batch ran again after its commit"] += world.engine.crashes.get("unheard-commit", 0)
    found["rebuilt from the topics"] += max(0, world.checkpoints - 1)
    found["driver fenced by a newer one"] += sum(d.was_fenced for d in world.drivers)
    found["start refused"] += world.refusals
    return found


def _from_events(found: dict[str, int], events: list[Told], evidence: Evidence) -> None:
    is_open, was_empty = False, False
    for event in events:
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
    for event in evidence.told:
        found["undecodable request"] += event.type == "RequestRejected"


def _from_requests(found: dict[str, int], evidence: Evidence) -> None:
    seen: set[tuple[str, str]] = set()
    for each in evidence.asked:
        key = (each.request.client, each.request.id)
        found["request repeated"] += key in seen
        seen.add(key)
        for answer in evidence.answers.get(each.coordinate, []):
            error = answer["error"]
            if isinstance(each.request, rq.OffsetCommit):
                refused = error == "REBALANCE_IN_PROGRESS"
                found["commit in CompletingRebalance refused"] += refused
            if isinstance(each.request, rq.JoinGroup | rq.SyncGroup):
                found["static member replaced while parked"] += error == "FENCED_INSTANCE_ID"
            if isinstance(each.request, rq.SyncGroup) and not each.request.assignments:
                found["follower syncs before its leader"] += error == "NONE"
