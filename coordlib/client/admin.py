"""Requests of operators: one question, one answer, in the order of the group's own log.

Rows of a request about a cluster have errors of their own: a row that is refused changes nothing,
the others are judged. A refusal of the request as a whole raises GroupError.
"""

import os
import queue
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from coordlib.client.controller.metadata import ClusterMetadata, Picture
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.offsets import rows_of_partitions
from coordlib.client.kit.process import Closing
from coordlib.client.kit.requests import Identity, backoff_ms, refusal_of, throttle_ms
from coordlib.client.kit.transport import KafkaTransport, NoFence, Transport, identity_at
from coordlib.core.wire import api
from coordlib.core.wire.controller import CLUSTER
from coordlib.core.wire.stored import GROUP_SPACE
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.limits import LEAVERS_MAX

ANSWER_TIMEOUT_S: Final = 30.0
CLUSTER_TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_S: Final = 30.0
CHECK_S: Final = 0.5  # how often a failure of the transport is looked for
#: Refusals for the moment: the shard has too much to do or too many unpublished outputs.
_AGAIN = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED.name})
PARTITIONS_PER_REQUEST = 1_000  # with the longest topic names half of what a request may hold


class Admin(Closing):
    """Reads and changes groups, clusters of brokers and transactions, through the coordinator.

    Methods with a `space` can ask about what has the name in another space of names: that of
    clusters is `cluster`. A job refuses a space that it does not have (INVALID_REQUEST).

    All methods raise GroupError (COORDINATOR_NOT_AVAILABLE: the name is quarantined; of clusters
    INVALID_REQUEST: more than 10,000 rows, or a name twice; of transactions
    TRANSACTIONAL_ID_NOT_FOUND) and CannotReach: no answer in time; the request may still be judged
    later.

    Args:
        config: confluent-kafka's keys for all clients, at least `bootstrap.servers`.
        prefix: the coordinator's topic prefix.
        transport: an open one to share; this class then does not close it.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        prefix: str = "coord",
        *,
        transport: Transport | None = None,
        client: str | None = None,
    ) -> None:
        self._client = client or f"admin-{socket.gethostname()[:60]}-{os.getpid()}"
        self._owned = (
            KafkaTransport(config or {}, prefix, self._client) if transport is None else None
        )
        self._transport: Transport = transport or self._owned  # type: ignore[assignment]

    def close(self) -> None:
        """Close the transport, if it was opened here."""
        if self._owned is not None:
            self._owned.close()

    @property
    def incarnation(self) -> str:
        """Of the coordinator's topics; markers name it."""
        return self._transport.place.incarnation

    # ---- groups ----------------------------------------------------------------------------------

    def release_quarantine(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> None:
        """Let a quarantined group go on from its kept state; its timers start anew.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND; INVALID_REQUEST, when it is not quarantined or its
                state is unsound.
            CannotReach: no answer in time; the request may still be judged later.
        """
        self._ask_shared(group, space, api.ReleaseQuarantine, timeout_s)

    def describe_group(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> api.DescribeGroupResponse:
        """State, generation and members; state "Dead" when there is no such group.

        Raises:
            GroupError: COORDINATOR_NOT_AVAILABLE, when it is quarantined.
            CannotReach: no answer in time.
        """
        (answer,) = self._ask_shared(group, space, api.DescribeGroup, timeout_s)
        assert isinstance(answer, api.DescribeGroupResponse)
        return answer

    def delete_group(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
            CannotReach: no answer in time; the request may still be judged later.
        """
        self._ask_shared(group, space, api.DeleteGroup, timeout_s)

    def committed(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[api.FetchedOffset, ...]:
        """All committed offsets of a group; empty if the group does not exist.

        Raises:
            GroupError: COORDINATOR_NOT_AVAILABLE, when it is quarantined; INVALID_REQUEST, when
                the answer has more than 16 MiB.
            CannotReach: no answer in time.
        """
        answers = self._ask_in_space(group, GROUP_SPACE, api.OffsetFetch, timeout_s)
        return tuple(row for answer in answers for row in getattr(answer, "offsets", ()))

    def delete_offsets(
        self,
        group: str,
        topics: Mapping[str, Sequence[int] | None],
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> tuple[int, tuple[api.FailedPartition, ...]]:
        """Delete committed offsets of these partitions; a topic with None means all of its offsets.

        Returns the number of partitions asked for, and the refused ones: members of the group
        subscribe to their topics (GROUP_SUBSCRIBED_TO_TOPIC).

        Raises:
            GroupError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP, when members are no consumers.
            CannotReach: no answer in time; some partitions may be done, others be judged later.
        """
        named = {
            topic: partitions for topic, partitions in topics.items() if partitions is not None
        }
        rows = [TopicPartition(topic, partition) for topic in named for partition in named[topic]]
        if len(named) < len(topics):
            committed = self.committed(group, timeout_s)
            whole = topics.keys() - named.keys()
            rows += [TopicPartition(e.topic, e.partition) for e in committed if e.topic in whole]
        rows = list(dict.fromkeys(rows))
        failed: list[api.FailedPartition] = []
        # Asked once also for no partitions: the answer shows whether the group exists.
        for first in range(0, max(len(rows), 1), PARTITIONS_PER_REQUEST):
            some = rows_of_partitions(rows[first : first + PARTITIONS_PER_REQUEST])
            kind = api.OffsetDelete
            (answer,) = self._ask_in_space(group, GROUP_SPACE, kind, timeout_s, topics=some)
            failed += getattr(answer, "failed", ())
        return len(rows), tuple(failed)

    def remove_members(
        self,
        group: str,
        members: Sequence[str] = (),
        instances: Sequence[str] = (),
        reason: str | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
        *,
        space: str = GROUP_SPACE,
    ) -> tuple[api.LeftMember, ...]:
        """Remove members from a group, by member id or by static instance id.

        As Kafka's removeMembersFromConsumerGroup. A member that still runs joins again, as a new
        one. Its partitions move on when it reports that it has stopped, or must have stopped.

        Returns the outcome of each: `error` is NONE, or UNKNOWN_MEMBER_ID, also when the group does
        not exist. The reason is kept in the group's history.

        Raises:
            SetupError: no member is named.
            GroupError: COORDINATOR_NOT_AVAILABLE, when it is quarantined.
            CannotReach: no answer in time; the request may still be judged later.
        """
        leavers = [api.Leaver(member) for member in dict.fromkeys(members)]
        leavers += [api.Leaver("", instance) for instance in dict.fromkeys(instances)]
        if not leavers:
            raise SetupError(
                "No member is named.", f"{space} {group}", "Name some, or call remove_all_members."
            )
        return self._remove(space, group, leavers, reason, timeout_s)

    def remove_all_members(
        self,
        group: str,
        reason: str | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
        *,
        space: str = GROUP_SPACE,
    ) -> tuple[api.LeftMember, ...]:
        """Like `remove_members`, for all members that the group has now; static ones by instance.

        Raises also: GroupError GROUP_ID_NOT_FOUND.
        """
        described = self.describe_group(group, timeout_s, space=space)
        if described.state == "Dead":
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"{space} {group}")
        found = described.members if isinstance(described.members, tuple) else ()
        leavers = [
            api.Leaver(each.member) if each.instance is None else api.Leaver("", each.instance)
            for each in found
        ]
        return self._remove(space, group, leavers, reason, timeout_s)

    def find_coordinator(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> int:
        """The shard that coordinates a group, asked of the coordinator.

        Raises:
            CannotReach: no answer in time.
        """
        (answer,) = self._ask_shared(group, space, api.FindCoordinator, timeout_s)
        assert isinstance(answer, api.FindCoordinatorResponse)
        assert isinstance(answer.shard, int)
        return answer.shard

    # ---- clusters --------------------------------------------------------------------------------

    def create_topics(
        self,
        cluster: str,
        topics: Sequence[api.NewTopic],
        timeout_s: float = CLUSTER_TIMEOUT_S,
        *,
        validate_only: bool = False,
    ) -> tuple[api.TopicResult, ...]:
        """Make topics, each with partitions and replicas or with an assignment.

        Args:
            validate_only: judge, and make nothing.

        Returns one row for each topic, in order: NONE, TOPIC_ALREADY_EXISTS,
        INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR (fewer Active
        brokers), INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION (the cluster is full).
        """
        rows = {"topics": tuple(topics), "validate_only": validate_only}
        return self._results(cluster, api.CreateTopics, timeout_s, **rows)

    def create_partitions(
        self,
        cluster: str,
        topic: str,
        count: int,
        timeout_s: float = CLUSTER_TIMEOUT_S,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
    ) -> api.TopicResult:
        """Give a topic more partitions: `count` is how many it is to have.

        Args:
            assignment: replicas of the new partitions, by their numbers; None: the controller
                places them.
        """
        given = None
        if assignment is not None:
            given = {str(number): tuple(some) for number, some in assignment.items()}
        fields = {"topic": topic, "count": count, "assignment": given}
        (row,) = self._results(cluster, api.CreatePartitions, timeout_s, **fields)
        return row  # type: ignore[no-any-return]  # one row, of one topic

    def delete_topics(
        self, cluster: str, topics: Sequence[str], timeout_s: float = CLUSTER_TIMEOUT_S
    ) -> tuple[api.TopicResult, ...]:
        """Delete topics; of one that is being deleted, try again what failed.

        Returns one row for each, in order; NONE: its deletion has begun. It ends when all replicas
        are deleted; `describe_group` names whom it waits for.
        """
        return self._results(cluster, api.DeleteTopics, timeout_s, topics=tuple(topics))

    def elect_leaders(
        self,
        cluster: str,
        election: Literal["preferred", "unclean"],
        partitions: Sequence[TopicPartition] | None = None,
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> tuple[api.PartitionResult, ...]:
        """Let the preferred replicas lead, or, where nobody else can, replicas not in sync.

        An unclean election loses what the new leader does not have.

        Args:
            partitions: None: all that need it.

        Returns one row for each, in order; NONE: elected, or its leader is asked to let go.
        """
        rows = (
            None if partitions is None else tuple(api.PartitionName(*each) for each in partitions)
        )
        fields = {"election": election, "partitions": rows}
        return self._results(cluster, api.ElectLeaders, timeout_s, **fields)

    def alter_partition_reassignments(
        self,
        cluster: str,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> tuple[api.PartitionResult, ...]:
        """Move partitions to these replicas, the preferred leader first; None: stop the move.

        Returns one row for each, in order; NONE: it has begun, or is cancelled.
        """
        rows = tuple(
            api.Reassignment(*place, None if some is None else tuple(some))
            for place, some in replicas.items()
        )
        return self._results(cluster, api.AlterPartitionReassignments, timeout_s, partitions=rows)

    def unregister_broker(
        self, cluster: str, broker: int, timeout_s: float = CLUSTER_TIMEOUT_S
    ) -> None:
        """Forget a broker that is gone for ever; no deletion waits for it any more.

        Raises GroupError: BROKER_ID_NOT_REGISTERED; NON_EMPTY_GROUP, while it has a session, or
        may still lead though it was removed.
        """
        self._ask_in_space(cluster, CLUSTER, api.UnregisterBroker, timeout_s, broker=broker)

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
        for part in self._ask_in_space(cluster, CLUSTER, api.Metadata, timeout_s, topics=names):
            assert isinstance(part, api.MetadataResponse)
            if picture.answered(part):
                picture.complete()
        shown = picture.show()
        assert shown is not None
        return shown

    # ---- transactions ----------------------------------------------------------------------------

    def abort_transaction(
        self,
        transactional_id: str,
        reason: str | None = None,
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> str:
        """End the open transaction of an id: its producer finds that it was aborted, and goes on.

        The reason is kept in the history. Returns how the transaction ends: `abort`; or `commit`,
        if that was decided before, which nothing can change.

        Raises also: GroupError INVALID_TXN_STATE, where no transaction is open.
        """
        space, kind = api.AbortTransaction.SPACE, api.AbortTransaction
        (answer,) = self._ask_in_space(transactional_id, space, kind, timeout_s, reason=reason)
        assert isinstance(answer, api.AbortTransactionResponse)
        return str(answer.result)

    def decide_pending(
        self,
        group: str,
        key: str,
        result: Literal["commit", "abort"],
        reason: str,
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """Decide offsets of a group that wait, as an operator: the reason is kept in the history.

        The coordinator believes it, also where Kafka knows otherwise: look first.

        Raises also: GroupError INVALID_TXN_STATE, where nothing waits under this key;
        INVALID_REQUEST, where the coordinator itself decides, or no reason is given.
        """
        fields = {"pending": key, "result": result, "reason": reason}
        self._ask_in_space(group, api.DecidePending.SPACE, api.DecidePending, timeout_s, **fields)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: tuple[api.TopicsOfCluster, ...],
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """Tell that these partitions have the marker of a transaction that has ended.

        Raises also: GroupError PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING: it is another one.
        """
        space, kind = api.TxnMarkersWritten.SPACE, api.TxnMarkersWritten
        fields = {"producer_id": producer_id, "epoch": epoch, "partitions": partitions}
        self._ask_in_space(transactional_id, space, kind, timeout_s, **fields)

    # ---- small things ----------------------------------------------------------------------------

    def _remove(
        self,
        space: str,
        group: str,
        leavers: Sequence[api.Leaver],
        reason: str | None,
        timeout_s: float,
    ) -> tuple[api.LeftMember, ...]:
        rows: list[api.LeftMember] = []
        for first in range(0, len(leavers), LEAVERS_MAX):
            fields = {"members": tuple(leavers[first : first + LEAVERS_MAX]), "reason": reason}
            (answer,) = self._ask_shared(group, space, api.LeaveGroup, timeout_s, **fields)
            assert isinstance(answer, api.LeaveGroupResponse)
            rows += answer.members if isinstance(answer.members, tuple) else ()
        return tuple(rows)

    def _ask_in_space(
        self, name: str, space: str, kind: type[api.Request], timeout_s: float, /, **fields: Any
    ) -> list[api.Response]:
        question = _Question(self._identity(name), space)
        return self._ask(question, kind(**question.envelope(), **fields), timeout_s)

    def _ask_shared(
        self, name: str, space: str, kind: type[api.Request], timeout_s: float, /, **fields: Any
    ) -> list[api.Response]:
        """The same for a request that several spaces share.

        Groups are not named as the space: a job that does not know the field refuses it.
        """
        named = {} if space == GROUP_SPACE else {"space": space}
        return self._ask_in_space(name, space, kind, timeout_s, **named, **fields)

    def _results(
        self, cluster: str, kind: type[api.Request], timeout_s: float, **fields: Any
    ) -> tuple[Any, ...]:
        (answer,) = self._ask_in_space(cluster, CLUSTER, kind, timeout_s, **fields)
        rows = getattr(answer, "results", ())
        return rows if isinstance(rows, tuple) else ()

    def _identity(self, name: str) -> Identity:
        return identity_at(self._transport, name, self._client)

    def _ask(
        self, question: "_Question", request: api.Request, timeout_s: float
    ) -> list[api.Response]:
        """All parts of the answer; most answers have one. `timeout_s` is per part.

        A request that was refused for the moment is repeated: it had no effect.
        """
        until, attempt = time.monotonic() + timeout_s, 0
        try:
            self._transport.attach(question)
            while True:
                self._transport.send(question, request)
                answer = question.wait(timeout_s, self._transport.check)
                answers = [answer]
                while len(answers) < _parts(answer):
                    answers.append(question.wait(timeout_s, self._transport.check))
                attempt += 1
                pause_s = max(backoff_ms(attempt), throttle_ms(answer)) / 1000
                if answer.error not in _AGAIN or time.monotonic() + pause_s > until:
                    break
                time.sleep(pause_s)
                request = msgspec.structs.replace(request, id=question.renew())
        finally:
            self._transport.detach(question)
        if answer.error != ErrorCode.NONE.name:
            raise refusal_of(answer, question.where)
        return answers


def _parts(answer: api.Response) -> int:
    parts = getattr(answer, "parts", 1)
    return parts if isinstance(parts, int) else 1


class _Question(NoFence):
    """A transport's handler that waits for one answer."""

    def __init__(self, identity: Identity, space: str = GROUP_SPACE) -> None:
        self.identity = identity
        #: What it is about, for error messages.
        self.where = f"{space} {identity.group}"
        self._count = 0
        self.renew()
        #: Whether the coordinator has announced that it restores its state.
        self._is_loading = False
        self._heard: queue.SimpleQueue[api.Response | sg.NotWritten | Exception] = (
            queue.SimpleQueue()
        )

    def renew(self) -> str:
        """A new correlation id, to repeat the same request."""
        self._count += 1
        self._id = f"{self.identity.token}-{self._count}"
        return self._id

    def envelope(self) -> dict[str, Any]:
        return self.identity.envelope(self._id)

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.NotWritten():
                self._heard.put(event)
            case sg.Received(message=api.Response() as answer) if answer.id == self._id:
                self._heard.put(answer)
            case sg.Received(message=api.CoordinatorLoading()):
                self._is_loading = True

    def wait(self, timeout_s: float, check: Callable[[], None]) -> api.Response:
        try:
            heard = self._next(timeout_s, check)
        except queue.Empty:
            if self._is_loading:
                raise GroupError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.where) from None
            raise CannotReach(
                f"The coordinator did not answer within {timeout_s:.0f} s.",
                self.where,
                "Check whether the job runs: coord status. The request stays in the log and is "
                "processed when the job is back.",
            ) from None
        if isinstance(heard, Exception):
            raise heard
        if isinstance(heard, sg.NotWritten):
            check()
            raise CannotReach(
                f"The request could not be written: {heard.why}",
                self.where,
                "Check the broker and the permission to write the requests topic.",
            )
        return heard

    def _next(
        self, timeout_s: float, check: Callable[[], None]
    ) -> api.Response | sg.NotWritten | Exception:
        """What comes first; `check` raises when the transport has failed: then nothing comes."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                left_s = deadline - time.monotonic()
                return self._heard.get(timeout=max(0.0, min(CHECK_S, left_s)))
            except queue.Empty:
                check()
                if time.monotonic() >= deadline:
                    raise
