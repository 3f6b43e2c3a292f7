"""The cluster's topics, listed to every shard; and whether the job's own are as it left them."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import KafkaException
from msgspec import UNSET

from coordlib import limits
from coordlib.core.wire.api import Topic, TopicMetadata
from coordlib.core.wire.topics import is_users, own_topics
from coordlib.errors import CoordError
from coordlib.job.background.loop import BackgroundThread, HealthReport
from coordlib.job.control import ControlWriter
from coordlib.job.sink import ShownIds
from coordlib.kafka.clients import open_admin, reason_of
from coordlib.kafka.cluster import read_topic_ids
from coordlib.kafka.layout import Grown

_log = structlog.get_logger()
LOOK_EVERY_S: Final = 30.0
#: Its name among the failures.
CHECKPOINT: Final = "checkpoint"


class Owner(Protocol):
    """The part of `PipelineQuery` that is used here."""

    def lost_checkpoint(self) -> str: ...

    def grown(self) -> Sequence[Grown]: ...


class OwnWatch(BackgroundThread):
    """The thread. Trouble "checkpoint": the next start will not find it.

    Args:
        owner: the query that runs now; None: none does.
        word: how the trouble is worded for this pipeline.
    """

    def __init__(
        self,
        owner: Callable[[], Owner | None],
        health: HealthReport,
        word: Callable[[str], str] = str,
    ) -> None:
        super().__init__("own-watch")
        self._owner, self._health, self._word = owner, health, word
        #: What was named before.
        self._grown: Sequence[Grown] = ()
        self._lost = ""

    def turn(self) -> None:
        """One look at both."""
        if (owner := self._owner()) is None:
            return
        self._look_at_checkpoint(owner)
        try:
            found = owner.grown()
        except (KafkaException, CoordError) as problem:
            _log.warning("the job's topics are not looked at", error=reason_of(problem))
            return
        for each in found:
            if each not in self._grown:
                _log.warning("partitions were added, and are not read", **each._asdict())
        self._grown = found

    def _look_at_checkpoint(self, owner: Owner) -> None:
        lost = self._word(owner.lost_checkpoint())
        if lost and lost != self._lost:
            _log.error("the next start will not find its checkpoint", error=lost)
        self._lost = lost
        self._health.note(CHECKPOINT, lost)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self.turn()
            except Exception as problem:  # noqa: BLE001  in the job's status; the job goes on
                if self._stop.is_set():
                    return  # Spark ends under it
                _log.warning("the checkpoint is not looked at", error=repr(problem))
                self._health.failed(CHECKPOINT, f"cannot be looked at: {problem!r}")


#: The whole listing is repeated after this time.
SAY_AGAIN_S: Final = 600.0
#: Looks for which a first listing waits for a topic that cannot be counted.
UNCOUNTED_MAX: Final = 12
#: At each such look all ids are asked for: with looks every 5 s, twice a minute.
IDS_LOOKS: Final = 6
#: More changes than this at once are written as a whole listing.
CHANGES_MAX: Final = 100
_TIMEOUT_S: Final = 10.0

#: Topic to partition count; None: it exists, and its count is not known at this moment.
Seen = Mapping[str, int | None]
#: Topic to its id.
Ids = Mapping[str, str]


class Planner:
    """Plans the records after each look. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        #: The topics, as far as they are certain.
        self._known: dict[str, int] = {}
        #: The newest id of each topic, also of those that are gone.
        self._ids: dict[str, str] = {}
        #: Ids that one look has shown, and the next one must confirm.
        self._doubted: dict[str, str] = {}
        #: Topics whose ids the present look asks for; those for which the one before got no answer.
        self._asked: frozenset[str] = frozenset()
        self._unanswered: frozenset[str] = frozenset()
        self._looks = 0
        #: Whether a shard may have other topics than these.
        self._owes_everything = True
        self._listed_s = 0.0
        #: The look before; None: there was none.
        self._before: Seen | None = None
        #: How many looks in a row had an existing topic without a count.
        self._uncounted = 0

    def ids_needed(self, seen: Seen) -> frozenset[str]:
        """The topics whose ids the look needs that has seen these."""
        before = self._before
        if before is None or self._looks % IDS_LOOKS == 0:
            self._asked = frozenset(seen)
        else:
            changed = {name for name, count in seen.items() if before.get(name, 0) != count}
            self._asked = frozenset(changed | self._doubted.keys() | self._unanswered) & seen.keys()
        self._looks += 1
        return self._asked

    def look(
        self, seen: Seen, now_s: float, ids: Ids | None = MappingProxyType({})
    ) -> list[TopicMetadata]:
        """The records to write; they count as written until `unsaid`.

        Args:
            ids: of those that `asks` has named; None: there was no answer.
        """
        before, self._before = self._before, seen
        self._unanswered = self._asked if ids is None else frozenset()
        listed = {} if ids is None else self._learn(ids, before)
        # A driver that has just begun must look twice before a topic counts as gone.
        if before is None:
            return []
        known = self._known
        topics = {}
        for name in sorted(seen.keys() | before.keys()):
            count = seen.get(name) or known.get(name) or before.get(name)
            if count is not None:
                topics[name] = count
        if self._owes_everything and self._must_wait(seen, topics):
            return []
        topics = _first(topics, known)
        makes_room = self._makes_room(topics)
        is_everything = self._owes_everything or now_s - self._listed_s >= SAY_AGAIN_S
        anew = sorted(name for name in listed.keys() & topics.keys() if listed[name])
        _log_changes(known.keys() - topics.keys(), anew, self._ids)
        names = known.keys() | topics.keys()
        changed = sorted(n for n in names if known.get(n) != topics.get(n) or n in listed)
        self._known, self._owes_everything = topics, False
        again = list(_listing(topics, self._ids)) if makes_room else []
        if is_everything or len(changed) > CHANGES_MAX:
            self._listed_s = now_s
            return [*_listing(topics, self._ids), *again]
        return [*(_single(name, topics, known, self._ids) for name in changed), *again]

    def _learn(self, ids: Ids, before: Seen | None) -> dict[str, str]:
        """Keep the ids that are certain; those topics that have another one by that, with the id
        before, or an empty one."""
        learned: dict[str, str] = {}
        doubted: dict[str, str] = {}
        for name, id_ in ids.items():
            known = self._ids.get(name, "")
            is_new = not known and before is not None and name not in before
            if id_ == known:
                continue
            if is_new or self._doubted.get(name) == id_:
                learned[name], self._ids[name] = known, id_
            else:
                doubted[name] = id_
        self._doubted = doubted
        return learned

    def _makes_room(self, topics: Mapping[str, int]) -> bool:
        """Whether a full shard may lose a topic, and so have room for another.

        The topic that it has room for then may stand before the lost one in a listing, so a second
        listing is needed.
        """
        known = self._known
        if max(len(known), len(topics)) < limits.TOPICS_MAX:
            return False
        return self._owes_everything or not known.keys() <= topics.keys()

    def _must_wait(self, seen: Seen, topics: Mapping[str, int]) -> bool:
        """Whether a listing would omit a topic that is only without a leader."""
        is_short = any(name not in topics for name in seen)
        self._uncounted = self._uncounted + 1 if is_short else 0
        return 0 < self._uncounted <= UNCOUNTED_MAX

    def unsaid(self) -> None:
        """Plan a whole listing, because a record did not reach the log."""
        self._owes_everything = True


def _first(topics: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """As many topics as may be listed, by name: those listed before, then the first others."""
    ordered = sorted(topics, key=lambda name: (name not in known, name))
    return {name: topics[name] for name in sorted(ordered[: limits.TOPICS_LISTED_MAX])}


def _log_changes(gone: Collection[str], anew: Sequence[str], ids: Ids) -> None:
    """Only what an operator may ask about: groups keep offsets of topics that are gone."""
    for name in sorted(gone)[:CHANGES_MAX]:
        _log.warning("a topic is gone, or hidden: the offsets of groups stay", topic=name)
    for name in anew[:CHANGES_MAX]:
        _log.warning("a topic was created again: its offsets are ignored", topic=name, id=ids[name])


def _listing(topics: Mapping[str, int], ids: Ids) -> Iterator[TopicMetadata]:
    """The whole listing, in ranges that one record can hold."""
    names = list(topics)
    ends = [*names[limits.TOPICS_PER_RECORD_MAX - 1 :: limits.TOPICS_PER_RECORD_MAX]]
    if ends and ends[-1] == names[-1]:
        ends.pop()
    for number, (after, through) in enumerate(pairwise([None, *ends, None])):
        first = number * limits.TOPICS_PER_RECORD_MAX
        some = names[first : first + limits.TOPICS_PER_RECORD_MAX]
        rows = tuple(Topic(name, topics[name], ids.get(name, UNSET)) for name in some)
        yield TopicMetadata(v=1, after=after, through=through, topics=rows)


def _single(
    name: str, topics: Mapping[str, int], known: Mapping[str, int], ids: Ids
) -> TopicMetadata:
    """One topic as it is now: the range from the name before it to its own."""
    after = max((n for n in topics.keys() | known.keys() if n < name), default=None)
    rows = (Topic(name, topics[name], ids.get(name, UNSET)),) if name in topics else ()
    return TopicMetadata(v=1, after=after, through=name, topics=rows)


class Cluster(Protocol):
    """The calls to Kafka that the watch needs."""

    def look(self) -> Seen:
        """The topics that groups may read. Raises KafkaException."""

    def ids(self, topics: Collection[str]) -> Ids:
        """The ids of those of the topics that are there. Raises KafkaException, TimeoutError."""

    def write(self, record: TopicMetadata, on_delivery: Callable[[str], None]) -> None:
        """Write a record to every shard of the job; `told` is called for each with why the log
        refused it, or with an empty reason. Raises KafkaException, TimeoutError."""

    def serve(self) -> None:
        """Deliver the outcome of records. Raises KafkaException."""


class TopicWatch(BackgroundThread):
    """Looks at the cluster beside the query, and writes what has changed.

    It never ends the job: without it groups keep the partitions that they have. Its failures are
    the trouble "topics".

    Args:
        shown: what a rebuild finds of the ids that were listed.
    """

    def __init__(
        self,
        cluster: Cluster,
        interval_s: float,
        health: HealthReport | None = None,
        shown: ShownIds | None = None,
    ) -> None:
        super().__init__("topics")
        self._cluster, self._interval_s = cluster, interval_s
        self._health = health or HealthReport()
        self._shown = shown or ShownIds({})
        self._planner = Planner()
        #: Why the log did not take a record; set by whichever thread serves the producer of control
        #: records.
        self._lost: deque[str] = deque(maxlen=1)
        #: Why ids could not be asked for at the newest look.
        self._no_ids = ""

    def turn(self) -> None:
        """One look at the cluster, and the records that follow from it."""
        try:
            self._look()
        except (KafkaException, TimeoutError) as problem:
            _log.warning("topics are not watched", error=reason_of(problem))
            self._lost.append(reason_of(problem))
        self._health.note("topics", "".join(self._lost) or self._no_ids)

    def _look(self) -> None:
        if self._lost:
            self._lost.clear()
            self._planner.unsaid()
        seen = self._cluster.look()
        for record in self._planner.look(seen, time.monotonic(), self._ids_of(seen)):
            self._shown.note(record, seen.keys())
            self._cluster.write(record, self._note)
        self._cluster.serve()

    def _ids_of(self, seen: Seen) -> Ids | None:
        asked, self._no_ids = self._planner.ids_needed(seen), ""
        try:
            return self._cluster.ids(asked) if asked else {}
        except (KafkaException, TimeoutError) as problem:
            _log.warning("the ids of topics cannot be asked for", error=reason_of(problem))
            self._no_ids = f"the ids of topics cannot be asked for: {reason_of(problem)}"
            return None

    def _note(self, error: str) -> None:
        if error:
            self._lost.append(error)

    def _run(self) -> None:
        wait_s = 0.0
        try:
            while not self._stop.wait(wait_s):
                self.turn()
                # The first two looks follow each other: no listing is written before the second.
                wait_s = self._interval_s if wait_s else min(1.0, self._interval_s)
        except Exception as problem:  # noqa: BLE001  in the job's status; the job goes on
            _log.exception("topics are watched no more")
            self._health.failed("topics", f"watched no more: {problem!r}")


class KafkaCluster:
    """`Cluster` over confluent-kafka. Kafka's own topics and the coordinator's are left out."""

    def __init__(
        self,
        prefix: str,
        shards: Sequence[int],
        control: ControlWriter,
        client_options: Mapping[str, Any],
    ) -> None:
        self._prefix, self._shards, self._control = prefix, shards, control
        self._own = own_topics(prefix)
        self._admin = open_admin(client_options, log_level=2)
        self._has_warned = False

    def look(self) -> Seen:
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        seen = {
            name: len(topic.partitions) or None if topic.error is None else None
            for name, topic in sorted(found.items())
            if is_users(name, self._own)
        }
        if len(seen) > limits.TOPICS_MAX:
            self._warn(len(seen))
        return seen

    def ids(self, topics: Collection[str]) -> Ids:
        return read_topic_ids(self._admin, topics, _TIMEOUT_S)

    def _warn(self, count: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "too many topics for server-assigned groups",
                topics=count,
                known=f"{limits.TOPICS_MAX}: those that were known before, then the first by name",
            )

    def write(self, record: TopicMetadata, on_delivery: Callable[[str], None]) -> None:
        for shard in self._shards:
            self._control.write(shard, record, on_delivery)

    def serve(self) -> None:
        self._control.serve(_TIMEOUT_S)
