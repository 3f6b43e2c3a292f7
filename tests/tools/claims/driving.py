"""One coordination partition, one record at a time, as the engine folds it.

talk = Talk()
talk.send(talk.text("claim", "a", "t/0"))
"""

import hashlib
from typing import Any, Final

from coordlib.core.claims.fold import Claims, Coordination
from coordlib.core.claims.slots import Judgement
from coordlib.core.claims.world import UNTRUSTED_TIME_MS
from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.wire import claims

START_MS: Final = 1_500_000_000_000
TOPIC: Final = "__marshal"
TOPIC_ID: Final = "incarnation-of-the-topic"


def settings(topic: str = TOPIC, partition: int = 0, partitions: int = 1) -> ShardSettings:
    """Of a coordination partition, with all checks."""
    return ShardSettings(
        shard=partition,
        shards=partitions,
        reply_partitions=1,
        incarnation=TOPIC_ID[:8],
        families={"claims": Coordination(topic=topic, topic_id=TOPIC_ID)},
        checks_invariants=True,
    )


def process_of(client: str) -> str:
    """The eight digits that a client of ours has drawn."""
    return hashlib.md5(client.encode(), usedforsecurity=False).hexdigest()[:8]


def record(offset: int, now_ms: int, value: bytes | claims.AnyMessage | None) -> InputRecord:
    """A record as the broker stamps it."""
    text = value if isinstance(value, bytes | None) else claims.encode(value)
    return InputRecord("m", offset, now_ms, text)


class Talk:
    """The engine, its log, and what it has said."""

    def __init__(self, how: ShardSettings | None = None, begins: int = 0) -> None:
        self.settings = how or settings()
        self.claims = Claims(None, self.settings)
        self.now_ms = START_MS
        self.next_offset = begins
        self.log: list[InputRecord] = []
        self.outputs: list[Output] = []
        self._seen = 0

    def send(
        self, value: bytes | claims.AnyMessage | None, after_ms: int = 0, is_stamped: bool = True
    ) -> Judgement:
        """Append a record and judge it."""
        self.now_ms += after_ms
        time_ms = self.now_ms if is_stamped else UNTRUSTED_TIME_MS
        self.log.append(record(self.next_offset, time_ms, value))
        self.next_offset += 1
        judgement = self.claims.judge(self.log[-1])
        assert judgement is not None
        return judgement

    def news(self) -> list[Output]:
        """What was said since the last time somebody asked."""
        new = self.claims.outputs[self._seen :]
        self._seen = len(self.claims.outputs)
        self.outputs += new
        return new

    def end_batch(self) -> list[Output]:
        """End the batch, and begin the next from its blob."""
        self.claims.close()
        new = self.news()
        self.load(self.claims.encode())
        return new

    def load(self, blob: bytes | None) -> None:
        """Go on from another blob."""
        self.claims, self._seen = Claims(blob, self.settings), 0


def message(kind: str, now_ms: int, fields: dict[str, Any]) -> claims.AnyMessage:
    """A message of one of the five types; `fields`: what is not usual."""
    what = getattr(claims, kind)
    extra = {"expire_s": 0} if kind == "ReleaseGroup" else {"offset": 0}
    usual = {
        "version": claims.OUR_VERSION,
        "time_s": now_ms // 1_000,
        "instance": "0123abcd",
        "client": "a",
        "group": "g",
        "topic": "" if kind == "ReleaseGroup" else "t",
        "partition": 0,
        **({} if kind == "ClaimingPartition" else extra),
    }
    made: claims.AnyMessage = what(**{**usual, **fields})
    return made
