"""Ticks: records by which the driver lets time pass, and reports which outputs can be read.

Rules 5 to 7 of time-and-fencing.md. The planning is a pure class over "now"; the thread around it
writes the ticks and asks the broker which outputs readers can see.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from msgspec import UNSET

from coordlib.core.engine.state import Status
from coordlib.core.wire.api import Tick
from coordlib.job.background.loop import BackgroundLoop
from coordlib.job.control import ControlWriter
from coordlib.job.crash import CrashPoint
from coordlib.job.sink import Written
from coordlib.kafka.bounds import every_offset
from coordlib.kafka.clients import has_moved, open_admin

_ASK_TIMEOUT_S: Final = 10.0
#: How long until it is asked again who leads.
_LEADER_S: Final = 0.1


class ShardTicks:
    """When one shard needs a tick. Times are seconds of a monotonic clock."""

    def __init__(self, committed: int, now: float) -> None:
        """`committed`: newest request whose outputs are committed at the start, -1 for none."""
        #: Highest request offset whose outputs readers can see.
        self.published = -1
        self._committed_at_start = committed
        #: The tick at start is owed; it gives the outputs that earlier drivers have published.
        self._owes_start = True
        #: Highest record that a member must react to; -1: none.
        self._owed = -1
        #: Highest `published` that an acknowledged tick has carried.
        self._covered = -2
        self._has_deadline = True
        self._cap_s = 0.0
        self._newest_known = now
        self._is_outstanding = False
        #: Shard -> newest message to it that it has judged; and the same as of acknowledged ticks.
        self._heard: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    def learn_heard(self, shard: int, number: int, is_acknowledged: bool = False) -> None:
        """A shard has judged messages of this one; `is_told`: a tick has notified this one."""
        for known in (self._heard, self._acknowledged) if is_acknowledged else (self._heard,):
            known[shard] = max(known.get(shard, 0), number)

    @property
    def heard(self) -> dict[int, int]:
        """Of which of its messages this shard is to be notified."""
        return {
            shard: number
            for shard, number in sorted(self._heard.items())
            if number > self._acknowledged.get(shard, 0)
        }

    def learn(self, status: Status, now: float) -> None:
        """A batch was judged."""
        self._owed = status.owed
        self._has_deadline = status.has_deadline
        self._cap_s = status.cap_ms / 1000
        self._newest_known = now

    @property
    def needs_visibility(self) -> bool:
        """Whether a deadline waits for outputs that readers may not see yet."""
        awaited = self._committed_at_start if self._owes_start else -1
        return max(self._owed, awaited) > self.published

    def is_due(self, now: float) -> bool:
        """Rules 6 and 7."""
        if self._is_outstanding:
            return False
        if self._owes_start:
            return self.published >= self._committed_at_start
        if self._covered < self._owed <= self.published or self.heard:
            return True
        is_silent = self._cap_s > 0 and now - self._newest_known >= self._cap_s / 2
        return self._has_deadline and is_silent

    def sent(self) -> int:
        """A tick is on its way; returns the `published` that it carries."""
        self._is_outstanding = True
        return self.published

    def acknowledged(
        self, published: int, now: float, heard: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self._acknowledged |= heard
        self._is_outstanding = False
        self._owes_start = False
        self._covered = max(self._covered, published)
        self._newest_known = now

    def failed(self) -> None:
        """Not acknowledged: still owed."""
        self._is_outstanding = False


class Broker(Protocol):
    """The calls to Kafka that the writer of ticks needs."""

    def write(self, shard: int, tick: Tick, on_delivery: Callable[[bool], None]) -> None:
        """Write a tick; `told` is called with whether the log took it. Raises KafkaException."""

    def ends(self, places: Iterable[tuple[str, int]], visible: bool) -> Written:
        """The newest offset of each partition; `visible`: that read-committed readers can see.

        Raises KafkaException, TimeoutError.
        """

    def serve(self) -> None:
        """Deliver the outcome of ticks."""


class TickWriter:
    """Writes the ticks of all shards, turn by turn. `batch_committed` may come from another thread.

    Args:
        positions: shard -> newest request whose outputs are committed, -1 for none.
        outputs: the (topic, partition) pairs that earlier drivers may have written to.
        now_s: a monotonic clock, in seconds.
        heard: channel -> newest message that was judged, at the start.
        told: channel -> newest one of which its sender was notified.
    """

    def __init__(
        self,
        broker: Broker,
        positions: Mapping[int, int],
        outputs: Iterable[tuple[str, int]],
        now_s: Callable[[], float] = time.monotonic,
        heard: Mapping[tuple[int, int], int] = MappingProxyType({}),
        acknowledged: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> None:
        self._broker, self._now_s = broker, now_s
        now = now_s()
        self._lock = threading.Lock()
        self._shards = {shard: ShardTicks(position, now) for shard, position in positions.items()}
        for known, is_acknowledged in ((heard, False), (acknowledged, True)):
            for (source, to), number in known.items():
                if source in self._shards:  # else it is of another job instance
                    self._shards[source].learn_heard(to, number, is_acknowledged)
        #: Outputs of committed batches that readers may not see yet, and what they would publish.
        #: At the start: all outputs of earlier drivers.
        self._unseen: Written = broker.ends(outputs, visible=False)
        self._unseen_positions = dict(positions)
        #: The part of it that is waited for. Newer batches do not replace it: where they come
        #: faster than end markers, the newest outputs are never visible, and no tick would be due.
        self._awaited: tuple[Written, dict[int, int]] | None = None
        self.written = 0
        self._crash, self._batches = CrashPoint.from_environment(), 0

    def batch_committed(self, statuses: list[Status], written: Written) -> None:
        """Called by the sink after a commit; `written`: where the outputs end."""
        now = self._now_s()
        with self._lock:
            self._batches += 1
            self._unseen.update(written)
            for status in statuses:
                self._unseen_positions[status.shard] = status.position.offset
                self._shards[status.shard].learn(status, now)
                for source, number in status.heard.items():
                    self._learn_heard(source, status.shard, number)

    def learn_heard(self, source: int, shard: int, number: int) -> None:
        """A shard of another job instance has judged messages of this one's shard `source`."""
        with self._lock:
            self._learn_heard(source, shard, number)

    def _learn_heard(self, source: int, shard: int, number: int) -> None:
        if source in self._shards:  # else another job instance's driver tells it
            self._shards[source].learn_heard(shard, number)

    def turn(self) -> None:
        """Ask what is visible, and write due ticks. Raises KafkaException, TimeoutError."""
        self._look_for_visibility()
        self._write_due()
        self._broker.serve()

    def _look_for_visibility(self) -> None:
        """Rule 5: committed is not yet visible; ask how far read-committed readers can see."""
        while (awaited := self._find_awaited()) is not None:
            wanted, positions = awaited
            if wanted and not self._are_visible(wanted):
                return
            self._publish(wanted, positions)

    def _find_awaited(self) -> tuple[Written, dict[int, int]] | None:
        """Outputs that must be visible before a deadline can start; None: no deadline waits."""
        with self._lock:
            is_wanted = any(shard.needs_visibility for shard in self._shards.values())
            if not (is_wanted and self._unseen_positions):
                return None
            if self._awaited is None:
                self._awaited = dict(self._unseen), dict(self._unseen_positions)
            return self._awaited

    def _publish(self, wanted: Written, positions: Mapping[int, int]) -> None:
        with self._lock:
            self._awaited = None
            for place, offset in wanted.items():
                if self._unseen.get(place) == offset:
                    del self._unseen[place]
            for number, position in positions.items():
                shard = self._shards[number]
                shard.published = max(shard.published, position)

    def _are_visible(self, written: Written) -> bool:
        seen = self._broker.ends(written, visible=True)
        return all(seen[place] >= offset for place, offset in written.items())

    def _write_due(self) -> None:
        now = self._now_s()
        for number, shard in self._shards.items():
            with self._lock:
                if not shard.is_due(now):
                    continue
                published, heard = shard.sent(), shard.heard
            try:
                on_delivery = self._note(shard, published, heard)
                tick = Tick(v=1, published=published, heard=heard or UNSET)
                self._broker.write(number, tick, on_delivery)
            except Exception:
                with self._lock:
                    shard.failed()
                raise
            self.written += 1
            self._crash.maybe_crash("tick", self._batches)

    def _note(
        self, shard: ShardTicks, published: int, heard: Mapping[int, int]
    ) -> Callable[[bool], None]:
        def note(is_taken: bool) -> None:
            with self._lock:
                if is_taken:
                    shard.acknowledged(published, self._now_s(), heard)
                else:
                    shard.failed()

        return note


class TickThread(BackgroundLoop):
    """Lets a TickWriter have its turns, beside the query."""

    def __init__(self, writer: TickWriter) -> None:
        super().__init__(
            writer,
            "ticks",
            "Start the job again; the tick at its start makes good for what was missed.",
        )
        self.writer = writer


class KafkaTicks:
    """`Broker` over confluent-kafka."""

    def __init__(self, control: ControlWriter, client_options: Mapping[str, Any]) -> None:
        self._control = control
        self._admin = open_admin(client_options, log_level=2)

    def write(self, shard: int, tick: Tick, on_delivery: Callable[[bool], None]) -> None:
        self._control.write(shard, tick, lambda error: on_delivery(not error))

    def serve(self) -> None:
        self._control.serve()

    def ends(self, places: Iterable[tuple[str, int]], visible: bool) -> Written:
        """The last offset of each. A leader that has moved, or of a topic just made, is found."""
        asked, until_s = tuple(places), time.monotonic() + _ASK_TIMEOUT_S
        while True:
            try:
                return self._ends(asked, visible)
            except KafkaException as problem:
                if not has_moved(problem) or time.monotonic() >= until_s:
                    raise
                time.sleep(_LEADER_S)
                self._admin.forget(topic for topic, _ in asked)

    def _ends(self, places: Iterable[tuple[str, int]], visible: bool) -> Written:
        ends = every_offset(self._admin, places, _ASK_TIMEOUT_S, is_committed=visible)
        return {place: end - 1 for place, end in ends.items()}
