"""The table of situations that a campaign must have met, or it has shown nothing about them.

Counted from what a run has left; `python -m tests.tools.sim` adds them up over all seeds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from msgspec import UNSET

from coordlib.client.kit.requests import offset_of
from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Txn
from coordlib.core.wire.offsets import COORDINATOR
from coordlib.core.wire.stored import EVENT_REQUESTS_LOST
from coordlib.kafka.logs import Why
from tests.tools.defects import DEADLINE
from tests.tools.simulation.bystanders import THROTTLED
from tests.tools.simulation.crowds import CROWD, GREEDY, HOARDER
from tests.tools.simulation.evidence import Told
from tests.tools.simulation.job_faults import INPUTS
from tests.tools.simulation.lake import table
from tests.tools.simulation.lake.faults import POINTS as LAKE_POINTS
from tests.tools.simulation.lake.member import GROUP as LAKE
from tests.tools.simulation.plan import ASSIGNED, CLASSIC
from tests.tools.simulation.program import Program
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
    told,
)
from tests.tools.simulation.signing import controls, effective, first_signed, genuine
from tests.tools.simulation.strangers import STRANGER
from tests.tools.simulation.transactions.checks import UNSTABLE
from tests.tools.simulation.transactions.copying import GROUP as COPIERS
from tests.tools.simulation.transactions.courier import POINTS as COURIER_POINTS
from tests.tools.simulation.transactions.couriers import (
    AWAY,
    READER_AGAIN,
    RECORD_AGAIN,
)
from tests.tools.simulation.transactions.couriers import WORD_AGAIN as COURIERS_AGAIN
from tests.tools.simulation.transactions.producer import POINTS as COPIER_POINTS
from tests.tools.simulation.transactions.tellers import OUTCOMES
from tests.tools.simulation.transactions.tellers import WORD_AGAIN as TELLERS_AGAIN
from tests.tools.simulation.world import GROUP, PREFIX, World


def count_sometimes(world: World) -> dict[str, int]:
    """What a run has met."""
    seen = Seen(world)
    return {name: int(count(seen)) for name, count in SITUATIONS.items()}


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


_JOINS: Final = (api.JoinGroup, api.Subscribe)
_CLASSIC_JOINS: Final = (api.JoinGroup, api.SyncGroup)
_QUARANTINED: Final = "GroupQuarantined"
_OF_GROUPS: Final[Situations] = {
    "join while PreparingRebalance": between(
        "RebalanceStarted",
        is_one_of("GenerationStarted", "GroupEmptied"),
        is_one_of("MemberJoined"),
    ),
    "leader dies before its sync": told("MemberRemoved", lambda e: "sync" in e.reason),
    "follower syncs before its leader": answered(
        api.SyncGroup, lambda r, a: not r.assignments and a["error"] == "NONE"
    ),
    "static member replaced while parked": answered(
        _CLASSIC_JOINS, lambda r, a: a["error"] == "FENCED_INSTANCE_ID"
    ),
    "commit in CompletingRebalance refused": answered(
        api.OffsetCommit, lambda r, a: a["error"] == "REBALANCE_IN_PROGRESS"
    ),
    "group emptied and filled again": between(
        "GroupEmptied",
        is_one_of("GenerationStarted", "MemberJoined"),
        is_one_of("MemberJoined"),
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
    "group is full": answered(
        _JOINS, lambda r, a: r.group == GROUP and a["error"] == "GROUP_MAX_SIZE_REACHED"
    ),
    "let in after the group was full": _let_in_later,
    "stranger's commit refused": answered(
        api.OffsetCommit, lambda r, a: r.client == STRANGER and a["error"] != "NONE"
    ),
    "stranger's commit into an empty group": answered(
        api.OffsetCommit, lambda r, a: r.client == STRANGER and a["error"] == "NONE"
    ),
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


def _all_programs(seen: Seen) -> Iterator[Program]:
    return (program for team in seen.world.teams for program in team.programs)


def _of_programs(seen: Seen) -> Mapping[str, int]:
    """What programs have counted, and what they were told to read."""
    found: Counter[str] = Counter()
    for program in _all_programs(seen):
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
    return {"both": bool(assigned and classic - assigned), "assigned": len(assigned) > 1}


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
    return left_out + answered(
        api.Subscribe, lambda r, a: r.client.startswith(HOARDER) and _is_refused(a), None
    )(seen)


def _is_refused(answer: Answer) -> bool:
    return answer["error"] not in ("NONE", "COORDINATOR_NOT_AVAILABLE")


def _any_answer(error: str) -> Counting:
    return answered(api.Request, lambda r, a: a["error"] == error, None)


def _any_row(error: str) -> Counting:
    """Answers in which a row has failed with this error."""
    return answered(
        api.Request, lambda r, a: any(row["error"] == error for row in a.get("failed") or ()), None
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
        _of_teams,
        {
            "groups of both kinds in a shard": "both",
            "two server-assigned groups in a shard": "assigned",
        },
    ),
    "position taken": answered(api.OffsetCommit, lambda r, a: a["error"] == "NONE", COMMITS),
    "position into a living group refused": answered(
        api.OffsetCommit, lambda r, a: a["error"] in _NO_MEMBER, COMMITS
    ),
    "position under the name of a member": answered(
        api.OffsetCommit, lambda r, a: r.member and a["error"] != "NONE", COMMITS
    ),
    "position that cannot be kept": _any_row("OFFSET_METADATA_TOO_LARGE"),
    "deletion refused to a living group": _any_answer("NON_EMPTY_GROUP"),
    "offsets of a topic that is read kept": _any_row("GROUP_SUBSCRIBED_TO_TOPIC"),
    "group described": answered(api.DescribeGroup, lambda r, a: a["error"] == "NONE", None),
    "new group throttled": _any_answer(THROTTLED),
    "throttled group made later": _throttled_and_made,
    "shard full": answered(
        api.Request, lambda r, a: str(a.get("message")) == SHARD_IS_TOO_LARGE, None
    ),
    "offset too large for its group": _any_row("INVALID_COMMIT_OFFSET_SIZE"),
    "wish too large for its group": _too_large_wishes,
    "fetch too large for an answer": answered(
        api.OffsetFetch, lambda r, a: r.group.startswith(GREEDY) and _is_refused(a), None
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

# ---- stores --------------------------------------------------------------------------------------

_INACTIVE: Final = "Inactive"


def _of_fleet(seen: Seen) -> list[Told]:
    fleet = seen.world.fleet
    return [e for e in seen.evidence.told if e.group == fleet.name] if fleet is not None else []


def _in_fleet(type_: str, holds: Callable[[Told], bool] = lambda _: True) -> Counting:
    return lambda seen: sum(e.type == type_ and holds(e) for e in _of_fleet(seen))


def _elected(how: str) -> Counting:
    def holds(event: Told) -> bool:
        return any(line.get("election") == how for line in event.detail["partitions"])

    return _in_fleet("PartitionsChanged", holds)


def _of_stores(seen: Seen) -> Mapping[str, int]:
    """What the world and its stores have counted, and what follows from several lines."""
    found: Counter[str] = Counter()
    if seen.world.fleet is not None:
        found.update(seen.world.fleet.met)
        for store in seen.world.fleet.stores:
            found.update(store.counts)
    silent: set[str] = set()
    stopping: set[str] = set()
    deleting: dict[str, int] = {}
    for event in _of_fleet(seen):
        if event.type == "TopicDeletionStarted":
            deleting[event.detail["topic"]] = event.offset
        elif event.type == "TopicDeleted":
            began = deleting.pop(event.detail["topic"], event.offset)
            found["waited"] += event.offset - began > 20
        elif event.type == "BrokerStateChanged":
            to, has_left = event.detail["to"], event.reason.startswith("left")
            found["back"] += event.member in silent and to == "Active"
            found["stopped"] += event.member in stopping and to == _INACTIVE and has_left
            silent.discard(event.member)
            stopping.discard(event.member)
            if to == _INACTIVE and event.reason == "session expired":
                silent.add(event.member)
            if to == "Stopping":
                stopping.add(event.member)
    return found


def _late_duplicates(seen: Seen) -> int:
    """Of changes of an ISR, as far as there is a cluster."""
    times, known = 0, set[tuple[str, str]]()
    for each in seen.evidence.asked:
        if isinstance(each.request, api.AlterPartition):
            key = (each.request.client, each.request.id)
            answers = seen.evidence.answers.get(each.coordinate, ())
            rows = [row for answer in answers for row in answer.get("results", ())]
            is_refused = any(row["error"] not in ("NONE", "NEW_LEADER_ELECTED") for row in rows)
            times += key in known and is_refused
            known.add(key)
    return times


OF_STORES: Final[Situations] = {
    **counted(
        _of_stores,
        {
            "store led": "led",
            "value committed": "committed",
            "controlled shutdown ended": "stopped",
            "ISR emptied": "empty ISR",
            "deletion that waited": "waited",
            "refused change of an ISR": "isr refused",
            "silent store came back": "back",
            "store replaced": "replaced",
            "mute leader stopped by its lease": "mute and stopped",
            "mute leader followed by another": "mute and succeeded",
        },
    ),
    "offline election": _elected("offline"),
    "leadership handed over": _in_fleet("PartitionsChanged", lambda e: e.reason == "leader let go"),
    "former leader guarded": _in_fleet("HandOverDelayed"),
    "leader put out": lambda seen: sum(
        event.reason == "did not let go in time" for event in _of_fleet(seen)
    ),
    "unclean election": _elected("unclean"),
    "partition moved": _in_fleet("ReassignmentCompleted"),
    "late duplicate of a change refused": _late_duplicates,
    "store registered anew": _in_fleet("BrokerUnregistered"),
}

# ---- transactions --------------------------------------------------------------------------------


def _of_copiers(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (copying := seen.world.copying) is not None:
        found.update(copying.met + copying.tellers.met)
        found.update(copying.habits.counts)
        found.update(copying.faults.counts)
        newest = {
            line.transaction: line.detail
            for line in seen.lines.get("ended", ())
            if line.transaction
        }
        found["unknown"] += sum(how == "unknown" for how in newest.values())
        shards: dict[str, set[int]] = {}
        for event in (event for type_ in OUTCOMES for event in seen.events.get(type_, ())):
            if event.detail.get("decided_by") == COORDINATOR:
                shards.setdefault(event.detail["transaction"], set()).add(event.shard)
        found["several shards"] += sum(len(each) > 1 for each in shards.values())
        found.update(_decisions(seen))
    return found


def _decisions(seen: Seen) -> Iterable[str]:
    """What the coordinator decides about transactions, and why."""
    return [f"{e.detail['result']} {e.reason}" for e in seen.events.get("TransactionPrepared", ())]


def _decided_while_aside(seen: Seen) -> int:
    times, released = 0, set[tuple[int, int]]()
    for event in seen.evidence.told:
        if event.group == COPIERS:
            at = event.shard, event.offset
            released |= {at} if event.type == "GroupReleased" else set()
            times += event.type in OUTCOMES and at in released
    return times


def _fetched(seen: Seen) -> Mapping[str, int]:
    """What copiers' fetches show of offsets that wait."""
    found: Counter[str] = Counter()
    waiting: set[str] = set()
    for each, answer in seen.answered.get(api.OffsetFetch, ()):
        if each.request.group == COPIERS and each.topic == REQUESTS:
            errors = {row["error"] for row in answer.get("offsets") or ()}
            found["waits"] += UNSTABLE in errors
            found["goes on"] += each.request.client in waiting and errors == {"NONE"}
            waiting.discard(each.request.client)
            if UNSTABLE in errors:
                waiting.add(each.request.client)
    return found


OF_COPIERS: Final[Situations] = {
    **counted(_of_copiers, [f"copier struck at {point}" for point in COPIER_POINTS]),
    **counted(_of_copiers, ["question failed", "look failed", "look was short"]),
    **counted(_of_copiers, [TELLERS_AGAIN, "rebuilt while offsets wait"]),
    **counted(
        _of_copiers,
        {
            "users' transaction committed": "committed",
            "users' transaction aborted": "aborted",
            "users' transaction without a record": "empty",
            "teller's transaction committed": "commit client",
            "teller's transaction aborted": "abort client",
            "teller's transaction timed out": "abort timeout",
            "teller's transaction ended by a newer process": "abort fenced",
            "teller's transaction told to several shards": "several shards",
            "end of a transaction unknown to its process": "unknown",
        },
    ),
    "offsets of a transaction dropped": told("OffsetsDropped", of=COPIERS),
    "offsets of a transaction refused": answered(
        api.PendingCommit, lambda r, a: r.group == COPIERS and a["error"] != "NONE"
    ),
    "decision of a group that is set aside": _decided_while_aside,
    **counted(
        _fetched, {"fetch waits for a decision": "waits", "fetch goes on after a commit": "goes on"}
    ),
}


def _of_couriers(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (couriers := seen.world.couriers) is not None:
        found.update(couriers.traps.sprung)
        found.update(_decisions(seen))
        found["asks"] += sum(
            isinstance(each.request, api.DescribeTransaction) for each in seen.evidence.asked
        )
        for log in couriers.far.logs:
            marked: set[Txn] = set()
            # What couriers have written; copies are counted where they are made.
            for said in (record.said for record in log if record.repeats < 0):
                if isinstance(said, Marker):
                    found["by a successor"] += said.n is UNSET
                    found["twice"] += said.txn in marked
                    marked.add(said.txn)
                elif said is not None:
                    found["late"] += said.txn in marked
    return found


_OF_COURIERS: Final[Situations] = {
    **counted(_of_couriers, {f"courier struck at {point}": point for point in COURIER_POINTS}),
    **counted(_of_couriers, [AWAY, COURIERS_AGAIN, RECORD_AGAIN, READER_AGAIN]),
    **counted(
        _of_couriers,
        {
            "courier's transaction committed": "commit client",
            "courier's transaction aborted": "abort client",
            "courier's transaction timed out": "abort timeout",
            "courier's transaction ended by its successor": "abort fenced",
            "marker written by a successor": "by a successor",
            "marker written twice": "twice",
            "courier's record behind its marker": "late",
            "reader abroad asks the coordinator": "asks",
        },
    ),
}


def _of_lake(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (lake := seen.world.lake) is not None:
        found.update(lake.store.met)
        found.update(lake.traps.sprung)
    #: Token of an entry -> the member that has sent it.
    senders: dict[int, str] = {}
    for each in seen.evidence.asked:
        request = each.request
        if request.group != LAKE or not isinstance(request, api.PendingCommit | api.DecidePending):
            continue
        for answer in seen.evidence.answers.get(each.coordinate, ()):
            is_taken = answer["error"] == "NONE"
            if isinstance(request, api.PendingCommit):
                found["refused"] += not is_taken
                if is_taken:
                    senders[offset_of(answer["pending"])] = request.member
            else:
                found["late"] += answer["error"] == "INVALID_TXN_STATE"
                is_own = senders.get(offset_of(request.pending)) == request.member
                found[f"{request.result} by {'itself' if is_own else 'others'}"] += is_taken
    return found


OF_LAKE: Final[Situations] = {
    **counted(_of_lake, {f"lake member struck at {point}": point for point in LAKE_POINTS}),
    **counted(
        _of_lake,
        {
            "batch in doubt found in the table": "commit by others",
            "batch in doubt not found in the table": "abort by others",
            "batch and its offsets committed": "commit by itself",
            "batch given up by its own writer": "abort by itself",
            "offsets of a batch refused": "refused",
            "word about a batch came too late": "late",
        },
    ),
    **counted(_of_lake, [table.CONFLICT, table.CLAIM_LATE, table.FAILED, table.FAILED_BEHIND]),
    **counted(_of_lake, [table.AWAY, table.ANOTHER, table.OLD_COPY]),
}

# ---- what others write instead of drivers --------------------------------------------------------


def _of_forgeries(seen: Seen) -> Mapping[str, int]:
    world, shards = seen.world, range(seen.world.plan.shards)
    requests = [world.cluster.partitions[f"{PREFIX}.requests", shard] for shard in shards]
    found: Counter[str] = Counter()
    signed: list[set[bytes]] = [set() for _ in shards]
    for shard, offset in world.engine.written:
        signed[shard].add(requests[shard].at(offset).value or b"")
    for shard in shards:
        counts, written = effective(world, shard), genuine(world, shard)
        found["late"] += len(written - counts)
        for offset in controls(world, shard).keys() - written:
            value = requests[shard].at(offset).value or b""
            found["copied"] += value in signed[shard]
            found["moved"] += any(value in signed[other] for other in shards if other != shard)
    since = sum(first_signed(world, shard) for shard in shards)
    found["over"] += bool(world.plan.unsigned_ms and world.engine.settings.keys and since)
    return found


def _forged(seen: Seen) -> int:
    refused = seen.events.get("RequestRejected", ())
    by_others = [e for e in refused if "written by the job's driver alone" in e.reason]
    return len({(event.shard, event.offset) for event in by_others})


OF_FORGERIES: Final[Situations] = {
    "forged record refused": _forged,
    **counted(
        _of_forgeries,
        {
            "control record moved to another shard": "moved",
            "control record copied": "copied",
            "older driver's record came late": "late",
            "prefix of before goes over": "over",
        },
    ),
}

SITUATIONS: Final[Situations] = {
    **_OF_GROUPS,
    **_OF_ASSIGNED,
    **OF_FORGERIES,
    **_OF_OTHERS,
    **_OF_THE_JOB,
    **OF_STORES,
    **OF_COPIERS,
    **_OF_COURIERS,
    **OF_LAKE,
}
