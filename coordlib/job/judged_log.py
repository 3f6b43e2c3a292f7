"""Whether the inputs are still the logs that were judged, and what of them is lost.

Retention, or an operator, removes requests before they were judged; or a log is cut
(`kafka/logs.py`). So a start asks where each input begins and ends, and reads the newest judged
record once more.

What is lost is named, and skipped only where somebody has accepted that. No offset is judged twice,
because ids and fencing tokens are offsets: a log that is shorter is filled up to the judged place,
and whatever stands below it is lost, whoever wrote it.  # INV-104
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeVar

import structlog
from confluent_kafka import KafkaException, Producer
from msgspec.structs import replace

from coordlib.core.engine.effects import EVENTS, RESPONSES, Output
from coordlib.core.engine.fold import coordinate
from coordlib.core.wire import api, cells, codec
from coordlib.core.wire.api import Tick
from coordlib.core.wire.control import BEHIND_ALL
from coordlib.core.wire.stored import (
    EVENT_REQUESTS_LOST,
    MARKER_VERSION,
    Event,
    JudgedRecord,
    Layout,
    Marker,
    ShardPosition,
)
from coordlib.errors import CannotReach, CoordError, StartRefused
from coordlib.job.batch import judged_record
from coordlib.job.pipelines import Pipeline
from coordlib.job.rebuild import record_of
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.bounds import leader_epochs, log_bounds
from coordlib.kafka.clients import open_admin, reaching, reason_of
from coordlib.kafka.logs import (
    AGAIN_S,
    Bounds,
    Lost,
    Place,
    Read,
    Why,
    find_lost,
    lost_at_two_looks,
    named,
    still_there,
)
from coordlib.kafka.reading import records_at

_T = TypeVar("_T")
_log = structlog.get_logger()
#: How long a new topic, or one whose broker has just started, may have no leader.
_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 0.2
#: How long a start, or a batch, waits for leaders.
_LEADERS_S: Final = 60.0
_ID_BYTES, _ID_DIGITS = 16, 8
#: Records that are written at once where a log is filled.
_FILLED_AT_ONCE: Final = 10_000
#: Where the numbers of RequestsLost lines begin: other lines of the record before have far fewer.
_ORDINAL: Final = 1_000_000
#: What a log is filled with: nobody judges it.
FILLER: Final = codec.encode(Tick(v=1, published=-1))
_WHERE: Final = "Check that the broker runs and that this job may read and write its topics."


class Inputs(Protocol):
    """The inputs of a pipeline. All methods raise CannotReach."""

    def epochs(self, places: Iterable[Place]) -> Mapping[Place, int | None]:
        """The epoch of each partition's leader."""

    def bounds(self, places: Iterable[Place]) -> Mapping[Place, Bounds]:
        """Where the logs begin and end."""

    def judged(self, offsets: Mapping[Place, int]) -> Mapping[Place, JudgedRecord | None]:
        """The records at these offsets; None: another one, or none, stands there. What was removed
        meanwhile is left out."""

    def fill(self, place: Place, end: int) -> None:
        """Write records until the log ends there, or behind it."""

    def wait(self) -> None:
        """Give brokers that have just started, or lead no more, time before the next look."""


def lost_of(marker: Marker, places: Iterable[Place], inputs: Inputs) -> list[Lost]:
    """What is lost of these partitions of the inputs.

    Of a partition that the marker does not name, nothing was judged, and nothing is known to be
    lost.
    """
    known: dict[Place, Read] = {}
    for place in (bounds := inputs.bounds(places)):
        next_, record = _of(marker.next_offsets, place), _of(marker.judged, place)
        if next_ is not None:
            known[place] = Read(next_, next_ - 1, record)
    return find_lost(known, bounds, inputs.judged)


def refusal(lost: Iterable[Lost], pipeline: Pipeline, hint: str = "") -> StartRefused:
    """Names what is lost, and the way to go on."""
    return StartRefused(
        "The log of requests is not the one that was processed: requests are lost.",
        f"prefix {pipeline.prefix}: {named(lost)}",
        hint
        or "To continue without them, name an empty folder and add --rebuild --accept-loss. "
        "Members send lost requests again, or their sessions end; none of them is acknowledged.",
    )


def skipped(marker: Marker, lost: list[Lost], now: Mapping[Place, JudgedRecord | None]) -> Marker:
    """The marker that goes on behind what is lost, of a checkpoint that never was: no older one may
    go on from it.

    Args:
        now: the records that stand before what is judged next.
    """
    next_offsets = {topic: dict(each) for topic, each in marker.next_offsets.items()}
    known = {topic: dict(each) for topic, each in marker.judged.items()}
    for place, _, end, _ in lost:
        shard = str(place.partition)
        next_offsets.setdefault(place.topic, {})[shard] = end
        known.setdefault(place.topic, {}).pop(shard, None)
        if (newest := now.get(place)) is not None:
            known[place.topic][shard] = newest
    return replace(
        marker,
        v=MARKER_VERSION,
        checkpoint=blake2b(f"{marker} {lost}".encode(), digest_size=_ID_BYTES).hexdigest(),
        ranges={},
        digest="",
        next_offsets=next_offsets,
        judged=known,
    )


def lines_of(
    lost: Iterable[Lost], marker: Marker, pipeline: Pipeline, incarnation: str
) -> list[Output]:
    """A RequestsLost line of history for each, in the shard's partition; `marker`: behind them."""
    letters = {topic: letter for letter, topic in pipeline.inputs.items()}
    return [_line(each, letters[each.place.topic], marker, incarnation) for each in lost]


def _line(lost: Lost, letter: str, marker: Marker, incarnation: str) -> Output:
    topic, shard = lost.place
    position: ShardPosition | None = marker.shards.get(str(shard))
    cause = coordinate(letter, shard, lost.end - 1)
    # By the marker's id: the same place may be lost once more.
    ordinal = _ORDINAL + int(marker.checkpoint[:_ID_DIGITS], 16)
    event = Event(
        event_id=f"{incarnation}-{cause}-{ordinal}",
        # Log time, as all other lines have it; a shard that has judged nothing has none.
        time_ms=(position.previous_ms if position else 0) or time.time_ns() // 1_000_000,
        group="",
        protocol=None,
        type=EVENT_REQUESTS_LOST,
        generation=-1,
        member="",
        cause=cause,
        reason=str(lost.why),
        detail={
            "topic": topic,
            "partition": shard,
            "from_offset": lost.first,
            "to_offset": lost.end,
        },
    )
    return Output(EVENTS, shard, b"", codec.encode(event))


def _before(lost: Iterable[Lost], pipeline: Pipeline) -> dict[int, int]:
    """Shard -> the offset before which unanswered requests are lost.

    A log that was cut had unread requests behind the judged place as well. Their offsets belong to
    other records by now, so every request that waits for an answer counts as lost.  # INV-145
    """
    topic = pipeline.first_input
    return {
        each.place.partition: each.end if each.why is Why.REMOVED else BEHIND_ALL
        for each in lost
        if each.place.topic == topic
    }


def _of(known: Mapping[str, Mapping[str, Any]], place: Place) -> Any:
    return known.get(place.topic, {}).get(str(place.partition))


class JudgedLog:
    """The inputs of one driver: compared with what was judged when it starts, and whenever another
    leader may have taken a partition over.

    Args:
        accepts_loss: a rebuild that goes on behind what is lost.
        hint: where the job may write nothing into its input: what to do where that was cut. Records
            that were removed unread are no concern of this class then.
    """

    def __init__(
        self, pipeline: Pipeline, inputs: Inputs, *, accepts_loss: bool = False, hint: str = ""
    ) -> None:
        self._pipeline, self._inputs = pipeline, inputs
        self._accepts_loss, self._hint = accepts_loss, hint
        #: Of each partition's leader, when it was last known that the log is the judged one.
        self._epochs: dict[Place, int | None] = {}

    def settle(self, sink: TransactionalSink, layout: Layout) -> None:
        """Go on behind what is lost, with lines of history. Raises StartRefused: not accepted."""
        marker, pipeline, inputs = sink.marker, self._pipeline, self._inputs
        shards = pipeline.shards(layout.shards)
        places = [Place(topic, shard) for topic in pipeline.inputs.values() for shard in shards]
        # Before the records are read: a log that is cut in between has another epoch afterwards.
        self._epochs = dict(inputs.epochs(places))
        if marker is None:
            self._begin(sink, places)
            return
        if not (lost := lost_at_two_looks(lambda: self._lost(marker, places), inputs.wait)):
            return
        if not self._accepts_loss:
            raise refusal(lost, pipeline, self._hint)
        for each in lost:
            _log.warning("requests are lost, and the job continues without them", lost=str(each))
            if each.why is Why.SHORTER:
                inputs.fill(each.place, each.end)
        newest = {each.place: each.end - 1 for each in lost if each.why is not Why.REMOVED}
        behind = skipped(marker, lost, inputs.judged(newest))
        incarnation = layout.topic_ids[pipeline.first_input][:8]
        key = cells.key_of(cells.MARKER, pipeline.owned)
        row = Output("progress", 0, key, codec.encode(behind))
        sink.progress.note_marker(behind, pipeline.owned)
        loading = codec.encode(api.CoordinatorLoading(lost=_before(lost, pipeline)))
        replies = [
            Output(RESPONSES, partition, b"", loading)
            for partition in range(layout.reply_partitions)
        ]
        lines = lines_of(lost, behind, pipeline, incarnation)
        sink.write_extra([row, *lines, *replies])

    def _begin(self, sink: TransactionalSink, places: Iterable[Place]) -> None:
        """Nothing was judged yet: what was removed before is skipped, and only logged."""
        if self._hint:
            return
        for place, (start, _) in sorted(self._inputs.bounds(places).items()):
            sink.starts.setdefault(place.topic, {})[str(place.partition)] = start
            if start > 0:
                gone = Lost(place, 0, start, Why.REMOVED)
                _log.warning("the first start begins behind requests that are gone", lost=str(gone))

    def require_same(self, before: Marker | None, after: Marker) -> None:
        """Look before a batch is written, when its records have been read.

        What retention removes meanwhile is not missed: this batch has it.

        Args:
            before: the newest marker.
            after: that of the batch.

        Raises:
            StartRefused: records that were judged are gone.
            CoordError: records of this batch are gone, and nothing else.
            CannotReach: no broker answers.
        """
        doubted: tuple[Mapping[Place, int | None], set[Place]] | None = None
        while True:
            epochs = self._inputs.epochs(self._epochs)
            changed = [place for place, epoch in epochs.items() if epoch != self._epochs[place]]
            if not changed:
                return
            lost = self._cut(before, changed) if before else []
            of_batch = self._cut(after, changed)
            # While leaders move, one look may have met a broker that leads no more.
            look = epochs, {each.place for each in [*lost, *of_batch]}
            if look == doubted or not look[1]:
                break
            doubted = look
        _log.info("another leader has taken inputs over", partitions=len(changed))
        if lost:
            raise refusal(lost, self._pipeline, self._hint)
        if of_batch:
            raise CoordError(
                "An input lost its end under the job. Nothing that was committed is missing.",
                named(of_batch),
                "Start the job again: the batch is processed as the log has it now. If it is "
                "refused, name an empty folder and add --rebuild.",
            )
        self._epochs |= epochs

    def _lost(self, marker: Marker, places: Iterable[Place]) -> list[Lost]:
        lost = lost_of(marker, places, self._inputs)
        return [each for each in lost if not self._hint or each.why is not Why.REMOVED]

    def _cut(self, marker: Marker, places: Iterable[Place]) -> list[Lost]:
        return [each for each in self._lost(marker, places) if each.why is not Why.REMOVED]


class KafkaInputs:
    """`Inputs` over confluent-kafka, read uncommitted, as the query reads them."""

    def __init__(self, client_options: Mapping[str, Any], pipeline: Pipeline) -> None:
        self._options = client_options
        self._letters = {topic: letter for letter, topic in pipeline.inputs.items()}
        self._admin = open_admin(client_options, log_level=2)

    def epochs(self, places: Iterable[Place]) -> dict[Place, int | None]:
        asked = list(places)
        what = "It is not known who leads the inputs"
        return self._asked(what, asked, lambda: leader_epochs(self._admin, asked, _PATIENCE_S))

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        asked = list(places)
        what = "It is not known where the inputs begin and end"
        return self._asked(what, asked, lambda: bounds_of(self._options, asked))

    def judged(self, offsets: Mapping[Place, int]) -> dict[Place, JudgedRecord | None]:
        if not offsets:
            return {}
        what = "Processed records cannot be read again"
        messages = self._asked(what, offsets, lambda: records_at(self._options, offsets))
        found = {
            place: None
            if message is None
            else judged_record(record_of(self._letters[place.topic], message))
            for place, message in messages.items()
        }
        return still_there(found, offsets, self.bounds)

    def _asked(self, what: str, places: Collection[Place], ask: Callable[[], _T]) -> _T:
        """The answer, also while leaders move."""
        until_s = time.monotonic() + _LEADERS_S
        while True:
            try:
                with reaching(what, _WHERE):
                    return ask()
            except CannotReach:
                if time.monotonic() > until_s:
                    raise
            time.sleep(_PAUSE_S)
            self._admin.forget(place.topic for place in places)

    def wait(self) -> None:
        time.sleep(AGAIN_S)

    def fill(self, place: Place, end: int) -> None:
        producer = Producer({**self._options, "enable.idempotence": True, "log_level": 2})
        try:
            # Others write as well, so half of what lacks, until one is left.
            while (lacking := end - self.bounds([place])[place].end) > 0:
                with reaching(f"{place.topic} cannot be filled", _WHERE):
                    for _ in range(min((lacking + 1) // 2, _FILLED_AT_ONCE)):
                        producer.produce(place.topic, FILLER, partition=place.partition)
                    if producer.flush(_PATIENCE_S):
                        raise TimeoutError("records were not acknowledged")
        finally:
            producer.purge()
            with suppress(KafkaException):  # one that has failed for ever says so once more
                producer.close()


def bounds_of(client_options: Mapping[str, Any], places: Iterable[Place]) -> dict[Place, Bounds]:
    """Where the logs begin and end: of all of them.

    Raises CannotReach: no broker answers, or a partition has no leader for long.
    """
    asked, admin = list(places), open_admin(client_options, log_level=2)
    reason, deadline_s = "no leader", time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            found = log_bounds(admin, asked)
        except (KafkaException, TimeoutError) as problem:
            reason = reason_of(problem)
            break
        bounds = {place: each for place, each in found.items() if each is not None}
        if len(bounds) == len(asked):
            return bounds
        time.sleep(_PAUSE_S)
    raise CannotReach(
        f"Where the requests begin and end cannot be asked: {reason}",
        ", ".join(sorted({place.topic for place in asked})),
        "Check that the broker runs and that this job may describe the topic.",
    )
