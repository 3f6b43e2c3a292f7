"""Situations of users, of other groups and of crowds that a campaign must have met; see
`sometimes.py`."""

from itertools import pairwise
from typing import Final

from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.wire import api
from tests.tools.simulation.broker_faults import INPUTS
from tests.tools.simulation.bystanders import THROTTLED
from tests.tools.simulation.crowds import CROWD, GREEDY, HOARDER
from tests.tools.simulation.evidence import Asked, Evidence
from tests.tools.simulation.plan import ASSIGNED, CLASSIC
from tests.tools.simulation.program import Program
from tests.tools.simulation.world import GROUP, PREFIX, World

#: What a user's history calls it -> the situation.
_BY_LINE: Final = {
    "subscribed": "unsubscribed, and back",
    "callback_raised": "callback raised",
    "closed_in_callback": "closed in a callback",
    "closes_patiently": "closed and waited for the log",
}
#: The type of a line of history -> the situation, in whatever group.
_BY_EVENT: Final = {
    "GroupDeleted": "group deleted or expired",
    "OffsetsDeleted": "offsets deleted",
    "OffsetsExpired": "offsets expired",
}
SITUATIONS: Final = (
    *_BY_LINE.values(),
    *_BY_EVENT.values(),
    "went back in a partition",
    "paused in a rebalance",
    "many messages at once",
    "messages lost before they were worked on",
    "commit waited for",
    "commit waited for in a callback",
    "commit given up",
    "transport shared",
    "expression of a classic member",
    "classic subscription changed",
    "groups of both kinds in a shard",
    "two server-assigned groups in a shard",
    "position taken",
    "position into a living group refused",
    "position under the name of a member",
    "position that cannot be kept",
    "deletion refused to a living group",
    "offsets of a topic that is read kept",
    "group described",
    "new group throttled",
    "throttled group made later",
    "shard full",
    "offset too large for its group",
    "wish too large for its group",
    "fetch too large for an answer",
    "rebuilt while a group was set aside",
    "judged as in production",
    "partition added to the job's topics",
)


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    for line in world.history:
        if line.what in _BY_LINE:
            found[_BY_LINE[line.what]] += 1
        found["went back in a partition"] += line.what == "rewound"
        found["commit given up"] += line.detail == "given up by its user"
    found["judged as in production"] += not world.plan.checks_invariants
    inputs = [world.cluster.count(f"{PREFIX}.{name}") for name in INPUTS]
    found["partition added to the job's topics"] += max(inputs) > world.plan.shards
    for team in world.teams:
        for program in team.programs:
            _from_program(found, program)
    _from_pauses(found, world)
    _from_teams(found, world, evidence)
    _from_events(found, world, evidence)
    for each in (*evidence.asked, *evidence.positions):
        for answer in evidence.answers.get(each.coordinate, ()):
            _from_answer(found, each, answer["error"], str(answer.get("message")))
            failed = {row["error"] for row in answer.get("failed") or ()}
            _from_rows(found, failed)
    made = {e.group for e in evidence.told if e.type == "GroupCreated"}
    later = {
        each.request.group
        for each in (*evidence.asked, *evidence.positions)
        for answer in evidence.answers.get(each.coordinate, ())
        if each.request.client.startswith(CROWD) and answer["error"] == THROTTLED
    }
    found["throttled group made later"] += len(made & later)


def _from_program(found: dict[str, int], program: Program) -> None:
    is_classic = not program.is_assigned
    patterns = [wish.pattern for _, wish in program.wishes if wish.pattern]
    found["many messages at once"] += program.counts["many"]
    found["messages lost before they were worked on"] += program.counts["dropped"]
    found["commit waited for"] += program.counts["waited"]
    found["commit waited for in a callback"] += program.counts["waited in a callback"]
    found["transport shared"] += program.host is not None
    found["expression of a classic member"] += is_classic and bool(patterns)
    found["classic subscription changed"] += is_classic and len(program.wishes) > 1


def _from_pauses(found: dict[str, int], world: World) -> None:
    """Of each program: it was told something else soon after it had paused."""
    for program in world.programs:
        lines = [line for line in world.history if line.member == program.name]
        told = [line for line in lines if line.what in ("paused", "assigned", "revoked")]
        for before, after in pairwise(told):
            is_soon = after.t_ms - before.t_ms < 20_000 and after.what != "paused"
            found["paused in a rebalance"] += before.what == "paused" and is_soon


def _from_teams(found: dict[str, int], world: World, evidence: Evidence) -> None:
    names = {team.name for team in world.teams} | {GROUP}
    kinds = {
        (event.group, event.kind)
        for event in evidence.told
        if event.type == "GenerationStarted" and event.group in names
    }
    assigned = {group for group, kind in kinds if kind == ASSIGNED}
    classic = {group for group, kind in kinds if kind == CLASSIC}
    found["groups of both kinds in a shard"] += bool(assigned and classic - assigned)
    found["two server-assigned groups in a shard"] += len(assigned) > 1


def _from_events(found: dict[str, int], world: World, evidence: Evidence) -> None:
    starts_ms = [line.t_ms for line in world.history if line.detail == "rebuild"]
    aside_ms: dict[str, int] = {}
    for event in evidence.told:
        if event.type in _BY_EVENT:
            found[_BY_EVENT[event.type]] += 1
        found["wish too large for its group"] += "left_out" in event.detail
        if event.type == "GroupQuarantined" and event.generation >= 0:
            aside_ms[event.group] = event.record.true_ms
        elif event.type == "GroupReleased" and event.group in aside_ms:
            began_ms = aside_ms.pop(event.group)
            during = [ms for ms in starts_ms if began_ms < ms < event.record.true_ms]
            found["rebuilt while a group was set aside"] += len(during)


def _from_answer(found: dict[str, int], each: Asked, error: str, message: str) -> None:
    request = each.request
    if each.topic == "o" and isinstance(request, api.OffsetCommit):
        found["position taken"] += error == "NONE"
        found["position into a living group refused"] += error in (
            "UNKNOWN_MEMBER_ID",
            "ILLEGAL_GENERATION",
        )
        found["position under the name of a member"] += bool(request.member) and error != "NONE"
    found["deletion refused to a living group"] += error == "NON_EMPTY_GROUP"
    found["group described"] += isinstance(request, api.DescribeGroup) and error == "NONE"
    found["new group throttled"] += error == THROTTLED
    found["shard full"] += message == SHARD_IS_TOO_LARGE
    is_refused = error not in ("NONE", "COORDINATOR_NOT_AVAILABLE")
    is_hoarded = isinstance(request, api.Subscribe) and request.client.startswith(HOARDER)
    found["wish too large for its group"] += is_hoarded and is_refused
    is_greedy = isinstance(request, api.OffsetFetch) and request.group.startswith(GREEDY)
    found["fetch too large for an answer"] += is_greedy and is_refused


def _from_rows(found: dict[str, int], failed: set[str]) -> None:
    found["position that cannot be kept"] += "OFFSET_METADATA_TOO_LARGE" in failed
    found["offsets of a topic that is read kept"] += "GROUP_SUBSCRIBED_TO_TOPIC" in failed
    found["offset too large for its group"] += "INVALID_COMMIT_OFFSET_SIZE" in failed
