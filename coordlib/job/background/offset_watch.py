"""The driver's thread for committed offsets: it samples lag, and mirrors groups."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from coordlib.config import EngineConfig
from coordlib.core.wire.stored import LagSample
from coordlib.core.wire.topics import BadPattern, Pattern, compile_pattern
from coordlib.errors import NotAllowed, SetupError
from coordlib.job.background.committed_log import (
    LEFT_OUT_MAX,
    OFFSETS_MAX,
    CommittedLog,
    CommittedOffsets,
    Exists,
)
from coordlib.job.background.lag_sampler import LagSampler, LagTopic, Whose, wall_clock_ms
from coordlib.job.background.loop import HealthReport, Trouble
from coordlib.kafka.admin import Admin
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import denial, describing, missing, open_admin, reading, reason_of
from coordlib.kafka.lag import SAMPLES_MAX, LogEnds, newest_samples, sampled_ends
from coordlib.kafka.logs import Bounds, Place
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
        health: HealthReport | None = None,
    ) -> None:
        self._kafka, self._is_mirrored, self._now_s = kafka, is_mirrored, now_s
        self._health = health or HealthReport()
        self._copies: dict[str, _Copy] = {}

    @property
    def failing(self) -> dict[str, Trouble]:
        """Groups whose copy is behind."""
        return self._health.now

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
        self._health.failed(group, failure)
        copy.retry_at_s = self._now_s() + copy.retry_after_s
        copy.retry_after_s = min(2 * copy.retry_after_s, RETRY_MAX_S)

    def _done(self, group: str, copy: _Copy) -> None:
        if copy.failure:
            _log.info("mirror: offsets are copied again", group=group)
        self._health.works(group)
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


_WAIT_S: Final = 0.5
_RETRY_PAUSE_S: Final = 5.0
_JOIN_S: Final = 15.0
_ASK_S: Final = 10.0
#: Where there are more offsets than are followed, to choose among them takes a second.
_TRIM_EVERY_S: Final = 30.0
#: Reading also succeeds when there is nothing to read. So it counts as working only when it has not
#: failed for this long.
_QUIET_MS: Final = 60_000


class OffsetWatch:
    """The thread; it starts only if lag or a mirror is wanted.

    Failures: "committed offsets" cannot be read; "lag" cannot be sampled; "lag of topics" that may
    not be described; "lag samples" are not written; "offsets left out" are beyond the bound; "lag
    and mirror" have ended.

    Args:
        prefix: of the topics of committed offsets and of lag.
        whose: kind and space of what has the offsets.

    Raises:
        SetupError: `engine.mirror_offsets` has an expression that cannot be read.
    """

    def __init__(
        self,
        client_options: Mapping[str, Any],
        prefix: str,
        engine: EngineConfig,
        health: HealthReport | None = None,
        whose: Whose = Whose(),  # noqa: B008  immutable
    ) -> None:
        self._options, self._prefix, self._whose = client_options, prefix, whose
        self._interval_ms = engine.lag_interval_ms
        self._is_mirrored = chosen(engine.mirror_offsets)
        self._has_mirror = bool(engine.mirror_offsets)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._health, self._of_mirror = health or HealthReport(), HealthReport()
        self._trim_at_s = 0.0
        #: Topics with committed offsets that the brokers do not let the job describe.
        self._denied: list[str] = []

    @property
    def failing(self) -> dict[str, Trouble]:
        """Mirrored groups that are behind."""
        return self._of_mirror.now

    def start(self, shards: int, owned: Sequence[int] | None = None) -> None:
        """Begin, with that many shards; `owned`: those of the job, None: all."""
        if self._interval_ms or self._has_mirror:
            run = partial(self._run, shards, range(shards) if owned is None else owned)
            self._thread = threading.Thread(target=run, name="offset-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _run(self, shards: int, owned: Sequence[int]) -> None:
        try:
            self._follow(shards, owned)
        except Exception as problem:  # noqa: BLE001  in the job's status; the job goes on
            _log.exception("lag and mirror have ended")
            self._health.failed("lag and mirror", f"ended: {problem!r}")

    def _follow(self, shards: int, owned: Sequence[int]) -> None:
        sampler, topic = self._sampling(shards, owned) if self._interval_ms else (None, None)
        users: dict[str, LagSampler | Mirror] = {} if sampler is None else {"lag": sampler}
        if self._has_mirror:
            groups = AdminGroups(self._options)
            users["mirror"] = Mirror(groups, self._is_mirrored, health=self._of_mirror)
        topics = _Topics(self._options)
        offsets = CommittedOffsets(_everything if sampler else self._is_mirrored, topics.exists)

        def tell(group: str, place: Place, offset: int | None) -> None:
            for user in users.values():
                user.changed(group, place, offset)

        log = CommittedLog(self._options, self._prefix, owned, offsets, tell)
        try:
            while not self._stop.is_set():
                self._turn(log, users, topic)
        finally:
            log.close()
            if topic is not None:
                topic.close()

    def _sampling(self, shards: int, owned: Sequence[int]) -> tuple[LagSampler, LagTopic]:
        topic = LagTopic(self._options, self._prefix, shards)
        ask = partial(self._bounds, open_admin(self._options, log_level=2))
        earlier = self._earlier(owned)
        return LagSampler(ask, topic.write, self._interval_ms, earlier, whose=self._whose), topic

    def _bounds(self, admin: Admin, places: Iterable[Place]) -> Mapping[Place, Bounds | None]:
        denied: set[str] = set()
        found = log_bounds(admin, places, on_denied=denied.add)
        self._denied = sorted(denied)
        return found

    def _earlier(self, shards: Sequence[int]) -> dict[Place, LogEnds]:
        """Read the samples of earlier runs: a restart must shorten no group's lag in seconds."""
        samples: list[LagSample] = []
        try:
            for shard in shards:
                samples += self._of_shard(shard)
        except (KafkaException, NotAllowed) as problem:
            _log.warning("earlier samples of lag are not read", error=reason_of(problem))
        samples.sort(key=lambda sample: sample.time_ms)
        return {place: sampled.ends for place, sampled in sampled_ends(samples).items()}

    def _of_shard(self, shard: int) -> list[LagSample]:
        """The newest samples of a shard.

        If some old samples were not read, lag in seconds may be a lower bound for a while; a
        warning says how far the samples reach.
        """
        cuts: list[int] = []
        topic = f"{self._prefix}.lag"
        found = list(newest_samples(self._options, topic, shard, on_cut=cuts.append))
        now_ms = wall_clock_ms()
        reach_ms = now_ms - min((sample.time_ms for sample in found), default=now_ms)
        if cuts and reach_ms < SAMPLES_MAX * self._interval_ms:
            _log.warning(
                "earlier samples of lag are read in part",
                shard=shard,
                not_read=sum(cuts),
                reach_s=reach_ms // 1000,
            )
        return found

    def _turn(
        self, log: CommittedLog, users: "Mapping[str, LagSampler | Mirror]", topic: LagTopic | None
    ) -> None:
        # After the start, do not wait for the topic's end: if commits never pause, it never comes.
        turns: dict[str, Callable[[], object]] = {"committed offsets": partial(log.turn, _WAIT_S)}
        if log.has_caught_up:
            turns |= {name: partial(user.turn, log.offsets) for name, user in users.items()}
            if time.monotonic() >= self._trim_at_s:
                self._trim_at_s = time.monotonic() + _TRIM_EVERY_S
                log.offsets.trim()
        if topic is not None:
            turns["lag samples"] = topic.serve
        failures = {name: _failure_of(turn) for name, turn in turns.items()}
        written = {"lag samples": topic.failure} if topic is not None and topic.failure else {}
        self._tell({**failures, **written}, log.offsets.left_out)
        if failed := {name: failure for name, failure in failures.items() if failure}:
            _log.warning("lag and mirror wait for the broker", errors=failed)
            self._stop.wait(_RETRY_PAUSE_S)

    def _tell(self, failures: Mapping[str, str], left_out: int) -> None:
        for name, failure in failures.items():
            if failure:
                self._health.failed(name, failure)
            else:
                self._health.works(name, _QUIET_MS if name == "committed offsets" else 0)
        words = f"{left_out} or more" if left_out >= LEFT_OUT_MAX else f"{left_out}"
        without = f"{words} have no lag and no mirror: {OFFSETS_MAX} are followed"
        lacking = missing(describing(self._denied[0]), self._options).what if self._denied else ""
        self._health.note("lag of topics", lacking)
        self._health.note("offsets left out", without if left_out else "")


class _Topics:
    """The partitions that exist, as far as the brokers tell."""

    def __init__(self, client_options: Mapping[str, Any]) -> None:
        self._admin = open_admin(client_options, log_level=2)
        self._partitions: dict[str, int] | None = None

    def exists(self) -> Exists:
        """Ask the brokers; an unknown state stays as it was, and at first all partitions exist."""
        try:
            topics = self._admin.list_topics(timeout=_ASK_S).topics
            self._partitions = {name: len(each.partitions) for name, each in topics.items()}
        except KafkaException as problem:
            _log.warning("it is not known which topics there are", error=reason_of(problem))
        known = self._partitions
        return lambda at: known is None or at.partition < known.get(at.topic, 0)


def _failure_of(turn: Callable[[], object]) -> str:
    """The request that Kafka refused; empty: none. The mirror goes on where lag is refused."""
    try:
        turn()
    except NotAllowed as problem:
        return problem.what
    except (KafkaException, TimeoutError) as problem:
        return reason_of(problem)
    return ""


def _everything(_group: str) -> bool:
    return True
