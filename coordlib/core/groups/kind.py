"""The base of both kinds of consumer groups: their shared requests, offsets, and retention."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from coordlib.core.engine.clock import Due
from coordlib.core.engine.kind import NOT_INDEXED, Facts, Handler, Kind, Known
from coordlib.core.engine.transition import At
from coordlib.core.groups.group import AnyGroup
from coordlib.core.groups.offsets import pending, retention
from coordlib.core.groups.offsets.decide_pending import decide_pending
from coordlib.core.groups.offsets.delete_group import delete_group
from coordlib.core.groups.offsets.offset_delete import offset_delete
from coordlib.core.groups.offsets.offset_fetch import offset_fetch
from coordlib.core.groups.offsets.pending_commit import pending_commit
from coordlib.core.groups.offsets.pending_table import PENDING
from coordlib.core.groups.offsets.table import OFFSETS
from coordlib.core.groups.offsets.txn_messages import MESSAGES
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode

#: A group's `Facts.index` holds the topics that it wants. nil: not known, so it is decoded.
UNKNOWN_WISHES: Final = NOT_INDEXED
#: false: no change of topics concerns the group.
NO_WISHES: Final = msgspec.Raw(b"\xc2")

#: Requests that both kinds judge alike.
OF_ALL_GROUPS: Final[Mapping[type[rq.Request], Handler]] = {
    rq.OffsetFetch: offset_fetch,
    rq.OffsetDelete: offset_delete,
    rq.DeleteGroup: delete_group,
    rq.PendingCommit: pending_commit,
    rq.DecidePending: decide_pending,
}


class GroupKind(Kind):
    """A kind of consumer group."""

    TABLES: ClassVar = (OFFSETS, PENDING)
    MESSAGES: ClassVar = MESSAGES
    #: The module that counts and judges its deadlines.
    TIMERS: ClassVar[Any]
    #: Judges a change of topics or of their counts; None: topics concern members only.
    topics_changed: Callable[[Any, Collection[str]], None] | None = None

    def create(self, name: str, at: At) -> Any:
        """A group without members and offsets."""
        return self.VALUE(group=name, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def adopt(self, value: AnyGroup, at: At) -> Any:
        """An empty group of the other kind: its name, generation and offsets go on."""
        return replace(self.create(value.group, at), generation=value.generation)

    def is_empty(self, value: AnyGroup) -> bool:
        return value.is_empty

    def sessions(self, value: AnyGroup) -> Set[str]:
        return value.members.keys()

    def facts(self, value: AnyGroup, known: Known) -> Facts:
        before: AnyGroup | None = known.value
        look_at_ms = retention.look_at_ms(value, known)
        report = _report(known)
        if value is before:
            return replace(known.facts, look_at_ms=look_at_ms, report=report)
        is_same_wish = before is not None and _wanting_as(before) == _wanting_as(value)
        index = known.facts.index if is_same_wish else self.wishes(value)
        facts = self.facts_of_members(value, known)
        return replace(facts, look_at_ms=look_at_ms, index=index, report=report)

    @abstractmethod
    def facts_of_members(self, value: Any, known: Known) -> Facts:
        """All facts but `look_at_ms`, `index` and `report`."""

    def next_due(self, value: Any, heard: Mapping[str, int]) -> Due:
        due: Due = self.TIMERS.next_due(value, heard)
        return due

    def fire(self, step: Any, due: Due) -> None:
        self.TIMERS.fire(step, due)

    def cover(self, value: Any, published: int, clock_ms: int) -> tuple[Any, list[str]]:
        covered: tuple[Any, list[str]] = self.TIMERS.cover(value, published, clock_ms)
        return covered

    def restart(self, value: Any, clock_ms: int) -> Any:
        return self.TIMERS.restart(value, clock_ms)

    def look(self, step: Any, checked_ms: int) -> None:
        """Retention: forget the offsets, and the group, that were due at a check."""
        retention.expire(step, checked_ms)

    def released(self, step: Any) -> None:
        """Topics may have come and gone, and transactions ended, while it was set aside."""
        pending.carry_out(step)
        if self.topics_changed is not None:
            self.topics_changed(step, ())

    @abstractmethod
    def fault_of_member(
        self, step: Any, member: str, instance: str | None, generation: int
    ) -> ErrorCode:
        """Why offsets of this sender must not wait for a decision; NONE: they may."""

    def row_faults(
        self, _step: Any, _member: str, _generation: int
    ) -> Callable[[rq.CommittedOffset], ErrorCode]:
        """Why a row of such a sender must not; NONE: it may."""
        return lambda _: ErrorCode.NONE

    def known_topics(self, _: Any) -> Mapping[str, int]:
        """Topics whose partition counts a group tells, for a shard that lost its own."""
        return {}

    def wishes(self, _: Any) -> msgspec.Raw:
        """The topics that a group wants, by its generation alone.

        NO_WISHES: no change of topics concerns it. UNKNOWN_WISHES: any change may.
        """
        return NO_WISHES

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


def _wanting_as(group: AnyGroup) -> tuple[object, ...]:
    """The fields that its wishes depend on: members change wishes with a new generation only."""
    return type(group), group.generation, group.is_quarantined
