"""Assignors as members use them: what to tell the leader, and how a leader divides.

An assignor is chosen by the group's vote among those that every member offers. `metadata` is what
this member says of itself when it joins; `assign` is run by the leader alone. Only eager assignors
are driven yet: members let go of everything before they rejoin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from coordlib.client.signals import Partitions, TopicPartition
from coordlib.coordinators.assignors import range as range_assignor
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from coordlib.records import responses as rs


@dataclass(frozen=True, slots=True)
class GroupMemberView:
    """A member as its leader sees it."""

    subscription: cp.Subscription
    instance: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return self.subscription.topics

    @property
    def rack(self) -> str | None:
        return self.subscription.rack


class Assignor(Protocol):
    """One way to share partitions among members."""

    @property
    def name(self) -> str:
        """The protocol's name in JoinGroup; all members of a group must share one."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they own while they rejoin (KIP-429)."""

    def metadata(self, topics: tuple[str, ...], owned: Partitions, generation: int) -> bytes:
        """What this member tells the leader: bytes of a ConsumerProtocol subscription."""

    def assign(
        self, members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
    ) -> Mapping[str, cp.Assignment]:
        """Divide; `partitions` has the count of every topic that exists."""


class RangeAssignor:
    """Kafka's range assignor: eager, per topic, consecutive partitions."""

    name = range_assignor.NAME
    is_cooperative = False

    def metadata(self, topics: tuple[str, ...], owned: Partitions, generation: int) -> bytes:
        # Version 1 is what Kafka's own eager assignors need; owned partitions let no leader decide
        # anything here, since everything is let go first.
        del owned, generation
        return cp.encode_subscription(cp.Subscription(version=1, topics=topics))

    def assign(
        self, members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]
    ) -> Mapping[str, cp.Assignment]:
        given = range_assignor.assign(members, partitions)
        return {member: cp.Assignment(version=1, partitions=rows) for member, rows in given.items()}


def views(members: tuple[rs.JoinedMember, ...]) -> dict[str, GroupMemberView]:
    """Read the members' metadata. One who cannot be read gets nothing, and stops nobody else."""
    return {member.member: _view(member) for member in members}


def _view(member: rs.JoinedMember) -> GroupMemberView:
    try:
        return GroupMemberView(cp.decode_subscription(member.metadata), member.instance)
    except cp.Unreadable:
        return GroupMemberView(cp.Subscription(topics=()), member.instance)


def rows_of(given: Mapping[str, cp.Assignment]) -> tuple[rq.MemberAssignment, ...]:
    """The leader's SyncGroup rows, by member id."""
    return tuple(
        rq.MemberAssignment(member=member, assignment=cp.encode_assignment(given[member]))
        for member in sorted(given)
    )


def partitions_of(assignment: bytes) -> Partitions:
    """An assignment's partitions in order of topic and number. Raises Unreadable."""
    rows = cp.decode_assignment(assignment).partitions
    return tuple(
        TopicPartition(topic, each) for topic in sorted(rows) for each in sorted(rows[topic])
    )
