"""Assignors as members use them: metadata for the leader, and the leader's assignment.

The group's vote chooses an assignor among those that every member offers. `metadata` is a member's
part of its JoinGroup; the leader alone runs `assign`; `on_assignment` (or `on_assignment_data`, if
the assignor has it) passes to every member's assignor the share of its member. The table of
coordlib's own assignors is here; `strategy` finds an assignor by name.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from coordlib.client.kit.signals import Partitions, TopicPartition
from coordlib.core.groups.assignors import (
    cooperative_sticky,
    model,
    roundrobin,
    sticky,
    sticky_data,
)
from coordlib.core.groups.assignors import range as range_assignor
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import SetupError

_log = logging.getLogger("coordlib.client")


class RebalanceMode(Enum):
    """The handling of a member's partitions while it joins the next generation."""

    #: It revokes all partitions first.
    EAGER = 1
    #: It keeps them, revokes those that the new assignment lacks, and joins again (KIP-429).
    COOPERATIVE = 2


EAGER = frozenset({RebalanceMode.EAGER})
#: A cooperative assignor also assigns to members that revoke first: the rolling upgrade.
BOTH = frozenset(RebalanceMode)


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A member at the moment of its JoinGroup."""

    topics: tuple[str, ...]
    #: What it keeps while it joins; empty in the eager mode.
    owned: Partitions = ()
    #: The generation that it comes from; -1: none.
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMemberView:
    """A member as its leader sees it."""

    subscription: cp.Subscription
    instance: str | None = None
    #: Why its metadata cannot be read; empty: they can. It gets nothing, unless the assignor
    #: raises: then no member gets anything, and all of them get the reason.
    unreadable: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        return self.subscription.topics

    @property
    def owned(self) -> Partitions:
        """Partitions that it keeps; the next assignment may give them to no other member."""
        return flat(self.subscription.owned)


class Assignor(Protocol):
    """One way to share partitions among members. Users may bring their own."""

    @property
    def name(self) -> str:
        """The protocol's name in JoinGroup; all members of a group must share one."""

    @property
    def modes(self) -> frozenset[RebalanceMode]:
        """The modes in which a member that offers it may run."""

    def metadata(self, state: SubscriptionState) -> bytes:
        """This member's metadata for the leader: bytes of a ConsumerProtocol subscription."""

    def assign(
        self, members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
    ) -> Mapping[str, cp.Assignment]:
        """Assign all partitions; `partitions` has the count of every topic that exists.

        If it raises, no member gets anything: all get the reason and stay in the group, and the
        leader tries again after a while. A GroupError with one of `requests.ASSIGNMENT_ERRORS`
        names the error that they get.

        In the cooperative mode, a partition that one member owns may not go to another one in the
        same step: leave it out; its owner revokes it and joins again; the next division gives it.
        """

    def on_assignment(self, given: Partitions, generation: int) -> None:
        """Take note of this member's share. Called from any thread; must be quick."""


@runtime_checkable
class RackAware(Protocol):
    """The further method of an assignor that uses racks (KIP-881)."""

    def assign_near(
        self,
        members: Mapping[str, GroupMemberView],
        partitions: Mapping[str, int],
        racks: ReplicaRacks,
    ) -> Mapping[str, cp.Assignment]:
        """As `assign`, which is called where no member names a rack.

        `racks` has for every topic the racks of each partition's replicas, by partition number. It
        was read after the counts, so it may be longer or shorter than they are.
        """


@runtime_checkable
class ReadsUserData(Protocol):
    """The further method of an assignor whose leader sends data with each assignment."""

    def on_assignment_data(
        self, given: Partitions, generation: int, user_data: bytes | None
    ) -> None:
        """In place of `on_assignment`: also the `user_data` that the leader's `assign` put into
        this member's Assignment; None: it put none. Quick, from any thread."""


#: Members and partition counts in; member -> topic -> its partitions out.
Divide = Callable[
    [Mapping[str, GroupMemberView], Mapping[str, int]],
    Mapping[str, Mapping[str, Sequence[int]]],
]


@dataclass(eq=False)
class FunctionAssignor:
    """An assignor around a pure function; a subclass may remember what its member had."""

    name: str
    divide: Divide
    modes: frozenset[RebalanceMode] = EAGER
    #: Whether the leader's assignment depends on what members owned, and when.
    is_sticky: bool = False

    def metadata(self, state: SubscriptionState) -> bytes:
        # Else both are left out: metadata that stay the same let a member ask for its generation
        # again without a rebalance.
        is_told = self.is_sticky
        return cp.encode_subscription(
            cp.Subscription(
                topics=state.topics,
                owned=by_topic(state.owned) if is_told else {},
                generation=state.generation if is_told else -1,
                rack=state.rack,
            )
        )

    def assign(
        self, members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
    ) -> Mapping[str, cp.Assignment]:
        return _shares(self.divide(members, partitions))

    def on_assignment(self, given: Partitions, generation: int) -> None:
        pass


def _shares(given: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, cp.Assignment]:
    return {
        member: cp.Assignment(partitions={t: tuple(some) for t, some in rows.items()})
        for member, rows in given.items()
    }


def _in_terms(members: Mapping[str, GroupMemberView]) -> dict[str, model.Member]:
    """Members in the terms of coordlib's own assignors."""
    return {id_: model.member_of(m.subscription, m.instance) for id_, m in members.items()}


class RackAwareAssignor(FunctionAssignor):
    """An assignor of coordlib's own that uses racks where they are known."""

    def __init__(
        self,
        name: str,
        pure: Callable[
            [Mapping[str, model.Member], Mapping[str, int], ReplicaRacks], model.Assignments
        ],
        modes: frozenset[RebalanceMode] = EAGER,
        is_sticky: bool = False,
    ) -> None:
        def divide(
            members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
        ) -> model.Assignments:
            return pure(_in_terms(members), partitions, {})

        super().__init__(name, divide, modes, is_sticky)
        self._pure = pure

    def assign_near(
        self,
        members: Mapping[str, GroupMemberView],
        partitions: Mapping[str, int],
        racks: ReplicaRacks,
    ) -> Mapping[str, cp.Assignment]:
        return _shares(self._pure(_in_terms(members), partitions, racks))


class StickyAssignor(RackAwareAssignor):
    """Kafka's eager sticky assignor: user data carry the partitions that the member had."""

    def __init__(self) -> None:
        super().__init__(sticky.NAME, sticky.assign)
        self._had: tuple[Partitions, int] | None = None

    def metadata(self, state: SubscriptionState) -> bytes:
        data = None
        if self._had is not None:
            data = sticky_data.encode_sticky(by_topic(self._had[0]), self._had[1])
        told = cp.Subscription(topics=state.topics, user_data=data, rack=state.rack)
        return cp.encode_subscription(told)

    def on_assignment(self, given: Partitions, generation: int) -> None:
        self._had = given, generation


def _range() -> Assignor:
    return RackAwareAssignor(range_assignor.NAME, range_assignor.assign)


def _roundrobin() -> Assignor:
    return FunctionAssignor(
        roundrobin.NAME, lambda members, counts: roundrobin.assign(_in_terms(members), counts)
    )


def _cooperative_sticky() -> Assignor:
    return RackAwareAssignor(
        cooperative_sticky.NAME, cooperative_sticky.assign, modes=BOTH, is_sticky=True
    )


#: Coordlib's own assignors, by Kafka's names.
BUILT_IN: dict[str, Callable[[], Assignor]] = {
    range_assignor.NAME: _range,
    roundrobin.NAME: _roundrobin,
    sticky.NAME: StickyAssignor,
    cooperative_sticky.NAME: _cooperative_sticky,
}


def mode_of(assignors: Sequence[Assignor]) -> RebalanceMode:
    """The most advanced mode that *all* assignors of a member support: Kafka's rule.

    So a member that offers `cooperative-sticky,range` runs eagerly, and a group goes over to the
    cooperative mode with two rounds of restarts: first all members offer both, then the new one
    alone.

    Raises:
        SetupError: no assignors, two of one name, or no mode in common.
    """
    names = [each.name for each in assignors]
    if not names or len(set(names)) < len(names):
        raise SetupError("A member needs assignors, each of another name.", repr(names))
    common = frozenset.intersection(*(each.modes for each in assignors))
    if not common:
        raise SetupError("These assignors have no rebalance mode in common.", ", ".join(names))
    return max(common, key=lambda mode: mode.value)


def flat(rows: Mapping[str, Iterable[int]]) -> Partitions:
    """Partitions by topic, as rows in order of topic and number."""
    return tuple(
        TopicPartition(topic, each) for topic in sorted(rows) for each in sorted(rows[topic])
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Rows, as partitions by topic."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return {topic: tuple(some) for topic, some in topics.items()}


def views(members: Iterable[rs.JoinedMember]) -> dict[str, GroupMemberView]:
    """Read the members' metadata. A member with unreadable metadata gets nothing, unless the
    assignor raises for it."""
    return {member.member: _view(member) for member in members}


def _view(member: rs.JoinedMember) -> GroupMemberView:
    try:
        return GroupMemberView(cp.decode_subscription(member.metadata), member.instance)
    except cp.Unreadable as problem:
        _log.warning("The metadata of %s cannot be read: %s", member.member, problem)
        nothing = cp.Subscription(topics=())
        return GroupMemberView(nothing, member.instance, unreadable=str(problem))


def rows_of(given: Mapping[str, cp.Assignment]) -> tuple[rq.MemberAssignment, ...]:
    """The leader's SyncGroup rows, by member id."""
    return tuple(
        rq.MemberAssignment(member=member, assignment=cp.encode_assignment(given[member]))
        for member in sorted(given)
    )
