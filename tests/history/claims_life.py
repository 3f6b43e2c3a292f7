"""The claims of a group, as the real core tells them, in records of the topics of claims."""

from typing import Final

from coordlib.core.claims.fold import Coordination
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire import claims as m
from coordlib.job.pipelines import claims
from tests.history.rows import START_MS, Log

TOPIC: Final = "__marshal.6s"
PLANE: Final = claims("coord", TOPIC)
SETTINGS: Final = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=0,
    incarnation="yKq7iplq",
    families={
        "claims": Coordination(topic=TOPIC, topic_id="yKq7iplqS0-Bb6rDYYC8tQ"),
    },
)
GROUP: Final = "payments"  # as that of a consumer group


class ClaimsLife:
    """Messages to one coordination partition; each batch is folded and written as the job does."""

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or Log()
        self.records: list[InputRecord] = []
        self.blob: bytes | None = None
        self._folded = 0

    def send(self, seconds: float, message: m.AnyMessage | bytes) -> int:
        """Append it; returns its offset."""
        value = message if isinstance(message, bytes) else m.encode(message)
        offset = len(self.records)
        self.records.append(InputRecord("m", offset, START_MS + round(seconds * 1000), value))
        return offset

    def claim(self, seconds: float, client: str, partition: int, process: str) -> int:
        time_s = START_MS // 1000 + int(seconds)
        message = m.ClaimingPartition(2, time_s, process, client, GROUP, "orders", partition)
        return self.send(seconds, message)

    def beat(
        self, seconds: float, client: str, partition: int, instance: str, position: int
    ) -> int:
        time_s = START_MS // 1000 + int(seconds)
        return self.send(
            seconds,
            m.Heartbeat(2, time_s, instance, client, GROUP, "orders", partition, position),
        )

    def release(
        self, seconds: float, client: str, partition: int, instance: str, position: int
    ) -> int:
        time_s = START_MS // 1000 + int(seconds)
        return self.send(
            seconds,
            m.ReleasingPartition(2, time_s, instance, client, GROUP, "orders", partition, position),
        )

    def lose(self, count: int) -> None:
        """Retention deletes the next records before they are read."""
        self.records += [InputRecord("m", -1, 0, None)] * count
        self._folded = len(self.records)

    def end_batch(self, seconds: float) -> None:
        """Fold what is new, and write its outputs."""
        done = PLANE.fold(self.blob, self.records[self._folded :], SETTINGS)
        self.blob, self._folded = done.blob, len(self.records)
        for output in done.outputs:
            topic = f"claims.{output.topic}"
            self.log.put(topic, output.key, output.value, seconds, output.partition)


def a_life_of_claims(log: Log | None = None) -> ClaimsLife:
    """Two partitions: one is released and taken over, the other's owner dies; a zombie and foreign
    bytes are refused."""
    life = ClaimsLife(log)
    first = life.claim(0, "worker-1", 0, "0a1b2c3d")
    second = life.claim(0.1, "worker-1", 1, "0a1b2c3d")
    for seconds in (2, 4, 6):
        life.beat(seconds, "worker-1", 0, f"0a1b2c3d-{first}", 10 * seconds)
        life.beat(seconds, "worker-1", 1, f"0a1b2c3d-{second}", 7 * seconds)
    life.end_batch(6)
    life.release(7, "worker-1", 0, f"0a1b2c3d-{first}", 77)
    third = life.claim(7.5, "worker-2", 0, "99999999")
    for seconds in (9, 11, 13, 15, 17, 19):
        life.beat(seconds, "worker-2", 0, f"99999999-{third}", 70 + seconds)
    fourth = life.claim(19.5, "worker-2", 1, "99999999")
    life.beat(20, "worker-1", 1, f"0a1b2c3d-{second}", 50)
    life.beat(20.5, "worker-2", 1, f"99999999-{fourth}", 42)
    life.send(21, b"banana")
    life.end_batch(21)
    sample = {"topic": "orders", "log_start": 0, "log_end": 100}
    life.log.lag(
        *(22, sample | {"partition": 0, "committed": 89, "lag": 11, "lag_seconds": 1.5}),
        sample | {"partition": 1, "committed": 42, "lag": 58, "lag_seconds": 9.0},
        group=GROUP,
        kind="claims",
        space="claims",
        below="claims.lag",
    )
    return life
