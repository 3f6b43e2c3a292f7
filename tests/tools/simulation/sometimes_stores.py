"""Situations of clusters that a campaign must have met."""

from typing import Any, Final

from coordlib.core.wire import api
from tests.tools.simulation.evidence import Evidence, Told
from tests.tools.simulation.world import World

SITUATIONS: Final = (
    "store led",
    "value committed",
    "offline election",
    "leadership handed over",
    "controlled shutdown ended",
    "former leader guarded",
    "leader put out",
    "unclean election",
    "ISR emptied",
    "deletion that waited",
    "partition moved",
    "refused change of an ISR",
    "late duplicate of a change refused",
    "silent store came back",
    "store replaced",
    "store registered anew",
    "mute leader stopped by its lease",
    "mute leader followed by another",
)
_INACTIVE: Final = "Inactive"


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what this run has met."""
    fleet = world.fleet
    if fleet is None:
        return
    found["store led"] += fleet.met["led"]
    found["value committed"] += fleet.met["committed"]
    found["mute leader stopped by its lease"] += fleet.met["mute and stopped"]
    found["mute leader followed by another"] += fleet.met["mute and succeeded"]
    found["ISR emptied"] += fleet.met["empty ISR"]
    found["store replaced"] += sum(each.counts["replaced"] for each in fleet.stores)
    found["refused change of an ISR"] += sum(each.counts["isr refused"] for each in fleet.stores)
    events = [event for event in evidence.told if event.group == fleet.name]
    for event in events:
        _of_event(found, event)
    _of_order(found, events)
    seen: set[tuple[str, str]] = set()
    for each in evidence.asked:
        if isinstance(each.request, api.AlterPartition):
            key = (each.request.client, each.request.id)
            is_refused = key in seen and _is_refused(evidence.answers.get(each.coordinate, []))
            found["late duplicate of a change refused"] += is_refused
            seen.add(key)


def _is_refused(answers: list[dict[str, Any]]) -> bool:
    rows = [row for answer in answers for row in answer.get("results", ())]
    return any(row["error"] not in ("NONE", "NEW_LEADER_ELECTED") for row in rows)


def _of_event(found: dict[str, int], event: Told) -> None:
    if event.type == "PartitionsChanged":
        kinds = [line.get("election") for line in event.detail["partitions"]]
        found["offline election"] += "offline" in kinds
        found["unclean election"] += "unclean" in kinds
        found["leadership handed over"] += event.reason == "leader let go"
    found["former leader guarded"] += event.type == "HandOverDelayed"
    found["partition moved"] += event.type == "ReassignmentCompleted"
    found["leader put out"] += event.reason == "did not let go in time"
    found["store registered anew"] += event.type == "BrokerUnregistered"


def _of_order(found: dict[str, int], events: list[Told]) -> None:
    """What needs more than one line."""
    silent: set[str] = set()
    stopping: set[str] = set()
    deleting: dict[str, int] = {}
    for event in events:
        if event.type == "TopicDeletionStarted":
            deleting[event.detail["topic"]] = event.offset
        elif event.type == "TopicDeleted":
            began = deleting.pop(event.detail["topic"], event.offset)
            found["deletion that waited"] += event.offset - began > 20
        elif event.type == "BrokerStateChanged":
            to = event.detail["to"]
            found["silent store came back"] += event.member in silent and to == "Active"
            found["controlled shutdown ended"] += (
                event.member in stopping and to == _INACTIVE and event.reason.startswith("left")
            )
            silent.discard(event.member)
            stopping.discard(event.member)
            if to == _INACTIVE and event.reason == "session expired":
                silent.add(event.member)
            if to == "Stopping":
                stopping.add(event.member)
