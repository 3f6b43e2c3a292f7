"""The leader's work: read the members' metadata, run the assignor, and check its result.

The check is needed for safety: an assignment that gives one partition to two members, or to
another member while its owner keeps working on it, would have two owners.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Protocol

from coordlib import limits
from coordlib.client.groups.assignor import (
    Assignor,
    GroupMemberView,
    RackAware,
    RebalanceMode,
    flat,
    rows_of,
    views,
)
from coordlib.client.kit import signals as sg
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire.checks import is_name
from coordlib.core.wire.codec import printable
from coordlib.core.wire.stored import ASSIGNMENT_ERRORS
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, NotAllowed

_log = logging.getLogger("coordlib.client")


#: Names in one line of the log.
_SHOWN_MAX = 20
#: Bytes of a SyncGroup for all members' shares; the rest is for its other fields.
SHARES_BYTES_MAX = limits.REQUEST_BYTES_MAX - 8 * limits.KIB
#: The message where the leader's assignor failed without one.
RAISED = ErrorCode.UNKNOWN_SERVER_ERROR


class Metadata(Protocol):
    """What a leader asks about the shared topics; a transport answers, or a program (`tasks`)."""

    def now_ms(self) -> int: ...

    def features(self) -> frozenset[str]: ...

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
        return _not_divided(task, failed, transport)


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


def _not_divided(
    task: sg.Divide, failed: AssignorFailed, transport: Metadata
) -> sg.NotDivided | sg.AssignorFailed:
    """The error that the leader sends in place of an assignment, if the job supports that."""
    why = None
    try:
        with _metadata():
            features = transport.features()
        if ASSIGNMENT_ERRORS in features:
            why = sg.WhyNot(failed.code.name, printable(f"{failed.what} ({failed.where})"))
    except CannotReach as problem:
        return sg.NotDivided(transport.now_ms(), task.generation, str(problem))
    return sg.AssignorFailed(transport.now_ms(), task.generation, failed, why)


def assigned_counts(members: Sequence[rs.JoinedMember]) -> dict[str, int]:
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
    members: Sequence[rs.JoinedMember],
    counts: Mapping[str, int],
    racks: ReplicaRacks = MappingProxyType({}),
) -> tuple[rq.MemberAssignment, ...]:
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
        raise AssignorFailed(failed.what, f"assignor {assignor.name}", failed.mend) from failed
    except Exception as problem:  # it may be a user's own
        raise _raised(assignor, problem) from problem


def _raised(assignor: Assignor, problem: Exception) -> AssignorFailed:
    mend = "Mend it, or name another one. The group has no assignment while its leader has none."
    failed = AssignorFailed(f"The assignor failed: {problem!r}", f"assignor {assignor.name}", mend)
    if isinstance(problem, GroupError) and problem.code in rq.ASSIGNMENT_ERRORS:
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


def check_size(rows: Sequence[rq.MemberAssignment]) -> None:
    """Refuse what no SyncGroup can carry, as each leader in turn would fail for it."""
    size_bytes = len(codec.encode(rows))
    if size_bytes > SHARES_BYTES_MAX:
        raise AssignorFailed(
            f"The shares of {len(rows)} members have {size_bytes:,} bytes, and a request can have "
            f"{SHARES_BYTES_MAX:,} of them.",
            mend="Subscribe to fewer topics, or make several groups.",
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
                    mend="A cooperative assignor leaves out what its owner must revoke first.",
                )
