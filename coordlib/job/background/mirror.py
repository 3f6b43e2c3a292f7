"""Committed offsets copied to Kafka's own groups of the same names, for tools that read only those.

Never ahead: only what readers of `coord.committed` can see is copied, and not before the topic was
read to its end once, so that after a restart no older offset is written over a newer one. Every few
minutes all is written again. That corrects offsets that others wrote there, or a suspended driver
of ours, and restores those that Kafka let expire.

The offsets of Kafka's group are never read: librdkafka (its issue 5040) crashes the process when
the answer to ListConsumerGroupOffsets is NOT_COORDINATOR, as while a broker restarts. And its
client deletes no single offsets. So an offset that is deleted here is only not renewed any more,
and Kafka forgets it after `offsets.retention.minutes`; a group without any offset left is deleted
there too, if this run has written to it.

Of a deleted group that an earlier run has written, our topic has only tombstones. They do not tell
whether that run has deleted Kafka's group as well. A group of that name may belong to others now,
so it is left alone. To find out, each offset would need a mark of ours, and every group that was
ever deleted would have to be looked up at each start.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from coordlib.core.wire.patterns import BadPattern, Pattern, compile_pattern
from coordlib.errors import NotAllowed, SetupError
from coordlib.job.background.committed_log import CommittedOffsets
from coordlib.job.background.troubles import Trouble, Troubles
from coordlib.kafka.clients import open_admin
from coordlib.kafka.denied import denial, reading
from coordlib.kafka.places import Place
from coordlib.kafka.roles import Kind, Operation, Right

WRITTEN_AT_ONCE_MAX: Final = 1_000
CHECK_EVERY_S: Final = 300.0
RETRY_FIRST_S: Final = 0.5
RETRY_MAX_S: Final = 60.0
_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger()

Offsets = dict[Place, int]


class KafkaGroups(Protocol):
    """The calls to Kafka that the mirror needs.

    All raise KafkaException, TimeoutError and NotAllowed.
    """

    def write(self, group: str, offsets: Mapping[Place, int]) -> dict[Place, KafkaError]:
        """Write offsets; returns the refused ones."""

    def delete(self, group: str) -> None:
        """Delete the group with all its offsets, if there is one."""


@dataclass(slots=True)
class _Copy:
    """One group's copy."""

    #: Offsets written since the newest check, or refused for good: say, because the topic is gone.
    settled: Offsets = field(default_factory=dict)
    #: Whether this run has written to Kafka's group: only then may it be deleted.
    is_ours: bool = False
    is_changed: bool = True
    check_at_s: float = 0.0
    retry_at_s: float = 0.0
    retry_after_s: float = RETRY_FIRST_S
    #: Why it could not be written the last time; empty: it could.
    failure: str = ""


class Mirror:
    """Keeps Kafka's groups like ours, one turn after the other."""

    def __init__(
        self,
        kafka: KafkaGroups,
        is_mirrored: Callable[[str], bool],
        now_s: Callable[[], float] = time.monotonic,
        troubles: Troubles | None = None,
    ) -> None:
        self._kafka, self._is_mirrored, self._now_s = kafka, is_mirrored, now_s
        self._troubles = troubles or Troubles()
        self._copies: dict[str, _Copy] = {}

    @property
    def failing(self) -> dict[str, Trouble]:
        """Groups whose copy is behind."""
        return self._troubles.now

    def changed(self, group: str, place: Place, offset: int | None) -> None:
        """A committed offset was set or deleted."""
        if not self._is_mirrored(group):
            return
        copy = self._copies.setdefault(group, _Copy())
        copy.is_changed = True
        if offset is None:
            copy.settled.pop(place, None)

    def turn(self, offsets: CommittedOffsets) -> None:
        """Copy what has changed. A group that fails is tried again later; the others go on."""
        now = self._now_s()
        for group, copy in list(self._copies.items()):
            if now >= copy.check_at_s:
                copy.is_changed, copy.settled = True, {}
                copy.check_at_s = now + CHECK_EVERY_S
            if not copy.is_changed or now < copy.retry_at_s:
                continue
            wanted = offsets.groups.get(group)
            try:
                self._copy(group, copy, wanted or {}, offsets.is_known_whole(group))
            except (KafkaException, TimeoutError, NotAllowed) as problem:
                self._put_off(group, copy, _words(problem))
            else:
                self._done(group, copy)
                if wanted is None:
                    del self._copies[group]

    def _copy(self, group: str, copy: _Copy, wanted: Mapping[Place, int], is_whole: bool) -> None:
        if not wanted and copy.is_ours and is_whole:
            self._kafka.delete(group)
        settled = copy.settled
        new = [(place, offset) for place, offset in wanted.items() if settled.get(place) != offset]
        for first in range(0, len(new), WRITTEN_AT_ONCE_MAX):
            self._write(group, copy, dict(new[first : first + WRITTEN_AT_ONCE_MAX]))

    def _write(self, group: str, copy: _Copy, some: Offsets) -> None:
        copy.is_ours = True  # for any answer, and if none comes
        refused = self._kafka.write(group, some)
        for place, error in refused.items():
            is_of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            of_group = Right(Kind.GROUP, group, Operation.READ)
            if denied := denial(error, of_group if is_of_group else reading(place.topic), {}):
                raise denied
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
        copy.settled.update(some)

    def _put_off(self, group: str, copy: _Copy, failure: str) -> None:
        if failure != copy.failure:
            _log.warning("mirror: offsets cannot be copied", group=group, error=failure)
        copy.failure = failure
        self._troubles.failed(group, failure)
        copy.retry_at_s = self._now_s() + copy.retry_after_s
        copy.retry_after_s = min(2 * copy.retry_after_s, RETRY_MAX_S)

    def _done(self, group: str, copy: _Copy) -> None:
        if copy.failure:
            _log.info("mirror: offsets are copied again", group=group)
        self._troubles.works(group)
        copy.failure, copy.is_changed = "", False
        copy.retry_at_s, copy.retry_after_s = 0.0, RETRY_FIRST_S


def _words(problem: Exception) -> str:
    if isinstance(problem, NotAllowed):
        return problem.what
    error = problem.args[0] if problem.args else problem
    if isinstance(error, KafkaError):
        if error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
            return "Kafka's own group of this name has members; it takes offsets when it has none"
        return error.str()
    return repr(problem)


def chosen(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a group is one of those named; a name that begins with `^` is an expression.

    Raises:
        SetupError: an expression that RE2 cannot read.
    """
    names = frozenset(each for each in patterns if not each.startswith("^"))
    expressions = [_compiled(each) for each in patterns if each.startswith("^")]
    return lambda group: group in names or any(each.matches(group) for each in expressions)


def _compiled(text: str) -> Pattern:
    try:
        return compile_pattern(text)
    except BadPattern as problem:
        raise SetupError(
            f"A group to be mirrored cannot be read: {problem}",
            f"engine.mirror_offsets, {text}",
            "Name a group, or give an RE2 expression of the whole name that begins with ^.",
        ) from problem


class AdminGroups:
    """`KafkaGroups` over confluent-kafka."""

    def __init__(self, client_options: Mapping[str, Any]) -> None:
        self._admin = open_admin(client_options, log_level=2)
        self._options = client_options

    def write(self, group: str, offsets: Mapping[Place, int]) -> dict[Place, KafkaError]:
        places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, places)
        answer = self._admin.alter_consumer_group_offsets([asked], request_timeout=_TIMEOUT_S)
        try:
            rows = answer[group].result(_TIMEOUT_S).topic_partitions
        except KafkaException as problem:
            right = Right(Kind.GROUP, group, Operation.READ)
            raise denial(problem, right, self._options) or problem from problem
        return {
            Place(each.topic, each.partition): each.error for each in rows if each.error is not None
        }

    def delete(self, group: str) -> None:
        answer = self._admin.delete_consumer_groups([group], request_timeout=_TIMEOUT_S)
        try:
            answer[group].result(_TIMEOUT_S)
        except KafkaException as problem:
            right = Right(Kind.GROUP, group, Operation.DELETE)
            if denied := denial(problem, right, self._options):
                raise denied from problem
            if problem.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
