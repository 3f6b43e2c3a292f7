"""JoinGroup: enter a group, or its next generation.

The answer is parked until the join phase is complete. Only refusals are sent at once, and the
current generation to a member that merely asks again. Order of checks as in Kafka's
`GroupMetadataManager.classicGroupJoin`, but for one: the sender's identity is
checked before size and protocols, so that a member that was expelled or fenced reads that, and not
that the group is full.
Numbers in comments are KIPs and tickets.

Static membership (KIP-345): a process comes back under its instance id and takes its place. It gets
a new member id, and everything else stays: its assignment, its place, the leadership. In
Stable nobody else notices, unless its protocols change what the group agrees on, or it wants other
topics. The replaced member is fenced and notified at once, and the successor waits until it has
stopped (guards).
"""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE, reply_of
from coordlib.core.groups.classic import members, rebalance
from coordlib.core.groups.classic.group import (
    ANNOUNCED_BYTES_MAX,
    GUARD_BYTES,
    JOIN,
    JOIN_BYTES_MAX,
    NAMES_BYTES_MAX,
    Member,
    OfferedProtocol,
    Parked,
    State,
    Step,
    names_bytes,
    offered_bytes,
)
from coordlib.core.groups.group import Refused
from coordlib.core.wire import api, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode

STATIC_MEMBER_REPLACED = "static member replaced"


def take_place(step: Step, older: Member, newcomer: Member, parked: Parked) -> None:
    """Put the newcomer, made from its JoinGroup, in the place of the member that it replaces."""
    rebalance.answer_parked(step, older, ErrorCode.FENCED_INSTANCE_ID)
    members.place_guard(step, older, STATIC_MEMBER_REPLACED, successor=newcomer.member)
    newcomer = replace(
        newcomer,
        assignment=older.assignment,
        is_new=older.is_new,
        has_synced=True,
        parked=None,
        fence=step.at.offset,
    )
    step.rename(older, newcomer)
    _tell_older_twin(step, older, newcomer)
    if step.live.state is not State.STABLE:
        _join_phase(step, newcomer, parked)
    elif _agreed_protocol(step) == step.live.protocol and not _wants_others(step, older, newcomer):
        rebalance.answer_join(step, newcomer, parked, is_static_return=True)
        newcomer = replace(newcomer, awaits_cover=step.at.offset)
        step.put(newcomer)
        rebalance.stop_sync_timer_when_all_synced(step)  # the older one had perhaps not synced
        members.hand_over(step, newcomer)
    else:
        _join_phase(step, newcomer, parked)


def _agreed_protocol(step: Step) -> str | None:
    return rebalance.select_protocol(list(step.live.members.values()))


def _wants_others(step: Step, older: Member, newcomer: Member) -> bool:
    """Whether a consumer comes back for other topics than its share was cut for.

    Kafka compares only the chosen protocol, and its consumer joins again when its assignment has
    topics that it does not want; until then no member reads these. Retention counts on it, too:
    what a group subscribes to changes with a generation only.
    """
    group = step.live
    if group.protocol_type != cp.CONSUMER:
        return False
    return _topics(older, group.protocol) != _topics(newcomer, group.protocol)


def _topics(member: Member, protocol: str | None) -> set[str] | None:
    """The topics of the chosen protocol; None: its bytes are no subscription."""
    try:
        return set(cp.decode_topics(member.metadata_for(protocol)))
    except cp.Unreadable:
        return None


def _join_phase(step: Step, newcomer: Member, parked: Parked) -> None:
    step.put(
        replace(
            newcomer,
            parked=parked,
            has_synced=False,
            awaits_cover=step.at.offset if newcomer.is_new else None,
        )
    )
    rebalance.membership_changed(
        step, STATIC_MEMBER_REPLACED, {"instance": newcomer.instance or ""}
    )


def _tell_older_twin(step: Step, older: Member, newcomer: Member) -> None:
    step.record(
        stored.EVENT_MEMBER_FENCED,
        member=older.member,
        reason=STATIC_MEMBER_REPLACED,
        detail={"instance": older.instance, "replaced_by": newcomer.member},
    )
    step.tell_removed(older, STATIC_MEMBER_REPLACED)


#: For a JoinGroup of a member that names another generation than the group's.
_OTHER_GENERATION: Final = "Join again with the generation of your newest answer, or with -1."


def join_group(step: Step, request: api.JoinGroup) -> None:
    """Judge one JoinGroup."""
    refused = _refused_before_group(step, request)
    if refused is not None:
        code, message = refused
        throttle_time_ms = step.family.throttle_time(code)
        step.refuse(
            request, code, message, member=request.member, throttle_time_ms=throttle_time_ms
        )
        return
    if step.value is None:
        step.create("first member joins")
    if request.member:
        _join_known(step, request)
    elif (repeated := step.live.first_join(request.client, request.id)) is not None:
        _join_again(step, request, repeated)
    elif (former := step.live.former_owner(request.client, request.id)) is not None:
        fenced = ErrorCode.FENCED_INSTANCE_ID if former.was_replaced else None
        code = fenced or ErrorCode.UNKNOWN_MEMBER_ID
        step.refuse(request, code, member=former.member)
    elif request.instance is None:
        _join_new(step, request)
    elif (older := step.live.static_member(request.instance)) is not None:
        _join_in_place(step, request, older)
    else:
        _join_new(step, request)


def _refused_before_group(step: Step, request: api.JoinGroup) -> Refused:
    config = step.family.config
    session_ms = request.session_timeout_ms
    if not config.session_timeout_min_ms <= session_ms <= config.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT, (
            f"session_timeout_ms must be {config.session_timeout_min_ms}"
            f" to {config.session_timeout_max_ms}."
        )
    rebalance_ms = request.rebalance_timeout_ms
    if not limits.REBALANCE_TIMEOUT_MIN_MS <= rebalance_ms <= limits.REBALANCE_TIMEOUT_MAX_MS:
        return ErrorCode.INVALID_SESSION_TIMEOUT, (
            f"rebalance_timeout_ms must be {limits.REBALANCE_TIMEOUT_MIN_MS}"
            f" to {limits.REBALANCE_TIMEOUT_MAX_MS}."
        )
    if step.value is None:
        if request.member:
            return ErrorCode.UNKNOWN_MEMBER_ID, None
        if not (request.protocol_type and request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
        if (fault := step.new_group_fault(ErrorCode.GROUP_MAX_SIZE_REACHED)) is not None:
            return fault
        if not _fits_into_shard(step, request, None):
            return ErrorCode.GROUP_MAX_SIZE_REACHED, SHARD_IS_TOO_LARGE
    return None


def _join_new(step: Step, request: api.JoinGroup) -> None:
    code = _refused_by_group(step, request, None)
    if code is not None:
        step.refuse(request, code)
        return
    member_id = step.live.announced_id(request.client, request.id)
    if member_id is not None:
        rebalance.announce(step, request, member_id)
    elif not (step.family.config.requires_member_id and request.instance is None):
        _add(step, request, _new_id(step, request))
    elif len(step.live.pending) < step.family.config.max_size:
        rebalance.announce(step, request, _new_id(step, request))
    else:
        step.refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED)


def _new_id(step: Step, request: api.JoinGroup) -> str:
    """A client knows its id from the produce acknowledgement: it is where the request stands."""
    at = step.at
    return f"{request.client}-{at.incarnation}-{at.shard}-{at.offset}"  # INV-16


def _made_from(step: Step, request: api.JoinGroup, member_id: str) -> Member:
    at, parked = step.at, _parked(step, request)
    return Member(
        member=member_id,
        client=request.client,
        instance=request.instance,
        reply=parked.reply,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=_offered(request),
        first_id=request.id,
        joined_ms=at.time_ms,
        parked=parked,
        # A job that was away must not drop a newcomer that had no chance to be heard (rule 3).
        awaits_cover=at.offset,
        host=request.host,
    )


def _join_in_place(step: Step, request: api.JoinGroup, older: Member) -> None:
    """A newer process under the instance id of a member."""
    code = _refused_by_group(step, request, older)
    if code is not None:
        step.refuse(request, code)
        return
    newcomer = _made_from(step, request, _new_id(step, request))
    _record_joined(step, request, newcomer)
    take_place(step, older, newcomer, _parked(step, request))


def _add(step: Step, request: api.JoinGroup, member_id: str, first_id: str = "") -> None:
    """Add a member, which begins a rebalance; `first_id`: the request that was announced."""
    group = step.live
    member = _made_from(step, request, member_id)
    if first_id:
        member = replace(member, first_id=first_id, rejoin_id=request.id)
    is_first, detail = group.state is State.EMPTY, _client_reason(request)
    step.put(
        member,
        leader=group.leader or member_id,
        has_newcomer=group.is_initial,
        protocol_type=request.protocol_type if is_first else group.protocol_type,
    )
    _record_joined(step, request, member)
    rebalance.membership_changed(step, "member joined", detail)


def _join_known(step: Step, request: api.JoinGroup) -> None:
    """A member joins again: for the next generation, or with other metadata."""
    group = step.live
    if request.member in group.pending and request.instance is None:
        _join_announced(step, request)
        return
    member = step.find_member(request.member, request.instance)
    if isinstance(member, ErrorCode):
        step.refuse(request, member, member=request.member)
        return
    if _is_repeat(request, member):
        _join_again(step, request, member)
        return
    # Rule 12: a join that knows an older generation is a late duplicate, and must not count as
    # this member's consent to let go now.
    if request.generation >= 0 and request.generation != group.generation:
        code, message = ErrorCode.ILLEGAL_GENERATION, _OTHER_GENERATION
        step.refuse(request, code, message, member=request.member)
        return
    refused = _refused_by_group(step, request, member)
    if refused is not None:
        step.refuse(request, refused, member=request.member)
        if not _has_place(step, member):
            _turn_away(step, request, member)
        return
    step.is_reaction = True
    changed = member.protocols != _offered(request)
    is_leader = member.member == group.leader
    if group.state is State.PREPARING_REBALANCE:
        _park(step, request, member)
        rebalance.complete_if_all_joined(step)
    elif changed or (group.state is State.STABLE and is_leader):
        _park(step, request, member)
        reason = "metadata changed" if changed else "leader rejoined"
        rebalance.prepare(step, reason, _client_reason(request))
    else:
        rebalance.answer_join(step, member, _parked(step, request))
        # Rule 3: it waits for this answer and may not heartbeat until it can read it.
        awaited = None if member.parked else step.at.offset
        reply = reply_of(request, step.at)
        named = _rejoin_id(request, member)
        step.put(
            replace(member, reply=reply, rejoin_id=named, has_let_go=False, awaits_cover=awaited)
        )


def _is_repeat(request: api.JoinGroup, member: Member) -> bool:
    """Rule 12, for a member that lost its generation and comes back under its id.

    No generation tells its late duplicate from it, so the correlation id must.
    """
    return request.generation < 0 and (request.client, request.id) == (
        member.client,
        member.rejoin_id,
    )


def _rejoin_id(request: api.JoinGroup, member: Member) -> str:
    return request.id if request.generation < 0 else member.rejoin_id


def _turn_away(step: Step, request: api.JoinGroup, member: Member) -> None:
    """Remove a member that finds no place in a group whose limit was lowered, as in Kafka.

    By joining it has let go of all partitions but those that this JoinGroup names as owned. Unlike
    in Kafka, no member waits for it any more if it owns nothing.
    """
    reason = "group is full"
    asked = replace(member, protocols=_offered(request), parked=_parked(step, request))
    members.place_guard(step, asked, reason)
    rebalance.remove(step, member, reason)
    rebalance.go_on(step)


def _join_announced(step: Step, request: api.JoinGroup) -> None:
    code = _refused_by_group(step, request, None)
    if code is None:
        first_id = step.live.pending[request.member].first_id
        rebalance.forget_announced(step, request.member)
        _add(step, request, request.member, first_id)
        return
    step.refuse(request, code, member=request.member)
    if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
        rebalance.drop_announced(
            step, request.member
        )  # it will not come, so no join phase may wait for it


def _join_again(step: Step, request: api.JoinGroup, member: Member) -> None:
    """Judge a repeat of the JoinGroup by which a live member came, or came back.

    It may be a late duplicate, so it is never taken as consent to a new generation.
    """
    if member.is_joining and member.parked and member.parked.id == request.id:
        step.put(replace(member, parked=_parked(step, request), reply=reply_of(request, step.at)))
    elif step.live.state is State.PREPARING_REBALANCE:
        step.refuse(
            request,
            ErrorCode.REBALANCE_IN_PROGRESS,
            "This JoinGroup was judged before: let go, then join again under an id of its own.",
            member=member.member,
        )
    else:
        rebalance.answer_join(step, member, _parked(step, request))


def _refused_by_group(
    step: Step, request: api.JoinGroup, member: Member | None
) -> ErrorCode | None:
    """Size, then protocol, as Kafka orders them."""
    if not (_has_place(step, member) and _fits(step, request, member)):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _fits_into_shard(step, request, member):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    group = step.live
    if not (request.protocol_type and request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.EMPTY:
        return None
    if request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if member is not None and member.protocols == _offered(request):
        return None  # it was admitted with them, and all have had one in common since
    if group.supports_any([offered.name for offered in request.protocols]):
        return None
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _fits(step: Step, request: api.JoinGroup, member: Member | None) -> bool:
    """Whether the group can still be written with this member's metadata."""
    group = step.live
    announced_bytes = len(group.pending) * ANNOUNCED_BYTES_MAX
    grows_by = _grows_by(step, request, member)
    return grows_by <= 0 or group.size_bytes + announced_bytes + grows_by <= limits.GROUP_BYTES_MAX


def _fits_into_shard(step: Step, request: api.JoinGroup, member: Member | None) -> bool:
    """Whether the shard's blob has room for this member's metadata."""
    if step.room_bytes >= JOIN_BYTES_MAX:
        return True  # spares most joins the counting
    if member is None:
        grows_by = _made_from(step, request, _new_id(step, request)).kept_bytes
        grows_by += 0 if step.value is not None else step.new_group_bytes
        return grows_by <= step.room_bytes
    if request.member:
        after = replace(member, protocols=_offered(request), rejoin_id=_rejoin_id(request, member))
        grows_by = 0
    else:
        # In the place of a replaced member, whose share it gets and for which a guard may stay.
        made = _made_from(step, request, _new_id(step, request))
        after = replace(made, assignment=member.assignment)
        grows_by = GUARD_BYTES
    grows_by += after.kept_bytes - member.kept_bytes
    return grows_by <= max(step.members_room_bytes, 0)


def _has_place(step: Step, member: Member | None) -> bool:
    """Whether the group takes one more member, or keeps this one."""
    group = step.live
    if member is not None and group.state is not State.PREPARING_REBALANCE:
        return True
    if len(group.members) < step.family.config.max_size:
        return True
    if group.state is State.PREPARING_REBALANCE:
        # The last to rejoin an over-sized group are refused, as in Kafka.
        joining = group.joining
        return (member is not None and member.is_joining) or joining < step.family.config.max_size
    return False


def _grows_by(step: Step, request: api.JoinGroup, member: Member | None) -> int:
    """By how many bytes the group's hard state grows at most."""
    grows_by = offered_bytes(_offered(request))
    if member is None:
        return grows_by + NAMES_BYTES_MAX
    grows_by -= offered_bytes(member.protocols)
    if request.member:
        return grows_by + names_bytes(_rejoin_id(request, member)) - names_bytes(member.rejoin_id)
    # In the place of a replaced member, perhaps with longer names.
    host, former = (None if each is UNSET else each for each in (request.host, member.host))
    names = names_bytes(_new_id(step, request), request.client, request.id, host)
    before = names_bytes(member.member, member.client, member.first_id, member.rejoin_id, former)
    return grows_by + names - before


def _park(step: Step, request: api.JoinGroup, member: Member) -> None:
    """Park the member's request until the next generation; refuse the one parked before."""
    member = rebalance.supersede(step, member, JOIN, request)
    step.put(
        replace(
            member,
            reply=reply_of(request, step.at),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=_offered(request),
            parked=_parked(step, request),
            rejoin_id=_rejoin_id(request, member),
            has_let_go=False,
            awaits_cover=step.at.offset if member.is_new else None,
        )
    )


def _parked(step: Step, request: api.JoinGroup) -> Parked:
    return Parked(JOIN, request.id, request.client, step.at.coordinate, reply_of(request, step.at))


def _offered(request: api.JoinGroup) -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(p.name, p.metadata) for p in request.protocols)


def _client_reason(request: api.JoinGroup) -> dict[str, str]:
    """KIP-800: the client's own reason for joining."""
    detail = {"client": request.client, "member": request.member}
    return {**detail, "client_reason": request.reason} if request.reason else detail


def _record_joined(step: Step, request: api.JoinGroup, member: Member) -> None:
    step.record(
        stored.EVENT_MEMBER_JOINED,
        member=member.member,
        reason=request.reason or "",
        detail={
            "client": member.client,
            "instance": member.instance,
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "protocols": [offered.name for offered in member.protocols],
            **({} if member.host is UNSET else {"host": member.host}),
        },
    )
