"""From the partitions that members own to their targets, without stopping any member.

    demand   a member is asked to let go of partitions beyond its target; it keeps the rest
    grant    a partition without owner is granted at once to the member whose target has it
    notify   a member with a new grant or a new demand is sent its whole picture

A partition is not granted while another member may still work on it. A demanded partition is owned
until its Release is judged (rule 12), or its owner is out of the group, which the rules of time
allow only when its fence must have stopped it (rules 8, 10), or a guard has ended (rule 14). A
demand is never taken back: the Release may be on its way, and a member that has let go must not
count as owner.
"""

from collections.abc import Collection, Mapping

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.time import reaction
from coordlib.core.groups.assigned.group import (
    Demand,
    Grant,
    Group,
    Member,
    Partitions,
    State,
    Step,
    minus,
    union,
)
from coordlib.core.groups.group import is_older
from coordlib.core.wire import api, stored
from coordlib.core.wire import consumer_protocol as cp


def go_on(step: Step) -> None:
    """Demand surplus partitions, grant free ones, and renew the group's state."""
    for member in [m for m in step.live.members.values() if not m.is_reconciled]:
        _ask_back(step, member)
    waiting = [m for m in step.live.members.values() if m.missing]
    if waiting:
        taken = _taken(step.live, {topic for m in waiting for topic in m.missing})
        for member in waiting:
            _grant(step, member, taken)
    _settle(step)


def _taken(group: Group, topics: set[str]) -> dict[str, frozenset[int]]:
    """Partitions of these topics that a member holds, or may still hold, and must give up.

    A partition in its holder's own target is in no other target, so it is left out. To search all
    that all members hold, at every Release, was half of the work when a large group fills.
    """
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    for held in group.held_beyond_targets():
        for topic in topics & held.keys():
            found[topic].extend(held[topic])
    return {topic: frozenset(some) for topic, some in found.items()}


def _ask_back(step: Step, member: Member) -> None:
    """One demand for all that it owns beyond its target and was not asked for yet.

    One record may cause two divisions, when two deadlines are due before it. Its coordinate names
    one demand only, because a Release carries nothing else; the rest is asked for when that demand
    is met. The same holds when divisions come faster than the member answers: a member that is
    slow, or lets go of nothing, has few demands.
    """
    is_asked_enough = len(member.demands) >= limits.DEMANDS_PER_MEMBER_MAX
    if is_asked_enough or member.demand(step.at.offset) is not None:
        return
    surplus = minus(member.surplus, member.asked_back)
    if not surplus:
        return
    timer = reaction(member.rebalance_timeout_ms, step.at.offset)
    demand = Demand(timer=timer, partitions=surplus)
    step.update(member, demands=(*member.demands, demand))
    step.record(
        stored.EVENT_RELEASE_DEMANDED,
        member=member.member,
        detail={"client": member.client, "cause": step.at.offset, "partitions": surplus},
    )


def _grant(step: Step, member: Member, taken: Mapping[str, Collection[int]]) -> None:
    """Grant all partitions of its target that are free."""
    free = minus(member.missing, taken)
    if not free:
        return
    at = step.at
    older = tuple(each for each in member.grants if each.fence != at.offset)
    same = [each for each in member.grants if each.fence == at.offset]
    # One record may free partitions twice, by a deadline and by its own content. No commit before
    # it can name the first of its generations, so commits that do are not from before the grant.
    generation = same[0].generation if same else step.live.generation
    partitions = union([*(each.partitions for each in same), free])
    grant = Grant(fence=at.offset, generation=generation, partitions=partitions)
    step.update(member, grants=_few((*older, grant)), fence=at.offset)


def _few(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Merge the oldest grants into one if there are too many.

    A member that fills up gets a grant with each Release of another one: a thousand members would
    have fifty thousand, and no record has room for them. The fence of some partitions rises by it.
    That is harmless: the picture with its new grant has it, and no former owner has a higher one.
    A commit from before the newest of the merged grants counts as late.
    """
    surplus = len(grants) - limits.GRANTS_PER_MEMBER_MAX
    if surplus <= 0:
        return grants
    oldest, rest = grants[: surplus + 1], grants[surplus + 1 :]
    generation = oldest[0].generation
    for each in oldest:
        generation = each.generation if is_older(generation, each.generation) else generation
    partitions = union([each.partitions for each in oldest])
    return (Grant(fence=oldest[-1].fence, generation=generation, partitions=partitions), *rest)


def _settle(step: Step) -> None:
    """Enter Stable if every member owns just its target, else Reconciling."""
    group = step.live
    if not group.members:
        return
    if not all(member.is_reconciled for member in group.members.values()):
        step.enter(State.RECONCILING)
        return
    was_open = group.state is State.RECONCILING
    step.enter(State.STABLE)
    if was_open:
        waited_ms = step.at.time_ms - group.rebalance_started_ms
        step.record(stored.EVENT_GROUP_SETTLED, detail={"duration_ms": waited_ms})


def let_go(step: Step, member: Member, demand: Demand) -> Member:
    """Take the partitions of a demand from the member."""
    grants = []
    for grant in member.grants:
        rest = minus(grant.partitions, demand.partitions)
        if rest:
            grants.append(Grant(fence=grant.fence, generation=grant.generation, partitions=rest))
    demands = tuple(each for each in member.demands if each is not demand)
    return step.update(member, grants=tuple(grants), demands=demands)


# ---- notifying ----------------------------------------------------------------------------------


def tell(step: Step, before: Mapping[str, Member], but: str = "") -> None:
    """Record changed assignments, and notify the members with new grants or demands.

    `before`: the members as they were when the step began; `but`: the member that gets an answer
    instead.
    """
    for name, member in step.live.members.items():
        older = before.get(name)
        if older is member:
            continue
        has_more = older is not None and _has_more(older, member)
        if older is None or older.owned != member.owned or has_more:
            _issue(step, member)
        if name == but or older is None:
            continue
        # Where its own Release is the only change, no notice is needed.
        if has_more or any(each not in older.demands for each in member.demands):
            step.emit(fx.Notify(member.reply, picture(step, member)))


def _has_more(older: Member, member: Member) -> bool:
    """Whether it got a grant, also of partitions that it has just released and gets back."""
    granted = {grant.fence: grant.partitions for grant in older.grants}
    return any(minus(grant.partitions, granted.get(grant.fence, {})) for grant in member.grants)


def picture(step: Step, member: Member) -> api.AssignmentChanged:
    """The notice with all that a member holds now."""
    return api.AssignmentChanged(
        group=step.name,
        cause=step.at.coordinate,
        member=member.member,
        generation=step.live.generation,
        fence=member.fence,
        partitions=granted(member),
        release=demanded(member),
    )


def granted(member: Member) -> tuple[api.GrantedPartitions, ...]:
    """The partitions that it may work on, without demanded ones."""
    return tuple(
        api.GrantedPartitions(topic, some, grant.fence)
        for grant in member.grants
        for topic, some in minus(grant.partitions, member.asked_back).items()
    )


def demanded(member: Member) -> tuple[api.DemandedRelease, ...]:
    return tuple(
        api.DemandedRelease(
            demand.timer.cause,
            tuple(api.OwnedPartitions(topic, some) for topic, some in demand.partitions.items()),
        )
        for demand in member.demands
    )


def _issue(step: Step, member: Member) -> None:
    """Write all partitions that it owns to `coord.assignments` and into history."""
    group, at, owned = step.live, step.at, member.owned
    value = stored.AssignmentValue(
        generation=group.generation,
        protocol=group.protocol,
        assignment=encoded(owned),
        fence=member.fence,
        since_ms=at.time_ms,
    )
    step.assign(member.member, value)
    step.record(
        stored.EVENT_ASSIGNMENT_ISSUED,
        member=member.member,
        detail={"fence": member.fence, "sync": at.offset, "partitions": owned},
    )


def encoded(owned: Partitions) -> bytes:
    """In the layout that all tools for consumer groups read."""
    return cp.encode_assignment(cp.Assignment(partitions=owned))
