"""`coord cluster create-topic|create-partitions|delete-topic`: topics of a cluster of brokers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from coordlib.cli.kit.cluster_asking import asking, tell_results
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import ClusterName, ThisTopic
from coordlib.cli.kit.numbers import Partitions, Replication
from coordlib.cli.kit.output import counted, say
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from coordlib.core.wire import responses as rs

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
    from coordlib.core.wire import requests as rq

    fields = replicas.fields()
    _require_acknowledgeable(min_isr, fields)
    row = rq.NewTopic(topic=topic, min_isr=min_isr, unclean=unclean, **fields)
    with asking(where) as admin:
        rows = admin.create_topics(cluster, [row], validate_only=validate_only)
    done = f"{topic} may be created" if validate_only else f"{topic} is created"
    return _told(where, "cluster create-topic", cluster, rows, done)


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
    return _told(where, "cluster create-partitions", cluster, [row], done)


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
    where.reach()
    confirm(f"Deleting topic {topic}", f"cluster {cluster}", yes)
    with asking(where) as admin:
        rows = admin.delete_topics(cluster, [topic])
    return _told(where, "cluster delete-topic", cluster, rows, f"Deletion of {topic} has begun")


def _told(
    where: Where, command: str, cluster: str, rows: "Sequence[rs.TopicResult]", done: str
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
