"""A server-assigned group as a value: its states and its members; and one group during one step.

All of it is hard state. A member's *grants* are the partitions that it owns, its *target* those
that it is to own by the newest division. *Demands* ask for surplus partitions; missing ones are
granted when no other member has them. Source: seed 000; KIP-848 for the hand-over without a stop.

A commit of a member is checked row by row, against the grant of its partition. The group's
generation proves little here: members that a division did not concern do not know it. So three rows
are refused, and disturb no others: one of another member's partition, one of a released partition,
and a late one from before the partition came back.  # INV-18
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.engine.time import Timer
from coordlib.core.groups.assignors.registry import StrategyBook
from coordlib.core.groups.group import GroupStep, Refused, is_older
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode


def includes(partitions: Mapping[str, tuple[int, ...]], topic: str, number: int) -> bool:
    """Whether a partition is one of these, each topic's in ascending order."""
    some = partitions.get(topic, ())
    place = bisect_left(some, number)
    return place < len(some) and some[place] == number


#: Topic to partitions, in ascending order; no topic without partitions.
Partitions = dict[str, tuple[int, ...]]


class State(StrEnum):
    """The state of a group between two divisions. In brackets: the co-ordinator's in seed 000."""

    EMPTY = "Empty"
    """No members, perhaps offsets (Ready).
    action: commits without a member are accepted
    transition: first Subscribe -> STABLE; deletion -> DEAD
    """
    RECONCILING = "Reconciling"
    """A member still holds partitions that others are to have (Prepare for rebalance).
    action: all members work on their grants; heartbeats and commits as in STABLE
    transition: the last Release, or the end of its member -> STABLE; no member is left -> EMPTY
    """
    STABLE = "Stable"
    """All members own their targets of the newest division (Steady).
    action: heartbeats, commits
    transition: a division that moves partitions -> RECONCILING; no member is left -> EMPTY
    """
    DEAD = "Dead"
    """Deleted; no request finds it.
    action: none
    transition: none
    """


#: INV-12: the only legal changes of state. docs/explanation/assigned-groups.md shows them.
VALID_PREVIOUS_STATES: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.RECONCILING, State.STABLE}),
    State.RECONCILING: frozenset({State.STABLE}),
    State.STABLE: frozenset({State.EMPTY, State.RECONCILING}),
    State.DEAD: frozenset({State.EMPTY}),
}


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that one record gave to a member."""

    #: Log offset of that record: the fencing token of these partitions.
    fence: int
    #: Commits that name an older generation were made before the member had them.
    generation: int
    partitions: Partitions


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that a member must release. Never taken back: it may be letting go already."""

    #: Runs for the rebalance timeout from when it could be read; its cause names the demand.
    timer: Timer
    #: Still granted, until the Release is judged.
    partitions: Partitions


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """A member that an operator removed, and that may still be at work (rule 14)."""

    client: str
    session_timeout_ms: int
    #: One session after it was last heard, on the shard's clock: its own fence has stopped it.
    due_ms: int
    #: Its rebalance timeout, from when it could read that it is out.
    notice: Timer = msgspec.field(name="told")
    #: Its partitions; no other member gets them before the guard ends.
    partitions: Partitions


class Member(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One member, from its first Subscribe to its removal.

    `dict` keeps what is derived (`cached_property`): one step changes few members of many.
    """

    member: str
    client: str
    #: Partition of `coord.responses` that it reads, by its newest Subscribe.
    reply: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    pattern: str | None = None
    exclude: str | None = None
    capacity: int = 1
    #: In the order of their fences; disjoint, also from all other members'.  # INV-09
    grants: tuple[Grant, ...] = ()
    #: The highest fence of its grants, past ones included: never falls. -1: it had none.
    fence: int = -1
    #: In the order of their causes; disjoint parts of the grants.
    demands: tuple[Demand, ...] = ()
    #: Its share of the newest division.
    target: Partitions = {}
    #: Correlation id of its first Subscribe: (client, this) names one member, not two.
    first_id: str
    #: The group's generation after its newest Subscribe that changed something: an older one is
    #: late (rule 12).
    subscribed_generation: int
    #: Log time of its first Subscribe.
    joined_ms: int
    #: Offset whose outputs must be visible before its session runs; None: it runs.
    awaits_cover: int | None = None
    #: Where it runs, in its own words, by the request that made it.  # INV-83
    host: str | msgspec.UnsetType = msgspec.UNSET

    @cached_property
    def owned(self) -> Partitions:
        """All partitions that it may be working on, demanded ones included."""
        return union(grant.partitions for grant in self.grants)

    @cached_property
    def asked_back(self) -> Partitions:
        """All partitions that are demanded of it."""
        return union(demand.partitions for demand in self.demands)

    @cached_property
    def missing(self) -> Partitions:
        """The partitions of its target that it does not own yet."""
        return minus(self.target, self.owned)

    @cached_property
    def surplus(self) -> Partitions:
        """The partitions that it owns beyond its target, demanded or not."""
        return minus(self.owned, self.target)

    @cached_property
    def is_reconciled(self) -> bool:
        """Whether it owns its target, no more and no less."""
        return not self.demands and self.owned == self.target

    def grant_of(self, topic: str, partition: int) -> Grant | None:
        held = (each for each in self.grants if includes(each.partitions, topic, partition))
        return next(held, None)

    def demand(self, cause: int) -> Demand | None:
        return next((each for each in self.demands if each.timer.cause == cause), None)

    @cached_property
    def own_bytes(self) -> int:
        """An upper bound of its encoded size, without partitions."""
        host = (self.host,) if self.host else ()
        names = (self.member, self.member, self.client, self.first_id, *host)
        return 512 + sum(map(text_bytes, names)) + self.subscription_bytes

    @cached_property
    def subscription_bytes(self) -> int:
        """An upper bound of the encoded size of its subscription."""
        texts = (*self.topics, self.pattern or "", self.exclude or "")
        return sum(map(text_bytes, texts))

    @property
    def kept_own_bytes(self) -> int:
        """An upper bound of its share of the shard's blob, without partitions."""
        return self.own_bytes + HEARD_BYTES + text_bytes(self.member)

    @cached_property
    def held_bytes(self) -> int:
        """An upper bound of the encoded size of all its partitions."""
        parts = [self.target, *(grant.partitions for grant in self.grants)]
        parts += [demand.partitions for demand in self.demands]
        frames = GRANT_BYTES * len(self.grants) + DEMAND_BYTES * len(self.demands)
        return frames + sum(map(partitions_bytes, parts))


#: A grant, a demand and a former owner without names and partitions, encoded, at most.
GRANT_BYTES: Final = 80
DEMAND_BYTES: Final = 128
GUARD_BYTES: Final = 512
#: When a member was heard, beside its id.
HEARD_BYTES: Final = 16
#: The heads of the lists of an index.
INDEX_FRAME_BYTES: Final = 16
#: The frames of as many grants and demands as a member may have.
FRAMES_BYTES_MAX: Final = (
    limits.GRANTS_PER_MEMBER_MAX * GRANT_BYTES + limits.DEMANDS_PER_MEMBER_MAX * DEMAND_BYTES
)


def text_bytes(text: str) -> int:
    """An upper bound of its encoded size."""
    is_plain = text.isascii() and '"' not in text and "\\" not in text
    return 4 + len(text) * (1 if is_plain else 8)


def partitions_bytes(partitions: Partitions) -> int:
    """An upper bound of their encoded size."""
    return sum(text_bytes(topic) + 16 + 7 * len(some) for topic, some in partitions.items())


class Group(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="kind", tag="assigned"):
    """The hard state of one server-assigned group.

    `dict` keeps what is derived (`cached_property`): its size is asked for more than once a step.
    """

    v: int = 1
    group: str
    state: State = State.EMPTY
    #: Rises by one with every division, and only then.  # INV-11
    generation: int = 0
    protocol_type: str = cp.CONSUMER
    #: Friendly name of the strategy; None while the group has no members.
    protocol: str | None = None
    #: Always None: no member leads. Kept so that readers need not look at the kind.
    leader: str | None = None
    #: In the order in which they joined.
    members: dict[str, Member] = {}
    #: By the former member's id.
    guards: dict[str, Guard] = {}
    #: Topics that exist and that a member wants, by partition count, as of the newest division.
    topics: dict[str, int] = {}
    #: Why the chosen strategy failed in the newest division; None: it did not.
    strategy_fault: str | None = None
    #: Log time of the newest change of state, and the same on the shard's clock.
    state_since_ms: int = 0
    state_since_clock_ms: int = 0
    #: Why and when the newest division was made.
    rebalance_reason: str = ""
    rebalance_started_ms: int = 0
    #: Set when a step of this group broke an invariant; an operator releases it.
    is_quarantined: bool = False
    #: Whether the newest division left out topics for which there was no room.
    has_left_out: bool = False

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_settled(self) -> bool:
        # A member that holds a topic keeps its offsets: they may expire once no guard is left.
        return self.state is State.STABLE and not self.guards

    @property
    def tells_subscriptions(self) -> bool:
        return True

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member wants this topic, existing or not, or still holds partitions of it."""
        return topic in self._kept_topics

    @cached_property
    def _kept_topics(self) -> frozenset[str]:
        # A request may ask for ten thousand, and a thousand members may name as many.
        named = dict.fromkeys(member.topics for member in self.members.values())
        return frozenset(self.topics).union(*named, *self.held())

    def held(self) -> Iterator[Partitions]:
        """All partitions that a member has, or that a former owner may still have."""
        for member in self.members.values():
            yield from (grant.partitions for grant in member.grants)
        for guard in self.guards.values():
            yield guard.partitions

    def held_beyond_targets(self) -> Iterator[Partitions]:
        """Those of `held` that their holder must give up: another member's target may have them."""
        for member in self.members.values():
            yield member.surplus
        for guard in self.guards.values():
            yield guard.partitions

    def reaction_timers(self) -> Iterator[Timer]:
        for member in self.members.values():
            yield from (demand.timer for demand in member.demands)
        yield from (guard.notice for guard in self.guards.values())

    def first_subscribe(self, client: str, request_id: str) -> Member | None:
        """The live member that this first Subscribe made, if it made one."""
        sender, members = (client, request_id), self.members.values()
        return next((each for each in members if (each.client, each.first_id) == sender), None)

    def members_bytes(self) -> int:
        """An upper bound of the encoded size of members, their subscriptions, and former owners.

        Without partitions, and whatever grants and demands its members may get.
        """
        own = sum(member.own_bytes for member in self.members.values())
        return own + len(self.members) * FRAMES_BYTES_MAX + self._guards_bytes

    @cached_property
    def size_bytes(self) -> int:
        """An upper bound of the encoded size, for the record and for the shard's blob."""
        topics = sum(text_bytes(topic) + 16 for topic in self.topics)
        members = sum(m.own_bytes + m.held_bytes for m in self.members.values())
        guarded = sum(partitions_bytes(guard.partitions) for guard in self.guards.values())
        names = text_bytes(self.group) + text_bytes(self.protocol or "")
        reasons = text_bytes(self.rebalance_reason) + text_bytes(self.strategy_fault or "")
        return 1024 + names + reasons + topics + members + self._guards_bytes + guarded

    @property
    def index_bytes(self) -> int:
        """An upper bound of the size in the blob of the topics that it subscribes to."""
        of_all = sum(member.subscription_bytes for member in self.members.values())
        return INDEX_FRAME_BYTES + min(of_all, limits.SUBSCRIPTION_INDEX_BYTES_MAX)

    @property
    def kept_bytes(self) -> int:
        """An upper bound of its row in the shard's blob, without offsets.

        The row repeats its name and the topics, and has the times when members were heard.
        """
        heard = sum(HEARD_BYTES + text_bytes(name) for name in self.members)
        return self.size_bytes + text_bytes(self.group) + heard + self.index_bytes

    @cached_property
    def _guards_bytes(self) -> int:
        return sum(
            GUARD_BYTES + text_bytes(name) + text_bytes(guard.client)
            for name, guard in self.guards.items()
        )


# ---- partitions ---------------------------------------------------------------------------------


def union(parts: Iterable[Partitions]) -> Partitions:
    """All of them together; they are disjoint."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    found: dict[str, list[int]] = {}
    for part in parts:
        for topic, some in part.items():
            found.setdefault(topic, []).extend(some)
    return {topic: tuple(sorted(found[topic])) for topic in sorted(found)}


def minus(some: Mapping[str, tuple[int, ...]], others: Mapping[str, Collection[int]]) -> Partitions:
    """The partitions of the first that are not in the second."""
    found: Partitions = {}
    for topic, partitions in some.items():
        if partitions == others.get(topic):
            continue
        out = frozenset(others.get(topic, ()))
        rest = tuple(each for each in partitions if each not in out) if out else partitions
        if rest:
            found[topic] = rest
    return found


def count(partitions: Mapping[str, tuple[int, ...]]) -> int:
    return sum(map(len, partitions.values()))


#: Names of seed 000, which Kafka calls otherwise today.
DESIGN_ERRORS: Final[dict[ErrorCode, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "InconsistentPartitioningStrategy",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "UnknownPartitioningStrategy",
    ErrorCode.UNKNOWN_MEMBER_ID: "UnknownConsumer",
    ErrorCode.ILLEGAL_GENERATION: "IllegalGeneration",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorStartupNotComplete",
}
SESSION_TIMEOUT_TOO_HIGH: Final = "SessionTimeoutTooHigh"


class Step(GroupStep[Group]):
    """One server-assigned group during one step.

    Its state changes by `enter` only, its members by `put` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD
    DESIGN_ERRORS = DESIGN_ERRORS
    JUDGES_ROWS = True

    def commit_fault(self, request: api.OffsetCommit) -> Refused:
        code = self.member_fault(request.member, None, request.generation)
        return None if code is ErrorCode.NONE else (code, None)

    def member_fault(self, member: str, _instance: str | None, generation: int) -> ErrorCode:
        found = find_member(self, member, generation)
        if isinstance(found, ErrorCode):
            return found
        # As in Kafka: a commit that names a member must name a generation. Only requests have a
        # place among the joins, and only they may renew a session.
        return ErrorCode.ILLEGAL_GENERATION if generation < 0 else ErrorCode.NONE

    def row_fault(self, member: str, generation: int, row: api.CommittedOffset) -> ErrorCode:
        """A member commits what it was granted, under a generation since the grant."""
        owner = self.value.members.get(member) if self.value else None
        if owner is None:
            return ErrorCode.NONE
        grant, newest = owner.grant_of(row.topic, row.partition), self.live.generation
        if grant is None or is_older(generation, grant.generation) or is_older(newest, generation):
            return ErrorCode.PARTITION_NOT_OWNED
        return ErrorCode.NONE

    @property
    def strategies(self) -> StrategyBook:
        """The strategies that a group may choose."""
        return StrategyBook(self.family.strategies)

    @property
    def topics(self) -> Mapping[str, int]:
        """The cluster's topics as listed in the log, by partition count."""
        return self.family.topics

    def enter(self, state: State) -> None:
        """Change the state, along the table only; the same one is no change.  # INV-12"""
        if self.live.state is state:
            return
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        self.change(state=state, state_since_ms=at.time_ms, state_since_clock_ms=at.clock_ms)

    def put(self, *members: Member) -> None:
        """Add members or replace them under their ids."""
        self.change(members=self.live.members | {each.member: each for each in members})

    def drop(self, member: Member) -> None:
        """Take a member out."""
        name = member.member
        self.change(members={n: each for n, each in self.live.members.items() if n != name})

    def update(self, member: Member, **fields: Any) -> Member:
        """Replace fields of one member."""
        changed = replace(member, **fields)
        self.put(changed)
        return changed


def find_member(step: Step, member_id: str, generation: int) -> Member | ErrorCode:
    """The live member of this id, or why the request must not be judged for it.

    An older generation than the group's is accepted: members that a division did not concern get no
    notice of it (rule 13). A newer one than there ever was is a defect of its sender.
    """
    if step.value is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = step.value.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_newer = is_older(step.value.generation, generation)
    return ErrorCode.ILLEGAL_GENERATION if is_newer else member


def find_own(
    step: Step, request: api.Subscribe | api.Release
) -> Member | tuple[ErrorCode, str | None]:
    """The member that sent this request itself, or why it is not judged, and a sentence.

    Only the member itself can tell which topics it wants, or that it has let go. Its own requests
    are recognised by the client id, as in LeaveGroup.
    """
    member = find_member(step, request.member, request.generation)
    if isinstance(member, ErrorCode):
        return member, None
    if member.client != request.client:
        return ErrorCode.INVALID_REQUEST, "Only the member itself can say that: it is not yours."
    return member


def remove_member(step: Step, member: Member, reason: str) -> None:
    """Take a member out, and tell so. The caller decides about its partitions."""
    step.drop(member)
    step.tell_removed(member, reason)
