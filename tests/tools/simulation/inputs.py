"""The inputs of the simulated job, as a driver looks at them, and as Spark's source does."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException

from coordlib.core.engine.state import InputRecord
from coordlib.core.wire.stored import JudgedRecord
from coordlib.errors import CannotReach, StartRefused
from coordlib.job.batch import judged_record
from coordlib.job.judged_log import FILLER
from coordlib.kafka.logs import Bounds, Place
from tests.tools.simulation.cluster import Cluster, Record


class SimulatedInputs:
    """`Inputs` over the simulated cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def epochs(self, places: Iterable[Place]) -> dict[Place, int | None]:
        self._require_up()
        return {place: self._cluster.partitions[place].cuts for place in places}

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        self._require_up()
        logs = {place: self._cluster.partitions[place] for place in places}
        return {place: Bounds(log.start, log.end) for place, log in logs.items()}

    def judged(self, offsets: Mapping[Place, int]) -> dict[Place, JudgedRecord | None]:
        self._require_up()
        return {place: self._judged(place, offset) for place, offset in offsets.items()}

    def fill(self, place: Place, end: int) -> None:
        self._require_up()
        while self._cluster.partitions[place].end < end:
            self._cluster.append(place, None, FILLER)

    def wait(self) -> None:
        """What these brokers answer is so."""

    def _judged(self, place: Place, offset: int) -> JudgedRecord | None:
        records = self._cluster.partitions[place].records
        at = bisect_left(records, offset, key=_offset)
        if at == len(records) or records[at].offset != offset or records[at].is_marker:
            return None
        found = records[at]
        return judged_record(InputRecord("", offset, found.timestamp_ms, found.value))

    def _require_up(self) -> None:
        try:
            self._cluster.require_up()
        except KafkaException as problem:
            raise CannotReach("The broker is away.") from problem


def require_there(cluster: Cluster, place: tuple[str, int], first: int, end: int) -> None:
    """As Spark's source looks at a range. Raises StartRefused."""
    log = cluster.partitions[place]
    if first < end and (first < log.start or end > log.end):
        raise StartRefused("KAFKA_DATA_LOSS", str(place))


def _offset(record: Record) -> int:
    return record.offset
