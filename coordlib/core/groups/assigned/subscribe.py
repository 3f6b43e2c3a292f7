"""Subscribe: enter the group, or want other topics. Release: meet a demand for partitions.

Subscribe is seed 000's JoinGroupRequest, with no wait. Seed 000 parks it until all members have
joined again. Here it is answered at once, with the partitions that are free. Demands ask other
members for the rest, which follows as they release it.

With a Release a member meets a demand, and commits its offsets there, in one record. The demand is
named by its cause (rule 12). A repeated Release, or one of a demand that is not open, changes
nothing and is no error: the demand was met already.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE, reply_of
from coordlib.core.groups.assigned import division, reconciliation
from coordlib.core.groups.assigned.group import (
    SESSION_TIMEOUT_TOO_HIGH,
    Group,
    Member,
    Step,
    find_own,
    includes,
)
from coordlib.core.groups.assignors.server_model import DEFAULT
from coordlib.core.groups.group import Refused, is_older, next_generation
from coordlib.core.groups.offsets.commit import store
from coordlib.core.wire import api, stored
from coordlib.core.wire.groups import with_reason
from coordlib.core.wire.topics import BadPattern, compile_pattern
from coordlib.errors import ErrorCode


def release(step: Step, request: api.Release) -> None:
    """Judge one Release."""
    member = find_own(step, request)
    if not isinstance(member, Member):
        code, message = member
        step.refuse(request, code, message)
        return
    before = step.live.members
    step.touched.append(member.member)
    demand = member.demand(request.cause)
    # The offsets first: the partitions are still the member's own.
    # Of this demand only: a late duplicate must restore none (rule 12).
    partitions = demand.partitions if demand is not None else {}
    room_bytes = step.members_room_bytes
    store(step, request, room_bytes, lambda row: includes(partitions, row.topic, row.partition))
    if demand is not None:
        reconciliation.let_go(step, member, demand)
        division.go_on(step)
        reconciliation.tell(step, before)


#: Of the topics that a member wants, those that its line of history names.
TOPICS_NAMED_MAX: Final = 100
#: Without one, a late duplicate looks like a new subscription.
_NO_GENERATION: Final = "Name the newest generation that you were told with your member id."
_OVERTAKEN: Final = "Wait for the answer to the Subscribe before, then ask with its generation."
_TOO_LARGE: Final = "Leave, or subscribe to less: the group would be too large to be kept."


def subscribe(step: Step, request: api.Subscribe) -> None:
    """Judge one Subscribe."""
    refused = _refused_before_group(step, request)
    if refused is not None:
        code, message = refused
        fields = {"member": request.member}
        if code is ErrorCode.INVALID_SESSION_TIMEOUT and _is_too_high(step, request):
            fields["design_error"] = SESSION_TIMEOUT_TOO_HIGH
        step.refuse(request, code, message, **fields)
    elif request.member:
        _change(step, request)
    else:
        _enter(step, request)


def _is_too_high(step: Step, request: api.Subscribe) -> bool:
    return request.session_timeout_ms > step.family.config.session_timeout_max_ms


def _refused_before_group(step: Step, request: api.Subscribe) -> Refused:
    config = step.family.config
    low_ms, high_ms = config.session_timeout_min_ms, config.session_timeout_max_ms
    if not low_ms <= request.session_timeout_ms <= high_ms:
        return (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms must be {low_ms} to {high_ms}.",
        )
    low_ms, high_ms = limits.REBALANCE_TIMEOUT_MIN_MS, limits.REBALANCE_TIMEOUT_MAX_MS
    if not low_ms <= request.rebalance_timeout_ms <= high_ms:
        return (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"rebalance_timeout_ms must be {low_ms} to {high_ms}.",
        )
    for pattern in (request.pattern, request.exclude):
        try:
            if pattern is not None:
                compile_pattern(pattern).check(step.topics)
        except BadPattern as problem:
            return ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem)
    if request.strategy is not None and request.strategy not in step.strategies:
        known = ", ".join(step.strategies.names)
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"Name one of these strategies: {known}."
    return None


# ---- a newcomer ---------------------------------------------------------------------------------


def _enter(step: Step, request: api.Subscribe) -> None:
    group = step.value
    known = group.first_subscribe(request.client, request.id) if group else None
    if known is not None:  # the same once more (rule 12)
        _answer(step, request, known.member)
        return
    refused = _no_place(step) or _other_strategy(step, request, but="")
    if refused is not None:
        throttle_time_ms = step.family.throttle_time(refused[0])
        step.refuse(request, *refused, throttle_time_ms=throttle_time_ms)
        return
    if group is None:
        step.create("first member")
    before = step.live.members
    member = _made_from(step, request)
    if not _has_room(step, member, group):  # spares a flood of newcomers the division
        _refuse_growth(step, request, group, SHARD_IS_TOO_LARGE)
        return
    step.change(protocol=request.strategy or step.live.protocol or DEFAULT)
    step.put(member)
    step.record(
        stored.EVENT_MEMBER_JOINED,
        member=member.member,
        detail={"client": request.client, **_subscription(request), **_host(request)},
    )
    division.renew(step, "member joined", _named(member, request))
    _conclude(step, request, member.member, group, before)


def _no_place(step: Step) -> Refused:
    if step.value is None:
        return step.new_group_fault(ErrorCode.GROUP_MAX_SIZE_REACHED)
    is_full = len(step.value.members) >= step.family.config.max_size
    return (ErrorCode.GROUP_MAX_SIZE_REACHED, None) if is_full else None


def _has_room(step: Step, newcomer: Member, group: Group | None) -> bool:
    """Whether the shard's blob has room for a newcomer without partitions."""
    grows_by = newcomer.kept_own_bytes + (step.new_group_bytes if group is None else 0)
    return grows_by <= step.room_bytes


def _other_strategy(step: Step, request: api.Subscribe, but: str) -> Refused:
    """All members of a group have one strategy; `but`: the member that may change it alone."""
    group = step.value
    if (
        group is None
        or request.strategy in (None, group.protocol)
        or not group.members.keys() - {but}
    ):
        return None
    message = f"This group divides by {group.protocol}: name that, or none."
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message


def _made_from(step: Step, request: api.Subscribe) -> Member:
    at = step.at
    return Member(
        # A client knows its id from the produce acknowledgement: it is where the request stands.
        member=f"{request.client}-{at.incarnation}-{at.shard}-{at.offset}",  # INV-16
        client=request.client,
        reply=reply_of(request, at),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(dict.fromkeys(request.topics)),
        pattern=request.pattern,
        exclude=request.exclude,
        capacity=request.capacity,
        first_id=request.id,
        subscribed_generation=next_generation(step.live.generation),
        joined_ms=at.time_ms,
        # A job that was away must not drop a newcomer that had no chance to be heard (rule 3).
        awaits_cover=at.offset,
        host=request.host,
    )


# ---- a member -----------------------------------------------------------------------------------


def _change(step: Step, request: api.Subscribe) -> None:
    member = find_own(step, request)
    if not isinstance(member, Member):
        code, message = member
        step.refuse(request, code, message, member=request.member)
        return
    if request.generation < 0:
        code, message = ErrorCode.ILLEGAL_GENERATION, _NO_GENERATION
        step.refuse(request, code, message, member=request.member)
        return
    if is_older(request.generation, member.subscribed_generation):
        # Rule 12: a late duplicate must not bring back what the member wanted before.
        _answer_late(step, request, member)
        return
    refused = _other_strategy(step, request, but=member.member)
    if refused is not None:
        step.refuse(request, *refused, member=request.member)
        return
    wanted = _as_wanted(step, request, member)
    protocol = request.strategy or step.live.protocol
    step.touched.append(member.member)
    if wanted == member and protocol == step.live.protocol:
        _answer(step, request, member.member)
        return
    # Also for another timeout alone: only a new generation tells it from its own late duplicate.
    start, before = step.value, step.live.members
    step.change(protocol=protocol)
    step.put(replace(wanted, subscribed_generation=next_generation(step.live.generation)))
    division.renew(step, "subscription changed", _named(member, request))
    _conclude(step, request, member.member, start, before)


def _answer_late(step: Step, request: api.Subscribe, member: Member) -> None:
    """Answer a Subscribe from before the newest one was answered: a repeat, or overtaken."""
    is_same_strategy = request.strategy in (None, step.live.protocol)
    if is_same_strategy and _as_wanted(step, request, member) == member:
        _answer(step, request, member.member)
        return
    code, message = ErrorCode.REBALANCE_IN_PROGRESS, _OVERTAKEN
    step.refuse(request, code, message, member=request.member)


def _as_wanted(step: Step, request: api.Subscribe, member: Member) -> Member:
    return replace(
        member,
        reply=reply_of(request, step.at),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(dict.fromkeys(request.topics)),
        pattern=request.pattern,
        exclude=request.exclude,
        capacity=request.capacity,
    )


# ---- the end ------------------------------------------------------------------------------------


def _conclude(
    step: Step,
    request: api.Subscribe,
    member: str,
    start: Group | None,
    before: Mapping[str, Member],
) -> None:
    """Answer and notify the others; or undo the step and refuse, if it would not fit."""
    if _is_too_large(step.live, start):
        _refuse_growth(step, request, start, _TOO_LARGE)
    elif not _fits_into_shard(step, start, is_known=member in before):
        _refuse_growth(step, request, start, SHARD_IS_TOO_LARGE)
    else:
        _answer(step, request, member)
        reconciliation.tell(step, before, but=member)


def _is_too_large(group: Group, start: Group | None) -> bool:
    """Whether the group's record has no room for it; to shrink is allowed."""
    if group.members_bytes() > limits.ASSIGNED_MEMBERS_BYTES_MAX:
        return start is None or group.members_bytes() > start.members_bytes()
    if group.size_bytes > limits.RECORD_BYTES_MAX:  # it was larger than it may be by now
        return start is None or group.size_bytes > start.size_bytes
    return False


def _fits_into_shard(step: Step, start: Group | None, is_known: bool) -> bool:
    """Whether the shard's blob has room for the member and its division; to shrink is allowed."""
    if step.room_bytes >= limits.OUTPUT_BYTES_MAX:
        return True  # more than any group has: spares the counting
    grows_by = step.live.kept_bytes - (start.kept_bytes if start else 0)
    return grows_by <= max(step.members_room_bytes if is_known else step.room_bytes, 0)


def _refuse_growth(step: Step, request: api.Subscribe, start: Group | None, message: str) -> None:
    step.hold(start)
    step.effects.clear()
    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    step.refuse(request, code, message, member=request.member)


def _answer(step: Step, request: api.Subscribe, member_id: str) -> None:
    group = step.live
    member = group.members[member_id]
    step.answer(
        request,
        generation=group.generation,
        member=member_id,
        strategy=group.protocol,
        fence=member.fence,
        partitions=reconciliation.granted(member),
        release=reconciliation.demanded(member),
    )


def _subscription(request: api.Subscribe) -> dict[str, Any]:
    named = request.topics[:TOPICS_NAMED_MAX]
    detail: dict[str, Any] = {"topics": list(named)} if named else {}
    for name in ("pattern", "exclude"):
        if getattr(request, name) is not None:
            detail[name] = getattr(request, name)
    return detail | ({"capacity": request.capacity} if request.capacity != 1 else {})


def _host(request: api.Subscribe) -> dict[str, str]:
    return {} if request.host is UNSET else {"host": request.host}


def _named(member: Member, request: api.Subscribe) -> dict[str, str]:
    return with_reason({"member": member.member, "client": member.client}, request.reason)
