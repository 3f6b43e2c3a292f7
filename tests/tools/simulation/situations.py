"""The table of situations that a campaign must have met, or it has shown nothing about them.

Counted from what a run has left; `python -m tests.tools.sim` adds them up over all seeds.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.core.wire.stored import EVENT_REQUESTS_LOST
from coordlib.kafka.logs import Why
from tests.tools.defects import DEADLINE
from tests.tools.simulation.bystanders import THROTTLED
from tests.tools.simulation.crowds import CROWD, GREEDY, HOARDER
from tests.tools.simulation.evidence import Told
from tests.tools.simulation.job_faults import INPUTS
from tests.tools.simulation.plan import ASSIGNED, CLASSIC
from tests.tools.simulation.rules import NOT_LET_GO
from tests.tools.simulation.seen import (
    Answer,
    Counting,
    Seen,
    Situations,
    answered,
    between,
    counted,
    happened,
    is_one_of,
    is_refused,
    told,
)
from tests.tools.simulation.situations_beside import BESIDE
from tests.tools.simulation.strangers import STRANGER
from tests.tools.simulation.world import GROUP, PREFIX, World

# ---- groups --------------------------------------------------------------------------------------

#: What a group does that goes on.
PROGRESS: Final = ("RebalanceStarted", "GenerationStarted", "AssignmentIssued", "OffsetsCommitted")


def _undecodable(seen: Seen) -> int:
    known = {(each.shard, each.offset) for each in seen.evidence.asked}
    return told("RequestRejected", lambda e: (e.shard, e.offset) not in known, None)(seen)


def _repeated(seen: Seen) -> int:
    asked = [(each.request.client, each.request.id) for each in seen.evidence.asked]
    return len(asked) - len(set(asked))


def _let_in_later(seen: Seen) -> int:
    late = tuple(f"{name}-" for name in seen.world.tried_again)
    return told("MemberJoined", lambda e: e.member.startswith(late))(seen)


def _ran_again(seen: Seen) -> int:
    crashes = seen.world.engine.crashes
    return crashes.get("P6", 0) + crashes.get("unheard-commit", 0)


def _is_divided(event: Told) -> bool:
    return event.type == "AssignmentIssued" and bool(event.detail["partitions"])


def _is_stranger(request: api.Request) -> bool:
    return request.client == STRANGER


_JOINS: Final = (api.JoinGroup, api.Subscribe)
_CLASSIC_JOINS: Final = (api.JoinGroup, api.SyncGroup)
_QUARANTINED, _JOINED = "GroupQuarantined", "MemberJoined"
_OF_GROUPS: Final[Situations] = {
    "join while PreparingRebalance": between(
        "RebalanceStarted", is_one_of("GenerationStarted", "GroupEmptied"), is_one_of(_JOINED)
    ),
    "leader dies before its sync": told("MemberRemoved", lambda e: "sync" in e.reason),
    "follower syncs before its leader": answered(
        api.SyncGroup, "NONE", lambda r: not r.assignments
    ),
    "static member replaced while parked": answered(_CLASSIC_JOINS, "FENCED_INSTANCE_ID"),
    "commit in CompletingRebalance refused": answered(
        api.OffsetCommit, "REBALANCE_IN_PROGRESS", topic=REQUESTS
    ),
    "group emptied and filled again": between(
        "GroupEmptied", is_one_of("GenerationStarted", _JOINED), is_one_of(_JOINED)
    ),
    "session expired": told("MemberRemoved", lambda e: e.reason == "session expired"),
    "batch ran again after its commit": _ran_again,
    "request repeated": _repeated,
    "member fenced by its own clock": happened("lost"),
    "rebuilt from the topics": lambda seen: max(0, seen.world.checkpoints - 1),
    "driver fenced by a newer one": lambda seen: sum(d.was_fenced for d in seen.world.drivers),
    "late end of a transaction refused": lambda seen: seen.world.cluster.late_refused,
    "start refused": lambda seen: seen.world.refusals,
    "undecodable request": _undecodable,
    "members of different topics": lambda seen: len({p.wish for p in seen.world.programs}) > 1,
    "group is full": answered(_JOINS, "GROUP_MAX_SIZE_REACHED", lambda r: r.group == GROUP),
    "let in after the group was full": _let_in_later,
    "stranger's commit refused": answered(api.OffsetCommit, is_refused, _is_stranger),
    "stranger's commit into an empty group": answered(api.OffsetCommit, "NONE", _is_stranger),
    "group set aside": told(_QUARANTINED),
    "group set aside by a deadline": told(
        _QUARANTINED, lambda e: DEADLINE in e.detail["exception"]
    ),
    "group set aside once more": between("GroupReleased", is_one_of(), is_one_of(_QUARANTINED)),
    "group went on after its release": between(
        "GroupReleased", is_one_of(*PROGRESS, _QUARANTINED), is_one_of(*PROGRESS)
    ),
    "neighbour set aside": told(_QUARANTINED, lambda e: e.group != GROUP, None),
    "leader could not divide": told("AssignmentFailed"),
    "assigned after its leader could not divide": between(
        "AssignmentFailed", _is_divided, _is_divided
    ),
}


# ---- server-assigned groups ----------------------------------------------------------------------

#: They end a hand-over: nobody owes anything any more.
_OVER: Final = ("GroupSettled", "GroupEmptied", "GroupKindChanged")


def _is_assigned(event: Told) -> bool:
    return event.kind == ASSIGNED


def _started_for(reason: str) -> Counting:
    return between(
        "ReleaseDemanded",
        is_one_of(*_OVER),
        lambda e: e.type == "GenerationStarted" and e.reason == reason,
        _is_assigned,
    )


def _while_demanded(what: str, is_own: bool) -> Counting:
    """What happened while a demand was open, by true time; `is_own`: to the member that owes."""

    def count(seen: Seen) -> int:
        return sum(
            from_ms <= line.t_ms <= to_ms and (not is_own or member.startswith(f"{line.member}-"))
            for member, from_ms, to_ms in _open_demands(seen)
            for line in seen.lines.get(what, ())
        )

    return count


def _open_demands(seen: Seen) -> list[tuple[str, int, int]]:
    """Each member that owed something, from when to when."""
    open_ms: dict[str, int] = {}
    found = []
    for event in filter(_is_assigned, seen.of_readers):
        at_ms, member = event.record.true_ms, event.member
        if event.type == "ReleaseDemanded":
            open_ms.setdefault(member, at_ms)
        elif event.type in ("MemberRemoved", "AssignmentIssued") and member in open_ms:
            found.append((member, open_ms.pop(member), at_ms))
        elif event.type in _OVER:
            found += [(name, from_ms, at_ms) for name, from_ms in open_ms.items()]
            open_ms.clear()
    now_ms = seen.world.scheduler.now_ms
    return found + [(name, from_ms, now_ms) for name, from_ms in open_ms.items()]


def _not_let_go(seen: Seen) -> int:
    return sum(_is_assigned(event) and event.reason == NOT_LET_GO for event in seen.of_readers)


def _by_release(seen: Seen) -> int:
    releases = seen.evidence.releases
    return told("OffsetsCommitted", lambda e: _is_assigned(e) and e.offset in releases)(seen)


_OF_ASSIGNED: Final[Situations] = {
    "hand-over under way when a driver ended": _while_demanded("driver ended", is_own=False),
    "demand open while its member was fenced": _while_demanded("lost", is_own=True),
    "topics changed during a hand-over": _started_for("topics changed"),
    "member removed that did not let go": _not_let_go,
    "former owner guarded": told("HandOverDelayed", _is_assigned),
    "kind changed": told("GroupKindChanged"),
    "offsets committed by a Release": _by_release,
    "subscription changed during a hand-over": _started_for("subscription changed"),
}

# ---- users, other groups, crowds -----------------------------------------------------------------


def _of_programs(seen: Seen) -> Mapping[str, int]:
    """What programs have counted, and what they were told to read."""
    found: Counter[str] = Counter()
    for program in (program for team in seen.world.teams for program in team.programs):
        found.update(program.counts)
        found["shared"] += program.host is not None
        if not program.is_assigned:
            found["expressions"] += any(wish.pattern for _, wish in program.wishes)
            found["changed"] += len(program.wishes) > 1
    return found


def _paused_in_a_rebalance(seen: Seen) -> int:
    """Of each program: it was told something else soon after it had paused."""
    times = 0
    for program in seen.world.programs:
        lines = [line for line in seen.world.history if line.member == program.name]
        heard = [line for line in lines if line.what in ("paused", "assigned", "revoked")]
        for before, after in pairwise(heard):
            is_soon = after.t_ms - before.t_ms < 20_000 and after.what != "paused"
            times += before.what == "paused" and is_soon
    return times


def _of_teams(seen: Seen) -> Mapping[str, int]:
    names = {team.name for team in seen.world.teams} | {GROUP}
    started = [e for e in seen.events.get("GenerationStarted", ()) if e.group in names]
    assigned = {event.group for event in started if event.kind == ASSIGNED}
    classic = {event.group for event in started if event.kind == CLASSIC}
    return {
        "groups of both kinds in a shard": bool(assigned and classic - assigned),
        "two server-assigned groups in a shard": len(assigned) > 1,
    }


def _throttled_and_made(seen: Seen) -> int:
    later = {
        each.request.group
        for rows in seen.answered.values()
        for each, answer in rows
        if each.request.client.startswith(CROWD) and answer["error"] == THROTTLED
    }
    return len(later & {event.group for event in seen.events.get("GroupCreated", ())})


def _rebuilt_while_aside(seen: Seen) -> int:
    starts_ms = [line.t_ms for line in seen.world.history if line.detail == "rebuild"]
    aside_ms: dict[str, int] = {}
    times = 0
    for event in seen.evidence.told:
        if event.type == _QUARANTINED and event.generation >= 0:
            aside_ms[event.group] = event.record.true_ms
        elif event.type == "GroupReleased" and event.group in aside_ms:
            began_ms = aside_ms.pop(event.group)
            times += sum(began_ms < ms < event.record.true_ms for ms in starts_ms)
    return times


def _too_large_wishes(seen: Seen) -> int:
    """Of which a part was left out, or all."""
    left_out = sum("left_out" in event.detail for event in seen.evidence.told)
    return left_out + answered(api.Subscribe, _is_too_much, lambda r: r.client.startswith(HOARDER))(
        seen
    )


def _is_too_much(answer: Answer) -> bool:
    return answer["error"] not in ("NONE", "COORDINATOR_NOT_AVAILABLE")


def _failed(error: str) -> Counting:
    """Answers in which a row has this error."""
    return answered(
        api.Request, lambda a: any(row["error"] == error for row in a.get("failed") or ())
    )


_NO_MEMBER: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
_OF_OTHERS: Final[Situations] = {
    "unsubscribed, and back": happened("subscribed"),
    "callback raised": happened("callback_raised"),
    "closed in a callback": happened("closed_in_callback"),
    "closed and waited for the log": happened("closes_patiently"),
    "group deleted or expired": told("GroupDeleted", of=None),
    "offsets deleted": told("OffsetsDeleted", of=None),
    "offsets expired": told("OffsetsExpired", of=None),
    "went back in a partition": happened("rewound"),
    "paused in a rebalance": _paused_in_a_rebalance,
    **counted(
        _of_programs,
        {
            "many messages at once": "many",
            "messages lost before they were worked on": "dropped",
            "commit waited for": "waited",
            "commit waited for in a callback": "waited in a callback",
            "transport shared": "shared",
            "expression of a classic member": "expressions",
            "classic subscription changed": "changed",
        },
    ),
    "commit given up": lambda seen: sum(
        line.detail == "given up by its user" for line in seen.world.history
    ),
    **counted(
        _of_teams, ["groups of both kinds in a shard", "two server-assigned groups in a shard"]
    ),
    "position taken": answered(api.OffsetCommit, "NONE", topic=COMMITS),
    "position into a living group refused": answered(
        api.OffsetCommit, lambda a: a["error"] in _NO_MEMBER, topic=COMMITS
    ),
    "position under the name of a member": answered(
        api.OffsetCommit, is_refused, lambda r: r.member, COMMITS
    ),
    "position that cannot be kept": _failed("OFFSET_METADATA_TOO_LARGE"),
    "deletion refused to a living group": answered(api.Request, "NON_EMPTY_GROUP"),
    "offsets of a topic that is read kept": _failed("GROUP_SUBSCRIBED_TO_TOPIC"),
    "group described": answered(api.DescribeGroup, "NONE"),
    "new group throttled": answered(api.Request, THROTTLED),
    "throttled group made later": _throttled_and_made,
    "shard full": answered(api.Request, lambda a: a.get("message") == SHARD_IS_TOO_LARGE),
    "offset too large for its group": _failed("INVALID_COMMIT_OFFSET_SIZE"),
    "wish too large for its group": _too_large_wishes,
    "fetch too large for an answer": answered(
        api.OffsetFetch, _is_too_much, lambda r: r.group.startswith(GREEDY)
    ),
    "rebuilt while a group was set aside": _rebuilt_while_aside,
    "judged as in production": lambda seen: not seen.world.plan.checks_invariants,
    "partition added to the job's topics": lambda seen: (
        max(seen.world.cluster.count(f"{PREFIX}.{name}") for name in INPUTS)
        > seen.world.plan.shards
    ),
}

# ---- the job and its inputs ----------------------------------------------------------------------


def _requests_lost(why: Why) -> Counting:
    return told(EVENT_REQUESTS_LOST, lambda e: e.reason == why.value, None)


#: What it met that has less memory than a batch's outputs need.
OF_MEMORY: Final[Situations] = {
    "driver ended by a batch that was too much": lambda seen: seen.world.engine.memory_ends[0],
    "driver ended by one without a word": lambda seen: seen.world.engine.memory_ends[1],
    "began anew with fewer records": lambda seen: seen.world.engine.memory_ends[2],
}
_OF_THE_JOB: Final[Situations] = {
    "requests removed before they were read": _requests_lost(Why.REMOVED),
    "log shorter than what was judged": _requests_lost(Why.SHORTER),
    "log cut and grown again": _requests_lost(Why.OTHER),
    "member stopped by a cut of its log": lambda seen: seen.world.cluster.cuts_noticed,
    "join asked again that was cut from its log": lambda seen: seen.world.cluster.joins_cut,
    "join asked again for want of an answer": lambda seen: seen.world.cluster.joins_unanswered,
    **OF_MEMORY,
}

SITUATIONS: Final[Situations] = {
    **_OF_GROUPS,
    **_OF_ASSIGNED,
    **_OF_OTHERS,
    **_OF_THE_JOB,
    **BESIDE,
}


def count_sometimes(world: World) -> dict[str, int]:
    """What a run has met."""
    seen = Seen(world)
    return {name: int(count(seen)) for name, count in SITUATIONS.items()}
