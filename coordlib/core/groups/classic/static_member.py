"""Static membership (KIP-345): a process comes back under its instance id and takes its place.

It gets a new member id, and everything else stays: its assignment, its place, the leadership. In
Stable nobody else notices, unless its protocols change what the group agrees on, or it wants other
topics. The replaced member is fenced and notified at once, and the successor waits until it has
stopped (guards.py).
"""

from msgspec.structs import replace

from coordlib.core.groups.classic import guards, rebalance
from coordlib.core.groups.classic.group import Member, Parked, State
from coordlib.core.groups.classic.step import Step
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire import stored
from coordlib.errors import ErrorCode

REASON = "static member replaced"


def take_place(step: Step, older: Member, newcomer: Member, parked: Parked) -> None:
    """Put the newcomer, made from its JoinGroup, in the place of the member that it replaces."""
    rebalance.answer_parked(step, older, ErrorCode.FENCED_INSTANCE_ID)
    guards.place(step, older, REASON, successor=newcomer.member)
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
        guards.hand_over(step, newcomer)
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
    rebalance.membership_changed(step, REASON, {"instance": newcomer.instance or ""})


def _tell_older_twin(step: Step, older: Member, newcomer: Member) -> None:
    step.record(
        stored.EVENT_MEMBER_FENCED,
        member=older.member,
        reason=REASON,
        detail={"instance": older.instance, "replaced_by": newcomer.member},
    )
    rebalance.tell_removed(step, older, REASON)
