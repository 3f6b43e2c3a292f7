"""Thousands of transactional ids, some with pending offsets: what is written and heard. Pure.

An id asks for a producer id. Those with pending offsets then commit offsets of a group of their own
in a transaction, and leave it open for as long as the coordinator lets them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from coordlib.config import TransactionsConfig
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.tools.bench.crowd import Record

PARTITIONS: Final = 4


@dataclass(slots=True)
class Ids:
    """All ids; the first `pendings` of them have an open transaction."""

    ids: int
    pendings: int
    shards: int
    reply_partitions: int
    token: str
    #: Ids that have a producer id, and offsets that wait.
    made: int = 0
    pending: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def is_settled(self) -> bool:
        return (self.made, self.pending) == (self.ids, min(self.pendings, self.ids))

    def begin_all(self) -> Iterator[Record]:
        """Every id asks for a producer id."""
        for number in range(self.ids):
            yield self._record(
                api.InitProducerId(
                    v=1,
                    id=f"{number}-i",
                    client=self._client(number),
                    group=self._id(number),
                    reply=number % self.reply_partitions,
                    timeout_ms=TransactionsConfig().timeout_max_ms,
                )
            )

    def hear(self, message: api.AnyResponse) -> list[Record]:
        """What is to be written in reaction."""
        if not isinstance(message, api.InitProducerIdResponse | api.TxnOffsetCommitResponse):
            return []
        if not message.client.startswith(self._client("")):
            return []
        if message.error != "NONE":
            self.refused[message.error] += 1
            return []
        if isinstance(message, api.TxnOffsetCommitResponse):
            self.pending += 1
            return []
        self.made += 1
        number = int(message.id.partition("-")[0])
        return [self._commit(number, message)] if number < self.pendings else []

    def _commit(self, number: int, answer: api.InitProducerIdResponse) -> Record:
        assert isinstance(answer.producer_id, int)
        assert isinstance(answer.epoch, int)
        rows = (api.CommittedOffset("load", partition, 1) for partition in range(PARTITIONS))
        return self._record(
            api.TxnOffsetCommit(
                v=1,
                id=f"{number}-o",
                client=self._client(number),
                group=self._id(number),
                reply=number % self.reply_partitions,
                producer_id=answer.producer_id,
                epoch=answer.epoch,
                of_group=f"copied-{self.token}-{number}",
                number=0,
                offsets=tuple(rows),
            )
        )

    def _client(self, number: int | str) -> str:
        return f"copier-{self.token}-{number}"

    def _id(self, number: int) -> str:
        return f"id-{self.token}-{number}"

    def _record(self, request: api.Request) -> Record:
        name = request.entity[1]
        return Record(codec.encode(request), name.encode(), shard_of(name, self.shards))
