"""The base of both kinds of consumer groups: their shared requests, their facts, and retention.

Offsets expire, and groups without any (KIP-211): never while subscribed.  # INV-26

    group        an offset expires                                            its topic
    Empty        retention after its commit, and after the last member left   any
                 never while an announced member may join
    Stable       retention after its commit                                   unsubscribed
    otherwise    never: a member that rejoins may want it

Stable groups count when they are consumers whose subscriptions can be read; others never expire
anything while they have members. An Empty group goes with its last offset, or at the next check
when it has none. Two rules are milder than Kafka's. It forgets what was committed to an Empty
group after its members left as soon as the members' own time is up. And it deletes an Empty group
that has just handed out a member id: where checks come more often than a join takes, a first member
would be refused as unknown for ever.

Offsets with pending ones beside them never expire, and no group that has pending ones: whoever
decides about them counts on both. They are looked at again at each check.

Time is the shard's clock, never a timestamp. A broker whose clock jumps a month ahead would make
all offsets a month older; the clipped clock takes one CAP of it. It runs late when nothing is
written (an idle shard has no ticks), hardly early: an offset that is kept too long costs some
bytes, one that is deleted too early costs a reader its position. So that it does not run for ever,
retention is no deadline that ticks are written for: what is due goes with the next record. A commit
that came by `coord.offsets` does not move the clock either: it counts from the newest request
before it, so it may expire early by the time since then, at most one CAP.

Checks stand at fixed points of the clock, the multiples of the check interval, and what is due at
the newest of them expires, whenever that record is judged: neither the cut into batches nor the
number of looks makes a difference. A look reads all offsets of a group; so each row has a bound
below its first expiry, which a look makes exact and which is otherwise renewed without reading.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import At
from coordlib.core.engine.step import NOT_INDEXED, Facts, Handler, Kind, Known, remove_entity
from coordlib.core.engine.tables import Entries
from coordlib.core.engine.time import NEVER
from coordlib.core.groups.group import AnyGroup, GroupStep
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.commit import offset_commit
from coordlib.core.groups.offsets.pending import decide_pending, remove_offsets
from coordlib.core.groups.offsets.pending_commit import MESSAGES, pending_commit
from coordlib.core.groups.offsets.requests import delete_group, offset_delete, offset_fetch
from coordlib.core.groups.offsets.tables import OFFSETS, PENDING
from coordlib.core.wire import api, stored

CAUSE = "deadline:retention"


def next_look_ms(group: AnyGroup, known: Known) -> int:
    """When the shard must look at a group next: not later than its first expiry.

    Exact after a look. Otherwise found without reading offsets: by the group's state where that is
    new, or where the group has its first offsets or has lost its last ones; a new offset expires
    after those that there were, unless none of them could.
    """
    retention_ms = known.settings.config.offsets_retention_ms
    if known.has_looked:
        return first_expiry(group, known.row.entries(OFFSETS), retention_ms)
    count, bound_ms = known.row.count(OFFSETS), known.facts.next_maintenance_ms
    before: AnyGroup | None = known.value
    has_new_state = before is not group and (before is None or _has_new_state(before, group))
    is_anew = has_new_state or (OFFSETS.name in known.counts) != bool(count)
    if not (is_anew or known.put):
        return bound_ms
    if not _may_expire(group):
        return NEVER if is_anew else bound_ms
    if is_anew:
        bound_ms = expiry_bound(group, count, retention_ms)
    return min(bound_ms, known.clock_ms + retention_ms) if known.put else bound_ms


def _has_new_state(before: AnyGroup, group: AnyGroup) -> bool:
    """Whether a field has changed that decides when a group may expire, beside its offsets."""
    return (
        before.state_since_clock_ms != group.state_since_clock_ms
        # What members subscribe to may change while the state does not.
        or before.generation != group.generation
        or before.is_quarantined != group.is_quarantined
        or before.is_settled != group.is_settled
        or before.is_empty != group.is_empty
        or (group.is_empty and _awaits_somebody(before) != _awaits_somebody(group))
    )


def expiry_bound(group: AnyGroup, offset_count: int, retention_ms: int) -> int:
    """Not later than the first expiry, by the group's state alone; NEVER in most states."""
    since_ms = group.state_since_clock_ms
    if not _may_expire(group):
        return NEVER
    if group.is_empty:
        return since_ms + (retention_ms if offset_count else 0)
    return since_ms if offset_count else NEVER


def first_expiry(group: AnyGroup, offsets: Entries, retention_ms: int) -> int:
    """When the group or one of its offsets expires first, if nothing changes; reads the offsets."""
    if offsets.count == 0:
        return expiry_bound(group, 0, retention_ms)
    return min((due_ms for due_ms, *_ in _dues(group, offsets, retention_ms)), default=NEVER)


def expire(step: GroupStep[Any], checked_ms: int) -> None:
    """Delete the offsets that were due at a check, or the group."""
    step.cause = CAUSE
    group, offsets = step.live, step.entries(OFFSETS)
    is_empty = group.is_empty
    dues = _dues(group, offsets, step.family.config.offsets_retention_ms)
    due = [(topic, partition) for due_ms, topic, partition in dues if due_ms <= checked_ms]
    waiting = pending.awaited(step, due)
    gone = [place for place in due if place not in waiting][: limits.OFFSETS_PER_EVENT_MAX]
    reason = "group empty" if is_empty else "topic not subscribed"
    remove_offsets(step, gone, stored.EVENT_OFFSETS_EXPIRED, reason)
    if not is_empty or len(gone) < offsets.count or pending.has_any(step):
        return
    if gone:
        remove_entity(step, "offsets expired")
    elif expiry_bound(group, 0, 0) <= checked_ms:
        remove_entity(step, "empty without offsets")


def _may_expire(group: AnyGroup) -> bool:
    if group.is_quarantined:
        return False
    if group.is_settled:
        return group.tells_subscriptions
    return group.is_empty and not _awaits_somebody(group)


def _awaits_somebody(group: AnyGroup) -> bool:
    """Whether a deadline of members runs; of an Empty group: of those with an announced id."""
    return next(group.reaction_timers(), None) is not None


def _dues(group: AnyGroup, offsets: Entries, retention_ms: int) -> Iterator[tuple[int, str, int]]:
    """When each offset that may expire does, its topic and partition, in order of these."""
    if not _may_expire(group):
        return
    for topic in offsets.names():
        if not group.is_subscribed(topic):
            for partition, kept in offsets.of_name(topic):
                yield _due(group, kept.commit_clock_ms, retention_ms), topic, partition


def _due(group: AnyGroup, commit_clock_ms: int, retention_ms: int) -> int:
    since_ms = group.state_since_clock_ms
    # A shard has no clock (0) until its first request sets it; a position that no member wrote
    # may have come before. It is kept until it is written again, or members come and go.
    known_ms = commit_clock_ms or since_ms
    if known_ms == 0:
        return NEVER
    if group.is_empty:
        return max(known_ms, since_ms) + retention_ms
    return max(known_ms + retention_ms, since_ms)


#: A group's `Facts.index` holds the topics that it wants. nil: not known, so it is decoded.
UNKNOWN_TOPICS: Final = NOT_INDEXED
#: false: no change of topics concerns the group.
NO_TOPICS: Final = msgspec.Raw(b"\xc2")

#: Requests that both kinds judge alike.
OF_ALL_GROUPS: Final[Mapping[type[api.Request], Handler]] = {
    api.OffsetCommit: offset_commit,
    api.OffsetFetch: offset_fetch,
    api.OffsetDelete: offset_delete,
    api.DeleteGroup: delete_group,
    api.PendingCommit: pending_commit,
    api.DecidePending: decide_pending,
}


class GroupKind(Kind):
    """A kind of consumer group."""

    TABLES: ClassVar = (OFFSETS, PENDING)
    MESSAGES: ClassVar = MESSAGES
    #: Judges a change of topics or of their counts; None: topics concern members only.
    topics_changed: Callable[[Any, Collection[str]], None] | None = None

    def create(self, name: str, at: At) -> Any:
        """A group without members and offsets."""
        return self.VALUE(group=name, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def adopt(self, value: AnyGroup, at: At) -> Any:
        """An empty group of the other kind; name, generation and offsets are kept."""
        return replace(self.create(value.group, at), generation=value.generation)

    def is_empty(self, value: AnyGroup) -> bool:
        return value.is_empty

    def sessions(self, value: AnyGroup) -> Set[str]:
        return value.members.keys()

    def facts(self, value: AnyGroup, known: Known) -> Facts:
        before: AnyGroup | None = known.value
        next_maintenance_ms = next_look_ms(value, known)
        report = _report(known)
        if value is before:
            return replace(known.facts, next_maintenance_ms=next_maintenance_ms, report=report)
        is_same_index = before is not None and _subscribed_as(before) == _subscribed_as(value)
        index = known.facts.index if is_same_index else self.topics_index(value)
        first_unread_offset, last_unread_offset = _uncovered(value) or (-1, -1)
        return replace(
            self.facts_of_members(value, known),
            first_unread_offset=first_unread_offset,
            last_unread_offset=last_unread_offset,
            next_maintenance_ms=next_maintenance_ms,
            index=index,
            report=report,
        )

    @abstractmethod
    def facts_of_members(self, value: Any, known: Known) -> Facts:
        """All facts but those that both kinds find alike."""

    def maintain(self, step: Any, checked_ms: int) -> None:
        """Retention: forget the offsets, and the group, that were due at a check."""
        expire(step, checked_ms)

    def released(self, step: Any) -> None:
        """Topics may have come and gone, and transactions ended, while it was set aside."""
        pending.carry_out(step)
        if self.topics_changed is not None:
            self.topics_changed(step, ())

    def known_topics(self, _: Any) -> Mapping[str, int]:
        """Topics whose partition counts a group tells, for a shard that lost its own."""
        return {}

    def topics_index(self, _: Any) -> msgspec.Raw:
        """The topics that a group wants, by its generation alone.

        NO_TOPICS: no change of topics concerns it. UNKNOWN_TOPICS: any change may.
        """
        return NO_TOPICS

    def concerned(self, _: Collection[str]) -> Callable[[msgspec.Raw], bool]:
        """Whether a change of these topics may concern a group, by its wishes."""
        return lambda _: False


def _report(known: Known) -> msgspec.Raw:
    """The transactions of Kafka that its pending offsets wait for."""
    changes = known.put.get(PENDING.name)
    if not changes:
        return known.facts.report
    entries = known.row.entries(PENDING)
    if known.value is not None and known.value.is_quarantined:
        return pending.report(entries)  # the facts before may be those of a defect
    return pending.report_after(known.facts.report, entries, changes)


def _subscribed_as(group: AnyGroup) -> tuple[object, ...]:
    """The fields that its wishes depend on: members change wishes with a new generation only."""
    return type(group), group.generation, group.is_quarantined


def _uncovered(group: AnyGroup) -> tuple[int, int] | None:
    """The lowest and highest record that a member must react to and that no tick covers yet."""
    causes = [timer.cause for timer in group.reaction_timers() if timer.due_ms is None]
    causes += [m.awaits_cover for m in group.members.values() if m.awaits_cover is not None]
    return (min(causes), max(causes)) if causes else None
