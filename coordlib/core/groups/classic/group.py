"""A classic group as a value: its states, its members, their sizes, and what must always hold.

Everything here is hard state: it survives crashes, is written to `coord.groups` whenever it
changed, and is enough to restore the group. When a member was last heard is soft state and is
kept by the shard; offsets are kept beside the group, so that neither slows the other.
Source: seeds 002 and 004; `ClassicGroup.java` and `ClassicGroupState.java` of Apache Kafka.

Two sizes are counted. `size_bytes` bounds one record's JSON, where every character may be escaped.
`kept_bytes` bounds the hard state and the members' soft state in a shard's blob; it depends on the
group alone, not on when it was written or how, so that the sum over a shard is the same however the
log is cut into batches, and after a rebuild.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.engine.time import Timer
from coordlib.core.groups.group import GroupStep, Refused
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode


class State(StrEnum):
    """Where a group stands between two assignments."""

    EMPTY = "Empty"
    """No members, perhaps offsets.
    action: joins start the initial rebalance; commits without a member are accepted
    transition: first join -> PREPARING_REBALANCE; deletion -> DEAD
    """
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are notified to join again.
    action: joins are parked; heartbeats and syncs get REBALANCE_IN_PROGRESS; commits of the
    current generation are accepted, so that members can commit before they let go
    transition: all have joined, or the rebalance timeout -> COMPLETING_REBALANCE;
    no member is left -> EMPTY
    """
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation waits for its leader's assignment.
    action: syncs of followers are parked; heartbeats are accepted; commits are refused
    transition: the leader's sync, also with an error -> STABLE; a join, a leave, an expiry ->
    PREPARING_REBALANCE
    """
    STABLE = "Stable"
    """Every member can fetch its assignment, or the reason why there is none.
    action: syncs return the current assignment, or the leader's error; heartbeats and commits are
    accepted
    transition: a join that changes something, a leave, an expiry -> PREPARING_REBALANCE
    """
    DEAD = "Dead"
    """Deleted; no request finds it.
    action: none
    transition: none
    """


#: INV-12: the only legal changes of state. docs/explanation/classic-groups.md shows them.
VALID_PREVIOUS_STATES: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
    State.PREPARING_REBALANCE: frozenset({State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
    # Kafka's may die in any state, when a broker gives them away. Here they are deleted, no more.
    State.DEAD: frozenset({State.EMPTY}),
}

JOIN: Final = "JoinGroup"
SYNC: Final = "SyncGroup"


# Bounds of a share of the shard's blob, beside names and bytes of any length.

#: The rest of a row: its numbers, the fields of a group without members, and their names.
GROUP_BYTES: Final = 768
#: The fields of a member and their names, when it was heard, and a parked request.
MEMBER_BYTES: Final = 512
#: A member's field `host`, with its name.
HOST_BYTES: Final = 8
GUARD_BYTES: Final = 256
#: The fields of a failed assignment, and their names.
FAILURE_BYTES: Final = 32
#: An announced id: three names of any length, and a timer.
ANNOUNCED_BYTES: Final = 640
#: One offered protocol beside its name and metadata.
OFFERED_BYTES: Final = 24
#: More than any JoinGroup adds: its own bytes, the longest names, and a new group.
JOIN_BYTES_MAX: Final = limits.REQUEST_BYTES_MAX + 16 * limits.KIB


def width(*names: str | None) -> int:
    """Bytes of names in UTF-8."""
    total = 0
    for name in names:  # no generator: this runs for every change of a group
        if name:
            total += len(name) if name.isascii() else len(name.encode())
    return total


class Parked(msgspec.Struct, frozen=True):
    """A request that is answered later: exactly once, by its generation or by a refusal."""

    kind: str
    id: str
    client: str
    cause: str
    reply: int

    def envelope(self, group: str) -> dict[str, Any]:
        """The fields that its answer carries, whatever the outcome."""
        return {"id": self.id, "client": self.client, "group": group, "cause": self.cause}


class OfferedProtocol(msgspec.Struct, frozen=True):
    name: str
    metadata: bytes


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """A former owner whose partitions were taken away, and which may not have read so yet.

    Until the guard ends, no other member gets these partitions (`members.py`, rule 14).
    """

    #: Its member id: that of a replaced static member, or of one that was removed.
    member: str
    client: str
    #: Correlation id of its first JoinGroup, which may come once more, late.
    first_id: str
    session_timeout_ms: int
    #: One session after it was last heard, on the shard's clock: its own fence has stopped it.
    due_ms: int
    #: Its rebalance timeout, from when it could read that it is out: it has read it, or stopped
    #: because it cannot read (rule 9). Bounds the wait for one that heartbeats on.
    notice: Timer = msgspec.field(name="told")
    #: The static member that took its place, and waits for its assignment; None: there is none.
    successor: str | None = None
    #: Whether it was replaced by its instance id; else it was removed.
    was_replaced: bool = False

    @property
    def kept_bytes(self) -> int:
        """An upper bound of its share of the shard's blob."""
        names = 2 * width(self.member) + width(self.client, self.first_id, self.successor)
        return GUARD_BYTES + names


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """An id that was handed out with MEMBER_ID_REQUIRED, and whose member has not joined yet."""

    #: Runs for its session timeout from when it could read its id.
    timer: Timer
    client: str
    #: Correlation id of the JoinGroup that asked: the same request again gets the same id.
    first_id: str


class Failure(msgspec.Struct, frozen=True):
    """Why a generation has no assignment, in its leader's words."""

    error: str
    #: Empty: the leader gave none, or the shard had no room for them.
    message: str

    @property
    def reason(self) -> str:
        """The message for members and history."""
        return self.message or "Wait for the next rebalance: the leader could not divide."

    @property
    def kept_bytes(self) -> int:
        """An upper bound of its share of the shard's blob."""
        return FAILURE_BYTES + width(self.error, self.message)


class Member(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One member, from its first JoinGroup to its removal.

    `dict` keeps what is derived (`cached_property`): one step changes few members of many.
    """

    member: str
    client: str
    instance: str | None = None
    #: Partition of `coord.responses` that it reads, by its newest JoinGroup.
    reply: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: In order of preference; never empty.
    protocols: tuple[OfferedProtocol, ...]
    #: Empty until the leader of its first generation has synced.
    assignment: bytes = b""
    #: Log offset of the record that brought this assignment: its fencing token.
    fence: int = -1
    #: Correlation id of its first JoinGroup: (client, this) names one member, not two.
    first_id: str
    #: Correlation id of its newest JoinGroup under its own id that named no generation: when it
    #: comes once more it is late, and no consent to let go.
    rejoin_id: str = ""
    #: Log time of its first JoinGroup.
    joined_ms: int
    parked: Parked | None = None
    #: True until its first JoinGroup is answered.
    is_new: bool = True
    #: Whether it has asked for its assignment in this generation.
    has_synced: bool = False
    #: It has reported that it stopped working, without leaving (KIP-1092): a static restart.
    has_let_go: bool = False
    #: Offset whose outputs must be visible before its session (a newcomer's patience) runs;
    #: None: it runs.
    awaits_cover: int | None = None
    #: Where it runs, in its own words, by the request that made it.  # INV-83
    host: str | UnsetType = UNSET

    @property
    def is_joining(self) -> bool:
        return self.parked is not None and self.parked.kind == JOIN

    @property
    def is_syncing(self) -> bool:
        return self.parked is not None and self.parked.kind == SYNC

    def metadata_for(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol; empty when it does not offer it."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    @cached_property
    def size_bytes(self) -> int:
        """An upper bound of its share of the group's record."""
        host = None if self.host is UNSET else self.host
        names = names_bytes(
            self.member, self.client, self.instance, self.first_id, self.rejoin_id, host
        )
        return 1024 + names + offered_bytes(self.protocols) + _base64(self.assignment)

    @cached_property
    def kept_bytes(self) -> int:
        """An upper bound of its share of the shard's blob, with metadata and assignment."""
        # Its id stands as key, in the member, beside when it was heard, and beside its instance.
        names = width(self.first_id, self.rejoin_id) + 2 * width(self.client)
        names += 4 * width(self.member) + 2 * width(self.instance)
        if self.host is not UNSET:
            names += HOST_BYTES + width(self.host)
        offered = sum(OFFERED_BYTES + width(p.name) + len(p.metadata) for p in self.protocols)
        return MEMBER_BYTES + names + offered + len(self.assignment)


#: The share of a member that offers nothing and owns nothing, with the longest names.
NAMES_BYTES_MAX: Final = 1024 + 16 * (
    limits.MEMBER_ID_LENGTH_MAX
    + limits.CLIENT_LENGTH_MAX
    + 2 * limits.NAME_LENGTH_MAX
    + 2 * limits.CORRELATION_ID_LENGTH_MAX
)


#: An announced id: three names and a timer, in JSON.
ANNOUNCED_BYTES_MAX: Final = 2 * limits.KIB


def names_bytes(*names: str | None) -> int:
    """An upper bound of the encoded size of names, some of which stand several times."""
    return 16 * sum(len(name or "") for name in names)


def offered_bytes(protocols: tuple[OfferedProtocol, ...]) -> int:
    """An upper bound of the encoded size of offered protocols."""
    return sum(8 * len(p.name) + _base64(p.metadata) + 32 for p in protocols)


def _base64(value: bytes) -> int:
    return (len(value) + 2) // 3 * 4


_kept_bytes: Final = attrgetter("kept_bytes")


class Group(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="kind", tag="classic"):
    """The hard state of one classic group.

    `dict` keeps what is derived (`cached_property`): a refused request leaves the group as it is,
    and a flood of them must not count a thousand members each time.
    """

    v: int = 1
    group: str
    state: State = State.EMPTY
    #: Rises by one when a join phase completes, and never else; 1 follows int32's last.  # INV-11
    generation: int = 0
    #: None until the first member; kept when the group empties.
    protocol_type: str | None = None
    #: None when Empty.
    protocol: str | None = None
    #: One of the members, unless there are none.  # INV-13
    leader: str | None = None
    #: In the order in which they joined.
    members: dict[str, Member] = {}
    #: Ids that were handed out with MEMBER_ID_REQUIRED and have not joined (KIP-394).
    pending: dict[str, Announced] = {}
    #: By member id; while there are any, no assignment is handed on.
    guards: dict[str, Guard] = {}
    #: Log offset of the SyncGroup that brought the current assignment; rises for ever.
    fence: int = -1
    #: Log time of the newest change of state.
    state_since_ms: int = 0
    #: The same on the shard's clock: what retention counts on.
    state_since_clock_ms: int = 0
    #: Runs in PreparingRebalance only.
    join_timer: Timer | None = None
    #: The join timer has run out, and a guard still forbids to complete.
    is_overdue: bool = False
    #: Runs from the end of a join phase until everybody has synced.
    sync_timer: Timer | None = None
    #: What is left of the initial delay's budget (KIP-134); None: not the initial rebalance.
    initial_remaining_ms: int | None = None
    #: Whether a member joined since the initial delay was last set.
    has_newcomer: bool = False
    #: Why the rebalance began, and at which log time; empty and 0 before the first.
    rebalance_reason: str = ""
    rebalance_started_ms: int = 0
    #: Upper bound of the encoded size; the sum over members.
    size_bytes: int = 0
    #: Set when a step of this group broke an invariant; an operator releases it.
    is_quarantined: bool = False
    #: Set in Stable only, when the leader could not assign: then no member owns anything until the
    #: next rebalance.
    failure: Failure | None = None

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_settled(self) -> bool:
        return self.state is State.STABLE

    @property
    def tells_subscriptions(self) -> bool:
        return self.protocol_type == cp.CONSUMER

    @property
    def is_initial(self) -> bool:
        return self.initial_remaining_ms is not None

    @property
    def all_joined(self) -> bool:
        """Whether the group waits for no member, announced newcomer or former owner."""
        return (
            not self.pending
            and not self.guards
            and all(member.is_joining for member in self.members.values())
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def kept_bytes(self) -> int:
        """An upper bound of its bytes in the shard's blob, without offsets."""
        members_bytes: int = sum(map(_kept_bytes, self.members.values()))
        return self.kept_frame_bytes + members_bytes

    @property
    def kept_frame_bytes(self) -> int:
        """The same without members."""
        names = 2 * width(self.group) + width(self.protocol_type, self.protocol, self.leader)
        size = GROUP_BYTES + names + width(self.rebalance_reason)
        if self.failure is not None:
            size += self.failure.kept_bytes
        if self.pending:
            size += len(self.pending) * ANNOUNCED_BYTES
        if self.guards:
            size += sum(map(_kept_bytes, self.guards.values()))
        return size

    def announced_id(self, client: str, request_id: str) -> str | None:
        """The id that this first JoinGroup was given, when it comes once more."""
        for member_id, announced in self.pending.items():
            if (announced.client, announced.first_id) == (client, request_id):
                return member_id
        return None

    def former_owner(self, client: str, request_id: str) -> Guard | None:
        """The former owner that this first JoinGroup made: it comes once more, late (rule 12)."""
        for guard in self.guards.values():
            if (guard.client, guard.first_id) == (client, request_id):
                return guard
        return None

    def awaits_former_owner(self, member_id: str) -> bool:
        """Whether this static member must wait for the one that it replaced."""
        return any(guard.successor == member_id for guard in self.guards.values())

    def first_join(self, client: str, request_id: str) -> Member | None:
        """The live member that this first JoinGroup made, if it made one."""
        return self._by_first_join.get((client, request_id))

    @cached_property
    def _by_first_join(self) -> dict[tuple[str, str], Member]:
        return {(member.client, member.first_id): member for member in self.members.values()}

    @cached_property
    def joining(self) -> int:
        """How many members have joined the generation that is being prepared."""
        return sum(member.is_joining for member in self.members.values())

    @cached_property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; none for other kinds of groups, whose bytes are their own.

        None: it cannot be known, because a consumer's metadata cannot be read or no protocol has
        been chosen yet. Up to 4 MiB of metadata are read for it.
        """
        if self.protocol_type != cp.CONSUMER or not self.members:
            return frozenset()
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in cp.decode_topics(member.metadata_for(self.protocol))
            )
        except cp.Unreadable:
            return None

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member may want this topic; its offsets are then neither deleted nor expired.

        Unknown subscriptions count as wanting every topic, as in Kafka: an offset that is kept in
        vain costs nothing.
        """
        topics = self.subscribed_topics
        return topics is None or topic in topics

    def static_member(self, instance: str) -> Member | None:
        """The member of this instance id.  # INV-19"""
        for member in self.members.values():
            if member.instance == instance:
                return member
        return None

    def supports(self, protocol: str) -> bool:
        """Whether every member offers this protocol."""
        return self.supports_any([protocol])

    def supports_any(self, protocols: Collection[str]) -> bool:
        """Whether every member offers one and the same of these protocols."""
        offered = [{each.name for each in member.protocols} for member in self.members.values()]
        return any(all(name in some for some in offered) for name in protocols)

    def reaction_timers(self) -> Iterator[Timer]:
        if self.join_timer is not None:
            yield self.join_timer
        if self.sync_timer is not None:
            yield self.sync_timer
        for announced in self.pending.values():
            yield announced.timer
        for guard in self.guards.values():
            yield guard.notice


_NOT_ASSIGNED: Final = "Sync first, then commit what is still yours: a generation has just begun."


class Step(GroupStep[Group]):
    """One classic group during one step.

    Its state changes by `enter` only, its members by `put`, `rename` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD

    def find_member(self, member_id: str, instance: str | None) -> Member | ErrorCode:
        """The member of this id, or why the request must not be judged for it.  # INV-18"""
        if self.value is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance is not None:
            static = self.value.static_member(instance)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static.member != member_id:
                return ErrorCode.FENCED_INSTANCE_ID  # INV-19
        elif (guard := self.value.guards.get(member_id)) is not None and guard.was_replaced:
            return ErrorCode.FENCED_INSTANCE_ID
        return self.value.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def find_in_generation(
        self, member_id: str, instance: str | None, generation: int
    ) -> Member | ErrorCode:
        """As `find_member`, and the request must belong to the current generation."""
        member = self.find_member(member_id, instance)
        if isinstance(member, Member) and self.live.generation != generation:
            return ErrorCode.ILLEGAL_GENERATION
        return member

    def commit_fault(self, request: api.OffsetCommit) -> Refused:
        """A member commits in its generation, once it has its assignment."""
        member = self.find_in_generation(request.member, request.instance, request.generation)
        if isinstance(member, ErrorCode):
            return member, None
        if self.live.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS, _NOT_ASSIGNED
        return None

    def member_fault(self, member: str, instance: str | None, generation: int) -> ErrorCode:
        """In every state, as in Kafka: what was read before a rebalance is still the member's."""
        found = self.find_in_generation(member, instance, generation)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def enter(self, state: State, **fields: Any) -> None:
        """Change the state, along the table only, and other fields with it.  # INV-12"""
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        since = {"state_since_ms": at.time_ms, "state_since_clock_ms": at.clock_ms}
        self.change(state=state, **since, **fields)

    def put(self, *members: Member, **fields: Any) -> None:
        """Add members or replace them under their ids, and change other fields with them."""
        table, size_bytes = dict(self.live.members), self.live.size_bytes
        for member in members:
            before = table.get(member.member)
            size_bytes += member.size_bytes - (before.size_bytes if before is not None else 0)
            table[member.member] = member
        self.change(members=table, size_bytes=size_bytes, **fields)

    def rename(self, member: Member, successor: Member) -> None:
        """Put a successor in a member's place, also in the order of members and as leader."""
        live = self.live
        table = dict(
            (successor.member, successor) if each is member else (name, each)
            for name, each in live.members.items()
        )
        leader = successor.member if live.leader == member.member else live.leader
        size_bytes = live.size_bytes + successor.size_bytes - member.size_bytes
        self.change(members=table, size_bytes=size_bytes, leader=leader)

    def drop(self, member: Member) -> None:
        """Take a member out, with the guard of the member that it replaced."""
        table = dict(self.live.members)
        del table[member.member]
        guards = {
            name: replace(guard, successor=None) if guard.successor == member.member else guard
            for name, guard in self.live.guards.items()
        }
        size_bytes = self.live.size_bytes - member.size_bytes
        self.change(members=table, size_bytes=size_bytes, guards=guards)

    def notify_members(self, members: Iterable[Member], notification: api.Notification) -> None:
        """Write a notification once to each partition that one of these members reads."""
        for reply in sorted({member.reply for member in members}):
            self.emit(fx.Notify(reply, notification))
