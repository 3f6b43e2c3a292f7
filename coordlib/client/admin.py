"""Requests of operators: one question, one answer, in the order of the group's own log."""

import os
import queue
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from coordlib.client.controller.cluster_admin import ClusterAdmin
from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import backoff_ms, throttle_ms
from coordlib.client.kit.closing import Closing
from coordlib.client.kit.transport import KafkaTransport, Transport
from coordlib.client.kit.unfenced import Unfenced
from coordlib.client.kit.wording import WIRE_VERSION, Identity
from coordlib.client.transactions.transaction_admin import TransactionAdmin
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire.brokers import CLUSTER
from coordlib.core.wire.partitioner import shard_of
from coordlib.core.wire.stored import GROUP_SPACE
from coordlib.errors import CannotReach, ErrorCode, GroupError, SetupError
from coordlib.limits import LEAVERS_MAX

ANSWER_TIMEOUT_S = 30.0
CHECK_S = 0.5  # how often a failure of the transport is looked for
#: Refusals for the moment: the shard has too much to do or too many unpublished outputs.
_AGAIN = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED.name})
PARTITIONS_PER_REQUEST = 1_000  # with the longest topic names half of what a request may hold


class Admin(ClusterAdmin, TransactionAdmin, Closing):
    """Reads and changes groups, clusters of brokers and transactions, through the coordinator.

    Methods with a `space` can ask about what has the name in another space of names: that of
    clusters is `cluster`. A job refuses a space that it does not have (INVALID_REQUEST).

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
        return self._transport.place.incarnation

    def release_quarantine(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> None:
        """Let a quarantined group go on from its kept state; its timers start anew.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND; INVALID_REQUEST, when it is not quarantined or its
                state is unsound.
            CannotReach: no answer in time; the request may still be judged later.
        """
        question = _Question(self._identity(group), space)
        self._ask(question, rq.ReleaseQuarantine(**question.in_space()), timeout_s)

    def describe_group(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> rs.DescribeGroupResponse:
        """State, generation and members; state "Dead" when there is no such group.

        Raises:
            GroupError: COORDINATOR_NOT_AVAILABLE, when it is quarantined.
            CannotReach: no answer in time.
        """
        question = _Question(self._identity(group), space)
        (answer,) = self._ask(question, rq.DescribeGroup(**question.in_space()), timeout_s)
        assert isinstance(answer, rs.DescribeGroupResponse)
        return answer

    def delete_group(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S, *, space: str = GROUP_SPACE
    ) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
            CannotReach: no answer in time; the request may still be judged later.
        """
        question = _Question(self._identity(group), space)
        self._ask(question, rq.DeleteGroup(**question.in_space()), timeout_s)

    def committed(
        self, group: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[rs.FetchedOffset, ...]:
        """All committed offsets of a group; empty if the group does not exist.

        Raises:
            GroupError: COORDINATOR_NOT_AVAILABLE, when it is quarantined; INVALID_REQUEST, when
                the answer has more than 16 MiB.
            CannotReach: no answer in time.
        """
        question = _Question(self._identity(group))
        answers = self._ask(question, rq.OffsetFetch(**question.envelope()), timeout_s)
        return tuple(row for answer in answers for row in getattr(answer, "offsets", ()))

    def delete_offsets(
        self,
        group: str,
        topics: Mapping[str, Sequence[int] | None],
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> tuple[int, tuple[rs.FailedPartition, ...]]:
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
        rows = [(topic, partition) for topic in named for partition in named[topic]]
        if len(named) < len(topics):
            committed = self.committed(group, timeout_s)
            whole = topics.keys() - named.keys()
            rows += [(row.topic, row.partition) for row in committed if row.topic in whole]
        rows = list(dict.fromkeys(rows))
        failed: list[rs.FailedPartition] = []
        # Asked once also for no partitions: the answer shows whether the group exists.
        for first in range(0, max(len(rows), 1), PARTITIONS_PER_REQUEST):
            question = _Question(self._identity(group))
            named_now = _by_topic(rows[first : first + PARTITIONS_PER_REQUEST])
            request = rq.OffsetDelete(**question.envelope(), topics=named_now)
            (answer,) = self._ask(question, request, timeout_s)
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
    ) -> tuple[rs.LeftMember, ...]:
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
        leavers = [rq.Leaver(member) for member in dict.fromkeys(members)]
        leavers += [rq.Leaver("", instance) for instance in dict.fromkeys(instances)]
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
    ) -> tuple[rs.LeftMember, ...]:
        """Like `remove_members`, for all members that the group has now; static ones by instance.

        Raises also: GroupError GROUP_ID_NOT_FOUND.
        """
        described = self.describe_group(group, timeout_s, space=space)
        if described.state == "Dead":
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"{space} {group}")
        found = described.members if isinstance(described.members, tuple) else ()
        leavers = [
            rq.Leaver(each.member) if each.instance is None else rq.Leaver("", each.instance)
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
        question = _Question(self._identity(group), space)
        (answer,) = self._ask(question, rq.FindCoordinator(**question.in_space()), timeout_s)
        assert isinstance(answer, rs.FindCoordinatorResponse)
        assert isinstance(answer.shard, int)
        return answer.shard

    def _remove(
        self,
        space: str,
        group: str,
        leavers: Sequence[rq.Leaver],
        reason: str | None,
        timeout_s: float,
    ) -> tuple[rs.LeftMember, ...]:
        rows: list[rs.LeftMember] = []
        for first in range(0, len(leavers), LEAVERS_MAX):
            question = _Question(self._identity(group), space)
            some = tuple(leavers[first : first + LEAVERS_MAX])
            request = rq.LeaveGroup(**question.in_space(), members=some, reason=reason)
            (answer,) = self._ask(question, request, timeout_s)
            assert isinstance(answer, rs.LeaveGroupResponse)
            rows += answer.members if isinstance(answer.members, tuple) else ()
        return tuple(rows)

    def _ask_cluster(
        self, cluster: str, kind: type[rq.Request], timeout_s: float, **fields: Any
    ) -> list[rs.Response]:
        return self._ask_in_space(cluster, CLUSTER, kind, timeout_s, **fields)

    def _ask_in_space(
        self, name: str, space: str, kind: type[rq.Request], timeout_s: float, /, **fields: Any
    ) -> list[rs.Response]:
        question = _Question(self._identity(name), space)
        return self._ask(question, kind(**question.envelope(), **fields), timeout_s)

    def _identity(self, group: str) -> Identity:
        place = self._transport.place
        return Identity(
            group=group,
            client=self._client,
            token=secrets.token_hex(8),
            shard=shard_of(group, place.shards),
            reply=self._transport.reply,
            incarnation=place.incarnation,
        )

    def _ask(
        self, question: "_Question", request: rq.Request, timeout_s: float
    ) -> list[rs.Response]:
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
            message = answer.message if isinstance(answer.message, str) else ""
            raise GroupError(ErrorCode[answer.error], question.where, message)
        return answers


def _parts(answer: rs.Response) -> int:
    parts = getattr(answer, "parts", 1)
    return parts if isinstance(parts, int) else 1


def _by_topic(rows: Sequence[tuple[str, int]]) -> tuple[rq.TopicPartitions, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in rows:
        topics.setdefault(topic, []).append(partition)
    return tuple(rq.TopicPartitions(topic, tuple(found)) for topic, found in topics.items())


class _Question(Unfenced):
    """A transport's handler that waits for one answer."""

    def __init__(self, identity: Identity, space: str = GROUP_SPACE) -> None:
        self.identity, self._space = identity, space
        #: What it is about, for error messages.
        self.where = f"{space} {identity.group}"
        self._count = 0
        self.renew()
        #: Whether the coordinator has announced that it restores its state.
        self._is_loading = False
        self._heard: queue.SimpleQueue[rs.Response | sg.NotWritten | Exception] = (
            queue.SimpleQueue()
        )

    def renew(self) -> str:
        """A new correlation id, to repeat the same request."""
        self._count += 1
        self._id = f"{self.identity.token}-{self._count}"
        return self._id

    def envelope(self) -> dict[str, Any]:
        identity = self.identity
        return {
            "v": WIRE_VERSION,
            "id": self._id,
            "client": identity.client,
            "group": identity.group,
            "reply": identity.reply,
        }

    def in_space(self) -> dict[str, Any]:
        """The envelope of a request that several spaces share.

        Groups are not named as the space: a job that does not know the field refuses it.
        """
        named = {} if self._space == GROUP_SPACE else {"space": self._space}
        return self.envelope() | named

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.NotWritten():
                self._heard.put(event)
            case sg.Received(message=rs.Response() as answer) if answer.id == self._id:
                self._heard.put(answer)
            case sg.Received(message=rs.CoordinatorLoading()):
                self._is_loading = True

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        self._heard.put(problem)

    def wait(self, timeout_s: float, check: Callable[[], None]) -> rs.Response:
        try:
            heard = self._next(timeout_s, check)
        except queue.Empty:
            if self._is_loading:
                raise GroupError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.where) from None
            raise CannotReach(
                f"The coordinator did not answer within {timeout_s:.0f} s.",
                self.where,
                "Look whether the job runs: coord status. The request stays in the log and is "
                "judged when the job is back.",
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
    ) -> rs.Response | sg.NotWritten | Exception:
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
