"""Assignors as members use them, and the leader's assignment.

The group's vote chooses an assignor among those that every member offers. `metadata` is a member's
part of its JoinGroup; the leader alone runs `assign`; `on_assignment` (or `on_assignment_data`, if
the assignor has it) passes to every member's assignor the share of its member.

`partition.assignment.strategy` names assignors in order of preference. A name is one of coordlib's
own, or that of an entry point of the group `coordlib.assignors`: a callable without arguments that
returns an Assignor of this name. Objects are taken as they are.

    [project.entry-points."coordlib.assignors"]
    by-customer = "shop.assignors:ByCustomer"

The leader reads the members' metadata, runs the assignor, and checks its result. The check is
needed for safety: an assignment that gives one partition to two members, or to another member while
its owner keeps working on it, would have two owners.

Groups may share something else than partitions: a program's own tasks. A task is named as a
partition is: a pool, in the place of the topic, and a number. The group has a protocol type of its
own, so that no consumer joins it by mistake. Metadata and assignments keep the layout of consumers,
so all assignors work; the numbers of tasks come from the program and not from Kafka. Source: seed
002, "other uses of the protocol"; Kafka Connect's workers.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final, Protocol, runtime_checkable

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.kit.config import require_name
from coordlib.client.kit.events import Partitions, TopicPartition, by_topic
from coordlib.core.groups.assignors import model, ownership, range_roundrobin, sticky
from coordlib.core.groups.assignors import range_roundrobin as range_assignor
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import api, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import is_name, printable
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, NotAllowed, SetupError

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
        leader tries again after a while. A GroupError with one of ASSIGNMENT_ERRORS
        (`coordlib.core.wire.api`) names the error that they get.

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
        names_owned = self.is_sticky
        return cp.encode_subscription(
            cp.Subscription(
                topics=state.topics,
                owned=by_topic(state.owned) if names_owned else {},
                generation=state.generation if names_owned else -1,
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
            data = ownership.encode_sticky(by_topic(self._had[0]), self._had[1])
        subscription = cp.Subscription(topics=state.topics, user_data=data, rack=state.rack)
        return cp.encode_subscription(subscription)

    def on_assignment(self, given: Partitions, generation: int) -> None:
        self._had = given, generation


def _range() -> Assignor:
    return RackAwareAssignor(range_assignor.NAME, range_assignor.assign)


def _roundrobin() -> Assignor:
    return FunctionAssignor(
        range_roundrobin.ROUNDROBIN,
        lambda members, counts: range_roundrobin.assign_roundrobin(_in_terms(members), counts),
    )


def _cooperative_sticky() -> Assignor:
    return RackAwareAssignor(
        sticky.COOPERATIVE, sticky.assign_cooperative, modes=BOTH, is_sticky=True
    )


#: Coordlib's own assignors, by Kafka's names.
BUILT_IN: dict[str, Callable[[], Assignor]] = {
    range_assignor.NAME: _range,
    range_roundrobin.ROUNDROBIN: _roundrobin,
    sticky.NAME: StickyAssignor,
    sticky.COOPERATIVE: _cooperative_sticky,
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


def views(members: Iterable[api.JoinedMember]) -> dict[str, GroupMemberView]:
    """Read the members' metadata. A member with unreadable metadata gets nothing, unless the
    assignor raises for it."""
    return {member.member: _view(member) for member in members}


def _view(member: api.JoinedMember) -> GroupMemberView:
    try:
        return GroupMemberView(cp.decode_subscription(member.metadata), member.instance)
    except cp.Unreadable as problem:
        _log.warning("The metadata of %s cannot be read: %s", member.member, problem)
        nothing = cp.Subscription(topics=())
        return GroupMemberView(nothing, member.instance, unreadable=str(problem))


def rows_of(given: Mapping[str, cp.Assignment]) -> tuple[api.MemberAssignment, ...]:
    """The leader's SyncGroup rows, by member id."""
    return tuple(
        api.MemberAssignment(member=member, assignment=cp.encode_assignment(given[member]))
        for member in sorted(given)
    )


ENTRY_POINTS = "coordlib.assignors"


def find_assignors(wanted: str | Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors of a list, or of names parted by commas. Raises SetupError."""
    names = wanted.split(",") if isinstance(wanted, str) else wanted
    found = tuple(_find(each) for each in names)
    mode_of(found)
    return found


def _find(wanted: str | Assignor) -> Assignor:
    if not isinstance(wanted, str):
        return wanted
    name = wanted.strip()
    if name in BUILT_IN:
        return BUILT_IN[name]()
    registered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if name not in registered:
        known = ", ".join(sorted({*BUILT_IN, *registered}))
        raise SetupError("There is no such assignor.", repr(name), f"Choose from {known}.")
    try:
        made: Assignor = registered[name].load()()
        named = made.name
    except Exception as problem:  # whatever a user's code raises
        where = f"{name} = {registered[name].value}"
        raise SetupError(f"The assignor cannot be made: {problem!r}", where) from problem
    if named != name:
        raise SetupError("An assignor is registered under another name.", f"{name}: {named}")
    return made


#: Names in one line of the log.
_SHOWN_MAX = 20
#: Bytes of a SyncGroup for all members' shares; the rest is for its other fields.
SHARES_BYTES_MAX = limits.REQUEST_BYTES_MAX - 8 * limits.KIB
#: The message where the leader's assignor failed without one.
RAISED = ErrorCode.UNKNOWN_SERVER_ERROR


class Metadata(Protocol):
    """What a leader asks about the shared topics; a transport answers, or a program (`tasks`)."""

    def now_ms(self) -> int: ...

    def partition_counts(
        self, topics: Sequence[str] | None, own: Collection[str] | None = None
    ) -> dict[str, int]: ...

    def replica_racks(self, topics: Sequence[str], /) -> ReplicaRacks: ...


class AssignorFailed(CoordError):
    """The assignor raised, or gave an assignment that no member may act upon.

    `code` is for the other members. An assignor chooses it by raising a GroupError with one of
    ASSIGNMENT_ERRORS.
    """

    code = RAISED


def lead(
    task: sg.Divide, assignors: Mapping[str, Assignor], transport: Metadata
) -> sg.Divided | sg.NotDivided | sg.AssignorFailed:
    """The leader's work, from the topics' metadata to everybody's share. May block.

    Other members' subscriptions are its input: whatever they say, this leader stays a member.
    Raises NotAllowed alone: a topic of its own may not be seen.  # INV-110
    """
    try:
        return _assigned(task, assignors, transport)
    except CannotReach as problem:
        return sg.NotDivided(transport.now_ms(), task.generation, str(problem))
    except AssignorFailed as failed:
        _log.exception("The leader of generation %d cannot assign", task.generation)
        why = sg.WhyNot(failed.code.name, printable(f"{failed.what} ({failed.where})"))
        return sg.AssignorFailed(transport.now_ms(), task.generation, failed, why)


def _assigned(
    task: sg.Divide, assignors: Mapping[str, Assignor], transport: Metadata
) -> sg.Divided:
    """Raises CannotReach, NotAllowed, AssignorFailed."""
    seen = views(task.members)
    topics = _named(seen)
    if task.is_kept:
        counts = assigned_counts(task.members)
        return sg.Divided(transport.now_ms(), task.generation, (), topics, counts)
    own = seen[task.member].topics if task.member in seen else None
    with _metadata():
        counts = transport.partition_counts(topics, own)
    try:
        assignor = assignors[task.protocol]
    except KeyError:
        raise AssignorFailed("The leader has no such assignor.", repr(task.protocol)) from None
    if absent := [name for name in topics if name not in counts]:
        shown = ", ".join(map(ascii, absent[:_SHOWN_MAX]))  # of others: they may hold anything
        _log.warning("Subscribed topics that are not there: %s", shown)
    with _metadata():
        racks = racks_that_matter(assignor, seen, counts, transport)
    rows = divide(assignor, task.members, counts, racks)
    return sg.Divided(transport.now_ms(), task.generation, rows, topics, counts)


def _named(seen: Mapping[str, GroupMemberView]) -> tuple[str, ...]:
    """All members' topics. What can be no name is left out: no client may ask Kafka for it."""
    names = {topic for each in seen.values() for topic in each.topics}
    return tuple(sorted(name for name in names if is_name(name, limits.NAME_LENGTH_MAX)))


@contextmanager
def _metadata() -> Iterator[None]:
    """Metadata that cannot be read now, for whatever reason, are asked for again."""
    try:
        yield
    except (CannotReach, NotAllowed):
        raise
    except Exception as problem:
        _log.exception("The topics' metadata cannot be read")
        raise CannotReach(f"The topics' metadata cannot be read: {problem!r}") from problem


def assigned_counts(members: Sequence[api.JoinedMember]) -> dict[str, int]:
    """Partition counts as of the present assignment: the number of assigned ones of each topic.

    A leader that comes back compares them with the metadata, because no member watched topics while
    it was away. If the assignor leaves partitions out on purpose, each return causes a rebalance.
    """
    counts: dict[str, int] = {}
    for member in members:
        try:
            given = cp.decode_assignment(member.assignment).partitions
        except cp.Unreadable:
            continue  # the member itself treats this as no assignment
        for topic, partitions in given.items():
            counts[topic] = counts.get(topic, 0) + len(partitions)
    return counts


def racks_that_matter(
    assignor: Assignor,
    members: Mapping[str, GroupMemberView],
    counts: Mapping[str, int],
    transport: Metadata,
) -> ReplicaRacks:
    """The racks of replicas, if the assignor uses them and a member names its own rack.

    Else Kafka is not asked, so that groups without racks pay nothing. Raises CannotReach.
    """
    if isinstance(assignor, RackAware) and any(m.subscription.rack for m in members.values()):
        return transport.replica_racks(sorted(counts))
    return {}


def look_up(transport: Metadata) -> sg.TopicsSeen | sg.TopicsNotSeen:
    """Look up whether the topics changed. May block."""
    try:
        with _metadata():
            return sg.TopicsSeen(transport.now_ms(), transport.partition_counts(None))
    except CannotReach:
        return sg.TopicsNotSeen(transport.now_ms())


def divide(
    assignor: Assignor,
    members: Sequence[api.JoinedMember],
    counts: Mapping[str, int],
    racks: ReplicaRacks = MappingProxyType({}),
) -> tuple[api.MemberAssignment, ...]:
    """All members' assignments. Any failure raises AssignorFailed."""
    seen = views(members)
    try:
        if racks and isinstance(assignor, RackAware):
            given = assignor.assign_near(seen, counts, racks)
        else:
            given = assignor.assign(seen, counts)
        check(given, seen)
        if RebalanceMode.COOPERATIVE in assignor.modes:
            check_hand_overs(given, seen)
        rows = rows_of(given)
        check_size(rows)
        return rows
    except AssignorFailed as failed:
        raise AssignorFailed(failed.what, f"assignor {assignor.name}", failed.hint) from failed
    except Exception as problem:  # it may be a user's own
        raise _raised(assignor, problem) from problem


def _raised(assignor: Assignor, problem: Exception) -> AssignorFailed:
    hint = "Fix it, or name another one. The group has no assignment while its leader has none."
    failed = AssignorFailed(f"The assignor failed: {problem!r}", f"assignor {assignor.name}", hint)
    if isinstance(problem, GroupError) and problem.code in api.ASSIGNMENT_ERRORS:
        failed.code = problem.code
    return failed


def check(given: Mapping[str, cp.Assignment], members: Mapping[str, GroupMemberView]) -> None:
    """Refuse strangers, double owners, and what can be no partition.

    A consumer that got such a row would read none of its partitions: librdkafka takes all of them
    or none, and the coordinator tells no offsets to who names one.
    """
    strangers = sorted(given.keys() - members.keys())
    if strangers:
        raise AssignorFailed(f"It gave partitions to {strangers[0]}, who is no member.")
    owner: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        for each in flat(assignment.partitions):
            if each in owner:
                raise AssignorFailed(f"It gave {each} to {owner[each]} and to {member}.")
            if not is_partition(each):
                raise AssignorFailed(f"It gave {each} to {member}, which can be no partition.")
            owner[each] = member


def is_partition(place: TopicPartition) -> bool:
    """Whether a reader can be asked for this."""
    return place.partition >= 0 and is_name(place.topic, limits.NAME_LENGTH_MAX)


def check_size(rows: Sequence[api.MemberAssignment]) -> None:
    """Refuse what no SyncGroup can carry, as each leader in turn would fail for it."""
    size_bytes = len(codec.encode(rows))
    if size_bytes > SHARES_BYTES_MAX:
        raise AssignorFailed(
            f"The shares of {len(rows)} members have {size_bytes:,} bytes, and a request can have "
            f"{SHARES_BYTES_MAX:,} of them.",
            hint="Subscribe to fewer topics, or make several groups.",
        )


def check_hand_overs(
    given: Mapping[str, cp.Assignment], members: Mapping[str, GroupMemberView]
) -> None:
    """Refuse hand-overs that would not wait for the owner; eager members own nothing here."""
    owner = {each: member for member in given for each in flat(given[member].partitions)}
    for member, view in members.items():
        for each in view.owned:
            new = owner.get(each, member)
            if new != member and each not in members[new].owned:
                raise AssignorFailed(
                    f"It gave {each} to {new} while {member} owns it.",
                    hint="A cooperative assignor leaves out what its owner must revoke first.",
                )


#: Pool -> number of tasks. Asked by the leader, from any thread; may block. If it raises, the
#: leader asks again later.
Tasks = Callable[[], Mapping[str, int]]

_EAGER: Final = "Name assignors that are not cooperative, such as range, roundrobin or sticky."


class TaskCounts:
    """The metadata of a group's tasks, in the place of Kafka's topics."""

    def __init__(self, tasks: Tasks, transport: Metadata) -> None:
        self._tasks, self._transport = tasks, transport

    def now_ms(self) -> int:
        return self._transport.now_ms()

    def partition_counts(
        self,
        topics: Sequence[str] | None,
        own: Collection[str] | None = None,  # noqa: ARG002
    ) -> dict[str, int]:
        """Of the pools that exist. Raises CannotReach: the program could not say."""
        try:
            counts = dict(self._tasks())
        except Exception as problem:
            raise CannotReach(f"The tasks could not be counted: {problem!r}") from problem
        return {name: counts[name] for name in counts if topics is None or name in topics}

    def replica_racks(self, _: Sequence[str]) -> ReplicaRacks:
        """Tasks lie on no rack."""
        return {}


def check_type(protocol_type: str, tasks: Tasks | None, assignors: Sequence[Assignor]) -> None:
    """Refuse a type whose promise cannot be kept. Raises SetupError.

    What a cooperative member keeps while its JoinGroup is parked, the coordinator reads from the
    subscriptions of consumers alone (rule 14).
    """
    require_name("A protocol type", protocol_type, limits.NAME_LENGTH_MAX)
    if (protocol_type == cp.CONSUMER) != (tasks is None):
        raise SetupError(
            "A group shares partitions, or tasks under a protocol type of its own.",
            repr(protocol_type),
            "Give tasks with another protocol_type than consumer, or leave both out.",
        )
    if tasks is not None and mode_of(assignors) is RebalanceMode.COOPERATIVE:
        raise SetupError("Tasks are not shared cooperatively.", repr(protocol_type), _EAGER)
