"""Reads coordination partitions to their ends, once, for those who only look."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from coordlib.client.claims.beginning import Beginnings
from coordlib.client.claims.kafka import find_coordination
from coordlib.client.claims.log_reader import LogReader, LogRecord
from coordlib.client.claims.transport import Coordination
from coordlib.client.claims.view import LogView
from coordlib.client.kit.clock import boottime_ms
from coordlib.core.claims.pages import Snapshot
from coordlib.core.claims.slot import Judgement
from coordlib.core.claims.world import World
from coordlib.errors import CannotReach

_SILENCE_S: Final = 20.0
#: Told of every record that is read: its coordination partition, the record, what became of it.
OnRecord = Callable[[int, LogRecord, Judgement], None]


class Survey:
    """The coordination topic as it stands.

    Args:
        options: confluent-kafka's, with `bootstrap.servers`.
        prefix: of the engine's topics, whose snapshots make it quick.

    Raises SetupError: the topic cannot be used. CannotReach: no broker answers.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, prefix: str) -> None:
        self._reader = LogReader(options, "coord-claims", topic)
        self.place: Coordination = find_coordination(self._reader.admin, topic, options)
        self._beginnings = Beginnings(options, self.place, prefix)

    def read(
        self,
        partitions: Collection[int] | None = None,
        *,
        is_whole: bool = False,
        newest_max: int | None = None,
        on_record: OnRecord = lambda *_: None,
    ) -> dict[int, LogView]:
        """What the log says, up to the ends that were seen first.

        Args:
            partitions: of the coordination topic; None: all.
            is_whole: from where each log begins, without a snapshot.
            newest_max: with `is_whole`: judge no more than so many records of each.
        """
        numbers = range(self.place.partitions) if partitions is None else sorted(partitions)
        views: dict[int, LogView] = {}
        self._reader.know()
        for number in numbers:
            views[number] = self._begin(number, is_whole, newest_max)
            self._reader.add(number, views[number].position)
        try:
            self._read_to_ends(views, on_record)
        finally:
            for number in views:
                self._reader.drop(number)
        return views

    def _read_to_ends(self, views: Mapping[int, LogView], on_record: OnRecord) -> None:
        missing, heard_s = set(views), time.monotonic()
        while missing:
            self._reader.ask(boottime_ms())
            for number, record in self._reader.read():
                on_record(number, record, views[number].judge(record, boottime_ms()))
                if number in missing:  # others go on for ever
                    heard_s = time.monotonic()
            for number, asked_ms in self._reader.ended():
                views[number].read_to_end(asked_ms)
                missing.discard(number)
            if time.monotonic() - heard_s > _SILENCE_S:
                raise CannotReach(
                    "The coordination topic is not read to its end.",
                    f"{self.place.topic}, partitions {sorted(missing)}",
                    "Check that its leaders are up, then try again.",
                )

    def snapshot(self, partition: int) -> Snapshot | None:
        """The engine's newest one of a coordination partition. Raises as `Beginnings.begin`."""
        return self._beginnings.snapshot(self._reader.admin, partition)

    def restored(self, snapshot: Snapshot, partition: int) -> World:
        """The world of a snapshot."""
        return self._beginnings.restored(snapshot, partition)

    def close(self) -> None:
        self._reader.close()

    def _begin(self, partition: int, is_whole: bool, newest_max: int | None) -> LogView:
        if not is_whole:
            return self._beginnings.begin(self._reader.admin, partition, boottime_ms())
        bounds = self._beginnings.bounds(self._reader.admin, partition)
        first = bounds.start
        if newest_max is not None:
            first = max(first, bounds.end - newest_max)
        world = World(self.place.topic, partition, self.place.partitions, is_late=first > 0)
        view = LogView(world, boottime_ms())
        view.position = first
        return view
