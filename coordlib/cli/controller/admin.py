"""`coord cluster`: what operators do to brokers, topics and partitions of a cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from cyclopts import Group, Parameter

from coordlib.cli.kit.options import (
    BrokerId,
    ClusterName,
    Partitions,
    Replication,
    ThisTopic,
    exactly_one,
    place_named,
)
from coordlib.cli.kit.output import counted, now, print_json, say, visible
from coordlib.cli.kit.where import HERE, Where, agreed, asking, tell_results
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.client.kit.events import TopicPartition
    from coordlib.core.controller.states import Broker
    from coordlib.core.wire import api


def remove_broker(
    cluster: ClusterName,
    broker: BrokerId,
    /,
    *,
    reason: str | None = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Mark a hung broker Inactive.

    Stop its process first: one that still runs comes back. What it led is led by others when it
    reports that it has stopped, or must have stopped. It stays registered: see unregister.

    Parameters
    ----------
    cluster
        The cluster's name.
    broker
        The broker's id.
    reason
        The reason, for the cluster's history.
    yes
        Remove without asking.
    """
    from coordlib.core.wire.controller import CLUSTER

    known = _registered(where, cluster, broker)
    with agreed(where, f"Removing broker {broker}", f"cluster {cluster}", yes) as admin:
        (row,) = admin.remove_members(cluster, [known.member], reason=reason, space=CLUSTER)
    if row.error != ErrorCode.NONE.name:
        raise GroupError(
            ErrorCode[row.error],
            f"cluster {cluster}, broker {broker}, incarnation {known.incarnation}",
            "It was registered anew meanwhile: try again.",
        )
    done = (
        f"Broker {broker} of {visible(cluster)} is removed; see: coord cluster describe {cluster}"
    )
    return _report(where, "remove-broker", cluster, done, broker=broker)


def unregister(
    cluster: ClusterName, broker: BrokerId, /, *, yes: bool = False, where: Where = HERE
) -> int:
    """Forget an Inactive broker that is gone for ever, with all that its replicas had.

    No deletion waits for it any more. Partitions of which it was the last replica in sync need an
    unclean election.

    Parameters
    ----------
    cluster
        The cluster's name.
    broker
        The broker's id.
    yes
        Unregister without asking.
    """
    with agreed(where, f"Unregistering broker {broker}", f"cluster {cluster}", yes) as admin:
        admin.unregister_broker(cluster, broker)
    done = f"Broker {broker} of {visible(cluster)} is unregistered"
    return _report(where, "unregister", cluster, done, broker=broker)


def release(cluster: ClusterName, /, *, where: Where = HERE) -> int:
    """Let a quarantined cluster go on, from its state before the request that failed.

    Its event GroupQuarantined has the exception. Its brokers get their full timeouts again.

    Parameters
    ----------
    cluster
        The cluster's name.
    """
    from coordlib.core.wire.controller import CLUSTER

    with asking(where) as admin:
        admin.release_quarantine(cluster, space=CLUSTER)
    return _report(where, "release", cluster, f"{visible(cluster)} is released")


def delete(cluster: ClusterName, /, *, yes: bool = False, where: Where = HERE) -> int:
    """Delete a cluster that has no brokers and no topics.

    Parameters
    ----------
    cluster
        The cluster's name.
    yes
        Delete without asking.
    """
    from coordlib.core.wire.controller import CLUSTER

    with agreed(where, "Deleting a cluster", f"cluster {cluster}", yes) as admin:
        admin.delete_group(cluster, space=CLUSTER)
    return _report(where, "delete", cluster, f"{visible(cluster)} is deleted")


def _registered(where: Where, cluster: str, number: int) -> "Broker":
    """A broker as the topics have it; the coordinator knows members by their ids.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, BROKER_ID_NOT_REGISTERED.
    """
    from coordlib.cli.controller.view import read_cluster

    view, _ = where.read(read_cluster, cluster)
    broker = view.seen.brokers.get(number)
    if broker is None:
        raise GroupError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"cluster {cluster}, broker {number}",
            f"Check its id: coord cluster brokers {cluster}",
        )
    return broker


def _report(where: Where, command: str, cluster: str, done: str, **fields: object) -> int:
    if where.format == "json":
        print_json(f"cluster {command}", now(), cluster=cluster, **fields)
    else:
        say(done)
    return 0


ROWS_PER_REQUEST: Final = 1_000  # with the longest topic names half of what a request may hold
T = TypeVar("T")


ELECTION: Final = Group("Election", validator=exactly_one("--preferred", "--unclean"))
MOVE: Final = Group("Move", validator=exactly_one("--plan FILE", "--cancel"))


def elect(
    cluster: ClusterName,
    /,
    *,
    preferred: Annotated[bool, Parameter(group=ELECTION, negative="")] = False,
    unclean: Annotated[bool, Parameter(group=ELECTION, negative="")] = False,
    partition: Annotated[list[str] | None, Parameter(negative="")] = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Elect other leaders: the preferred ones, or replicas that are not in sync.

    A live leader is asked to let go first, so a preferred election may end after the command.
    An unclean election loses what was committed and is not on the new leader. Exit code 1: of some
    partitions the election was refused.

    Parameters
    ----------
    cluster
        The cluster's name.
    preferred
        The first of the replicas is to lead again, where it is in sync.
    unclean
        A replica that is not in sync may lead where nobody else can.
    partition
        TOPIC:PARTITION, may be repeated; by default all that need it.
    yes
        Elect uncleanly without asking.
    """

    places = _places(partition)
    which = ", ".join(partition or ()) or "all partitions that nobody in sync can lead"
    place, is_agreed = f"cluster {cluster}, {which}", yes or not unclean
    election: Literal["preferred", "unclean"] = "preferred" if preferred else "unclean"
    with agreed(where, "An unclean election", place, is_agreed) as admin:
        rows = [
            row
            for some in _parts(places) or [()]
            for row in admin.elect_leaders(cluster, election, some or None)
        ]
    return _report_partitions(where, "cluster elect", cluster, rows)


def reassign(
    cluster: ClusterName,
    /,
    *,
    plan: Annotated[str | None, Parameter(group=MOVE)] = None,
    cancel: Annotated[bool, Parameter(group=MOVE, negative="")] = False,
    partition: Annotated[list[str] | None, Parameter(negative="")] = None,
    where: Where = HERE,
) -> int:
    """Move partitions to other brokers, or stop that.

    The plan is that of Kafka's own tool:
    {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}.
    `coord cluster describe` names the brokers that have to catch up. Exit code 1: some moves were
    refused.

    Parameters
    ----------
    cluster
        The cluster's name.
    plan
        A file with the replicas that each partition is to have.
    cancel
        Partitions keep the replicas that they had.
    partition
        TOPIC:PARTITION, may be repeated; with --cancel: by default all that move.
    """
    from coordlib.cli.controller.view import planned

    places = _places(partition)
    if plan is not None and places:
        raise SetupError(
            "The plan names the partitions.", "--plan --partition", "Leave --partition out."
        )
    moves: dict[TopicPartition, tuple[int, ...] | None] = {}
    if plan is not None:
        moves |= planned(plan)
    with asking(where) as admin:
        if cancel:
            moves = dict.fromkeys(places or _moving(where, cluster))
        rows = [
            row
            for some in _parts(list(moves.items()))
            for row in admin.alter_partition_reassignments(cluster, dict(some))
        ]
    return _report_partitions(where, "cluster reassign", cluster, rows)


def _report_partitions(
    where: Where, command: str, cluster: str, rows: "Sequence[api.PartitionResult]"
) -> int:
    """Print the rows of the answers; the exit code."""
    accepted = tell_results(where, command, cluster, rows)
    say(f"{counted(accepted, 'partition')} of {visible(cluster)} accepted")
    return 0 if accepted == len(rows) else 1


def _parts(rows: Sequence[T]) -> list[tuple[T, ...]]:
    """Rows as several requests have them."""
    starts = range(0, len(rows), ROWS_PER_REQUEST)
    return [tuple(rows[start : start + ROWS_PER_REQUEST]) for start in starts]


def _places(texts: list[str] | None) -> "list[TopicPartition]":
    """Each partition that is named, once. Raises SetupError."""
    from coordlib.client.kit.events import TopicPartition

    return list(dict.fromkeys(TopicPartition(*place_named(text)) for text in texts or ()))


def _moving(where: Where, cluster: str) -> "list[TopicPartition]":
    """The partitions that move now, as the topics have them."""
    from coordlib.cli.controller.view import read_cluster
    from coordlib.client.kit.events import TopicPartition

    view, _ = where.read(read_cluster, cluster)
    rows = view.seen.partitions.items()
    return [TopicPartition(*place) for place, row in rows if row.adding or row.removing]


_ASSIGNMENT: Final = re.compile(r"[0-9]{1,10}(:[0-9]{1,10})*(,[0-9]{1,10}(:[0-9]{1,10})*)*")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Replicas:
    """Where the replicas of a new topic are to lie."""

    partitions: Partitions | None = None
    """The number of partitions, laid over the active brokers, by racks."""
    replication_factor: Replication | None = None
    """The number of replicas of each."""
    replica_assignment: str | None = None
    """The brokers of each partition, the preferred leader first: 1:2:3,2:3:1."""

    def fields(self) -> dict[str, Any]:
        """As a request has them. Raises SetupError: neither or both ways are given."""
        counts = {"partitions": self.partitions, "replication_factor": self.replication_factor}
        given = {name: value for name, value in counts.items() if value is not None}
        if self.replica_assignment is not None and not given:
            rows = enumerate(_assignment(self.replica_assignment))
            return {"assignment": {str(number): brokers for number, brokers in rows}}
        if self.replica_assignment is not None or len(given) < len(counts):
            raise SetupError(
                "It is not clear where the replicas are to lie.",
                "--partitions --replication-factor --replica-assignment",
                "Give the first two, or the last one.",
            )
        return given


NO_REPLICAS: Final = Replicas()


def create_topic(
    cluster: ClusterName,
    topic: ThisTopic,
    /,
    *,
    replicas: Replicas = NO_REPLICAS,
    min_isr: Replication = 1,
    unclean: Annotated[bool, Parameter(negative="")] = False,
    validate_only: Annotated[bool, Parameter(negative="")] = False,
    where: Where = HERE,
) -> int:
    """Create a topic in a cluster of brokers: its partitions and where their replicas lie.

    Give --partitions and --replication-factor, or --replica-assignment.

    Parameters
    ----------
    cluster
        The cluster's name.
    topic
        The topic's name.
    min_isr
        So many replicas in sync a leader should have to acknowledge a write; no more than it has.
    unclean
        Let a replica that is not in sync lead when no other can.
    validate_only
        Have it judged, and create nothing.
    """
    from coordlib.core.wire import api

    fields = replicas.fields()
    _require_acknowledgeable(min_isr, fields)
    row = api.NewTopic(topic=topic, min_isr=min_isr, unclean=unclean, **fields)
    with asking(where) as admin:
        rows = admin.create_topics(cluster, [row], validate_only=validate_only)
    done = f"{topic} may be created" if validate_only else f"{topic} is created"
    return _report_rows(where, "cluster create-topic", cluster, rows, done)


def _require_acknowledgeable(min_isr: int, fields: Mapping[str, Any]) -> None:
    rows = fields.get("assignment", {}).values()
    least = fields.get("replication_factor") or min(map(len, rows))
    if min_isr > least:
        raise SetupError(
            "No write could ever be acknowledged.",
            f"--min-isr {min_isr}, of {counted(least, 'replica')}",
            "Give each partition as many replicas, or a smaller --min-isr.",
        )


def create_partitions(
    cluster: ClusterName,
    topic: ThisTopic,
    /,
    *,
    count: Partitions,
    replica_assignment: str | None = None,
    where: Where = HERE,
) -> int:
    """Give a topic of a cluster more partitions.

    Parameters
    ----------
    cluster
        The cluster's name.
    topic
        The topic's name.
    count
        The number of partitions that the topic is to have.
    replica_assignment
        The brokers of each new partition: 1:2:3,2:3:1; by default as for new topics.
    """
    assignment = None
    if replica_assignment is not None:
        given = _assignment(replica_assignment)
        if len(given) >= count:
            raise SetupError(
                "More partitions are placed than the topic can get.",
                f"--replica-assignment of {counted(len(given), 'partition')}, --count {count}",
                "Place the new partitions alone; --count is the number with those that are there.",
            )
        assignment = dict(enumerate(given, count - len(given)))
    with asking(where) as admin:
        row = admin.create_partitions(cluster, topic, count, assignment=assignment)
    done = f"{topic} has {counted(count, 'partition')} now"
    return _report_rows(where, "cluster create-partitions", cluster, [row], done)


def delete_topic(
    cluster: ClusterName,
    topic: ThisTopic,
    /,
    *,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Delete a topic of a cluster, with what its replicas have.

    Brokers are told to delete their replicas; those that are away do so when they come back, and
    `coord cluster describe` names them. A deletion that failed is tried again.

    Parameters
    ----------
    cluster
        The cluster's name.
    topic
        The topic's name.
    yes
        Delete without asking.
    """
    with agreed(where, f"Deleting topic {topic}", f"cluster {cluster}", yes) as admin:
        rows = admin.delete_topics(cluster, [topic])
    return _report_rows(
        where, "cluster delete-topic", cluster, rows, f"Deletion of {topic} has begun"
    )


def _report_rows(
    where: Where, command: str, cluster: str, rows: "Sequence[api.TopicResult]", done: str
) -> int:
    """Print the row of the answer; the exit code."""
    if tell_results(where, command, cluster, rows) < len(rows):
        return 1
    say(done)
    return 0


def _assignment(text: str) -> list[tuple[int, ...]]:
    """`1:2,2:3` as the brokers of each partition. Raises SetupError."""
    from coordlib.limits import INT32_MAX

    parts = text.split(",") if _ASSIGNMENT.fullmatch(text) else []
    found = [tuple(map(int, part.split(":"))) for part in parts]
    if not found or max(map(max, found)) > INT32_MAX:
        raise SetupError(
            "This is no assignment of replicas.",
            f"--replica-assignment {text[:200]!r}",
            "Brokers of each partition, for example 1:2:3,2:3:1",
        )
    return found
