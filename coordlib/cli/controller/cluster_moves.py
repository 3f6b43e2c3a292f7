"""`coord cluster elect|reassign`: other leaders, and other brokers, for partitions of a cluster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from cyclopts import Group, Parameter

from coordlib.cli.kit.choices import exactly_one
from coordlib.cli.kit.cluster_asking import asking, tell_results
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import ClusterName, place_named
from coordlib.cli.kit.output import counted, say, visible
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from coordlib.client.kit.signals import TopicPartition
    from coordlib.core.wire import responses as rs

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
    where.reach()
    if unclean:
        which = ", ".join(partition or ()) or "all partitions that nobody in sync can lead"
        confirm("An unclean election", f"cluster {cluster}, {which}", yes)
    election: Literal["preferred", "unclean"] = "preferred" if preferred else "unclean"
    with asking(where) as admin:
        rows = [
            row
            for some in _parts(places) or [()]
            for row in admin.elect_leaders(cluster, election, some or None)
        ]
    return _told(where, "cluster elect", cluster, rows)


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
    from coordlib.cli.controller.cluster_plan import planned

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
    return _told(where, "cluster reassign", cluster, rows)


def _told(where: Where, command: str, cluster: str, rows: "Sequence[rs.PartitionResult]") -> int:
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
    from coordlib.client.kit.signals import TopicPartition

    return list(dict.fromkeys(TopicPartition(*place_named(text)) for text in texts or ()))


def _moving(where: Where, cluster: str) -> "list[TopicPartition]":
    """The partitions that move now, as the topics have them."""
    from coordlib.cli.controller.cluster_view import read_cluster
    from coordlib.client.kit.signals import TopicPartition

    view = read_cluster(where.client(), where.reach(), where.topic_prefix(), cluster)
    rows = view.seen.partitions.items()
    return [TopicPartition(*place) for place, row in rows if row.adding or row.removing]
