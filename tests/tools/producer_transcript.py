"""The words of transcripts that transactional producers say (`tests.tools.transcript`).

Their transactional id is `copier`, unless id-of= names another. A client knows its producer from
the newest answer that gave it one; as=PRODUCER-EPOCH says otherwise.

    P begins          InitProducerId of a new process; timeout=
    P begins-again    the same under the producer that it knows
    P writes T/P…     AddPartitionsToTxn, of cluster c
    P adds G          AddOffsetsToTxn
    P offsets T/P=N…  TxnOffsetCommit; of=G (default g), number= (default: as many as were sent on),
                      member= generation= instance=
    P commits, P aborts   EndTxn; accepted= (default: as many as were sent on)
    P wrote T/P…      TxnMarkersWritten of the transaction that ended
    ops cuts          AbortTransaction
    ops looks         DescribeTransaction

And the driver:
    feed              it writes the messages that wait into the logs of their shards
    hear              it tells their senders that they were judged

And what takes thousands of transactions:
    epoch N           the id is at this epoch
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from coordlib.core.engine.effects import RESPONSES
from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools import producers as p
from tests.tools.driving import Conversation

Words = list[str]
_NUMBERS: Final = frozenset({"timeout", "generation", "number", "accepted", "reply"})
_NAMES: Final = {"timeout": "timeout_ms", "of": "of_group", "id-of": "group"}
_GIVE_A_PRODUCER: Final = ("InitProducerId", "EndTxn")


def come_to(talk: Conversation, epoch: int) -> list[str]:
    """Let `copier` be at this epoch."""
    row = talk.shard.row(p.ID, TRANSACTION)
    talk.shard._settle(row, replace(row.value, epoch=epoch), [])
    return []


class ProducerWords:
    """Requests by the words of a transcript, as those who say them know their producer."""

    def __init__(self, talk: Callable[[], Conversation]) -> None:
        self._talk = talk

    def request(self, client: str, verb: str, words: Words) -> Any:
        """The request of one command."""
        plain = [word for word in words if "=" not in word]
        fields: dict[str, Any] = {"client": client}
        rows: dict[str, str] = {}
        for word in words:
            name, sign, value = word.partition("=")
            if sign and "/" in name:
                rows[name] = value
            elif sign:
                fields[_NAMES.get(name, name)] = int(value) if name in _NUMBERS else value
        return VERBS[verb](self, plain, rows, fields)

    def _value(self, fields: dict[str, Any]) -> Transaction | None:
        row = self._talk().shard.rows.get((TRANSACTION, fields.get("group", p.ID)))
        return row.value if row else None

    def _producer(self, fields: dict[str, Any]) -> tuple[int, int]:
        """That which the client names, or the newest that it was given; it may not have heard."""
        if "as" in fields:
            producer_id, _, epoch = fields.pop("as").partition("-")
            return int(producer_id), int(epoch)
        found = (0, 0)
        for output in self._talk().outputs:
            told = json.loads(output.value or b"{}") if output.topic == RESPONSES else {}
            is_its_own = told.get("client") == fields["client"] and told["error"] == "NONE"
            if is_its_own and told["type"] in _GIVE_A_PRODUCER:
                found = told["producer_id"], told["epoch"]
        return found

    def begins(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.init(**fields)

    def begins_again(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.init(*self._producer(fields), **fields)

    def writes(self, plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.add(*self._producer(fields), partitions=_partitions(plain), **fields)

    def adds(self, plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.add_group(*self._producer(fields), plain[0], **fields)

    def offsets(self, _plain: Words, rows: dict[str, str], fields: dict[str, Any]) -> Any:
        offsets = tuple(
            api.CommittedOffset(topic, int(partition), int(offset))
            for place, offset in rows.items()
            for topic, _, partition in [place.partition("/")]
        )
        value, producer = self._value(fields), self._producer(fields)
        number = fields.pop("number", value.commits if value else 0)
        return p.offsets(*producer, number, offsets=offsets, **fields)

    def commits(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        value, producer = self._value(fields), self._producer(fields)
        fields.setdefault("accepted", value.commits if value else 0)
        return p.end(*producer, "commit", **fields)

    def aborts(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.end(*self._producer(fields), "abort", **fields)

    def wrote(self, plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        value = self._value(fields)
        if "as" not in fields and value is not None and value.ended is not None:
            fields["as"] = f"{value.ended.producer_id}-{value.ended.epoch}"
        return p.written(*self._producer(fields), partitions=_partitions(plain), **fields)

    def cuts(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.abort(**fields)

    def looks(self, _plain: Words, _rows: Any, fields: dict[str, Any]) -> Any:
        return p.describe(**fields)


def _partitions(plain: Iterable[str]) -> tuple[api.TopicsOfCluster, ...]:
    topics: dict[str, list[int]] = {}
    for topic, _, partition in (each.partition("/") for each in plain):
        topics.setdefault(topic, []).append(int(partition))
    return tuple(
        api.TopicsOfCluster(cluster="c", topic=topic, partitions=tuple(some))
        for topic, some in topics.items()
    )


#: Each word with what it makes.
VERBS: Final[dict[str, Callable[..., Any]]] = {
    "begins": ProducerWords.begins,
    "begins-again": ProducerWords.begins_again,
    "writes": ProducerWords.writes,
    "adds": ProducerWords.adds,
    "offsets": ProducerWords.offsets,
    "commits": ProducerWords.commits,
    "aborts": ProducerWords.aborts,
    "wrote": ProducerWords.wrote,
    "cuts": ProducerWords.cuts,
    "looks": ProducerWords.looks,
}
