"""What operators ask about clusters of brokers: topics, elections, moves, and who is there.

Rows have errors of their own: a row that is refused changes nothing, the others are judged. A
refusal of the request as a whole raises GroupError.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from coordlib.client.controller.picture import ClusterMetadata, Picture
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs

CLUSTER_TIMEOUT_S: Final = 30.0


class ClusterAdmin(ABC):
    """The part of `Admin` that is about clusters; requests of at most 10,000 rows.

    All methods raise GroupError (INVALID_REQUEST: too many rows, a name twice;
    COORDINATOR_NOT_AVAILABLE: the cluster is quarantined) and CannotReach: no answer in time; the
    request may still be judged later.
    """

    @abstractmethod
    def _ask_cluster(
        self, cluster: str, kind: type[rq.Request], timeout_s: float, **fields: Any
    ) -> list[rs.Response]:
        """All parts of the answer to this request."""

    def create_topics(
        self,
        cluster: str,
        topics: Sequence[rq.NewTopic],
        timeout_s: float = CLUSTER_TIMEOUT_S,
        *,
        validate_only: bool = False,
    ) -> tuple[rs.TopicResult, ...]:
        """Make topics, each with partitions and replicas or with an assignment.

        Args:
            validate_only: judge, and make nothing.

        Returns one row for each topic, in order: NONE, TOPIC_ALREADY_EXISTS,
        INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR (fewer Active
        brokers), INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION (the cluster is full).
        """
        rows = {"topics": tuple(topics), "validate_only": validate_only}
        return self._results(cluster, rq.CreateTopics, timeout_s, **rows)

    def create_partitions(
        self,
        cluster: str,
        topic: str,
        count: int,
        timeout_s: float = CLUSTER_TIMEOUT_S,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
    ) -> rs.TopicResult:
        """Give a topic more partitions: `count` is how many it is to have.

        Args:
            assignment: replicas of the new partitions, by their numbers; None: the controller
                places them.
        """
        given = None
        if assignment is not None:
            given = {str(number): tuple(some) for number, some in assignment.items()}
        fields = {"topic": topic, "count": count, "assignment": given}
        (row,) = self._results(cluster, rq.CreatePartitions, timeout_s, **fields)
        return row  # type: ignore[no-any-return]  # one row, of one topic

    def delete_topics(
        self, cluster: str, topics: Sequence[str], timeout_s: float = CLUSTER_TIMEOUT_S
    ) -> tuple[rs.TopicResult, ...]:
        """Delete topics; of one that is being deleted, try again what failed.

        Returns one row for each, in order; NONE: its deletion has begun. It ends when all replicas
        are deleted; `describe_group` names whom it waits for.
        """
        return self._results(cluster, rq.DeleteTopics, timeout_s, topics=tuple(topics))

    def elect_leaders(
        self,
        cluster: str,
        election: Literal["preferred", "unclean"],
        partitions: Sequence[TopicPartition] | None = None,
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> tuple[rs.PartitionResult, ...]:
        """Let the preferred replicas lead, or, where nobody else can, replicas not in sync.

        An unclean election loses what the new leader does not have.

        Args:
            partitions: None: all that need it.

        Returns one row for each, in order; NONE: elected, or its leader is asked to let go.
        """
        rows = None if partitions is None else tuple(rq.PartitionName(*each) for each in partitions)
        fields = {"election": election, "partitions": rows}
        return self._results(cluster, rq.ElectLeaders, timeout_s, **fields)

    def alter_partition_reassignments(
        self,
        cluster: str,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> tuple[rs.PartitionResult, ...]:
        """Move partitions to these replicas, the preferred leader first; None: stop the move.

        Returns one row for each, in order; NONE: it has begun, or is cancelled.
        """
        rows = tuple(
            rq.Reassignment(*place, None if some is None else tuple(some))
            for place, some in replicas.items()
        )
        return self._results(cluster, rq.AlterPartitionReassignments, timeout_s, partitions=rows)

    def unregister_broker(
        self, cluster: str, broker: int, timeout_s: float = CLUSTER_TIMEOUT_S
    ) -> None:
        """Forget a broker that is gone for ever; no deletion waits for it any more.

        Raises GroupError: BROKER_ID_NOT_REGISTERED; NON_EMPTY_GROUP, while it has a session, or
        may still lead though it was removed.
        """
        self._ask_cluster(cluster, rq.UnregisterBroker, timeout_s, broker=broker)

    def metadata(
        self,
        cluster: str,
        topics: Sequence[str] | None = None,
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> ClusterMetadata:
        """Ready brokers, topics and partitions, all as of one place of the log.

        Args:
            topics: None: all. One that is not there is left out.

        Raises also: GroupError INVALID_REQUEST, when the answer has more than 16 MiB: ask for some
        topics at a time.
        """
        names = None if topics is None else tuple(topics)
        picture = Picture()
        for part in self._ask_cluster(cluster, rq.Metadata, timeout_s, topics=names):
            assert isinstance(part, rs.MetadataResponse)
            if picture.answered(part):
                picture.complete()
        shown = picture.show()
        assert shown is not None
        return shown

    def _results(
        self, cluster: str, kind: type[rq.Request], timeout_s: float, **fields: Any
    ) -> tuple[Any, ...]:
        (answer,) = self._ask_cluster(cluster, kind, timeout_s, **fields)
        rows = getattr(answer, "results", ())
        return rows if isinstance(rows, tuple) else ()
