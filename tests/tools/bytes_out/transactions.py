"""Transactions that the job's coordinator decides, and messages of shards."""

from typing import Any, Final

import msgspec

from coordlib import limits
from coordlib.core.wire import api
from tests.tools import producers
from tests.tools.bytes_out.measure import ALL_ROWS, NAME, PRODUCTION, TOPIC, Made, case
from tests.tools.bytes_out.offsets import some_rows
from tests.tools.driving import Conversation

PLACES: Final = (
    api.TopicsOfCluster(
        cluster=NAME, topic=TOPIC, partitions=tuple(range(limits.TXN_PARTITIONS_MAX))
    ),
)


def _begun(*requests: Any) -> Conversation:
    """A producer (0, 0) whose transaction has come so far."""
    talk = Conversation(PRODUCTION)
    talk.send(producers.init(group=NAME))
    for each in requests:
        talk.send(msgspec.structs.replace(each, group=NAME))
    talk.tick()
    return talk


def _of(request: Any) -> Any:
    return msgspec.structs.replace(request, group=NAME)


@case("InitProducerId", "behind a transaction of many partitions")
def _() -> Made:
    talk = _begun(producers.add(0, 0, partitions=PLACES), producers.end(0, 0))
    return talk, [producers.init(group=NAME, id="again", client="z")]


@case("AddPartitionsToTxn", "many partitions of one topic")
def _() -> Made:
    return _begun(), [_of(producers.add(0, 0, partitions=PLACES))]


@case("AddOffsetsToTxn", "a group with a long name")
def _() -> Made:
    return _begun(), [_of(producers.add_group(0, 0, NAME))]


@case("TxnOffsetCommit", "rows with short names")
def _() -> Made:
    talk = _begun(producers.add_group(0, 0, NAME))
    return talk, [_of(producers.offsets(0, 0, of_group=NAME, offsets=some_rows()))]


@case("EndTxn", "of many groups and partitions")
def _() -> Made:
    groups = (producers.add_group(0, 0, f"{n:03}{NAME[:246]}") for n in range(100))
    talk = _begun(producers.add(0, 0, partitions=PLACES), *groups)
    return talk, [_of(producers.end(0, 0))]


@case("TxnMarkersWritten", "of many partitions")
def _() -> Made:
    talk = _begun(producers.add(0, 0, partitions=PLACES), producers.end(0, 0))
    return talk, [_of(producers.written(0, 0, partitions=PLACES))]


@case("AbortTransaction", "of many groups and partitions")
def _() -> Made:
    groups = (producers.add_group(0, 0, f"{n:03}{NAME[:246]}") for n in range(100))
    talk = _begun(producers.add(0, 0, partitions=PLACES), *groups)
    return talk, [_of(producers.abort())]


@case("DescribeTransaction", "of many partitions")
def _() -> Made:
    talk = _begun(producers.add(0, 0, partitions=PLACES))
    return talk, [_of(producers.describe())]


def _messages(talk: Conversation) -> list[api.FromShard]:
    return [
        api.FromShard(v=1, source=0, seq=number, body=msgspec.Raw(body))
        for number, body in sorted(talk.outbox().items())
        if number > talk.shard.channels.heard.get(0, 0)
    ]


@case("FromShard: TxnOffsets", "rows with short names")
def _() -> Made:
    talk = _begun(
        producers.add_group(0, 0, NAME), producers.offsets(0, 0, of_group=NAME, offsets=some_rows())
    )
    return talk, _messages(talk)


@case("FromShard: TxnMarker", "a commit of many rows", times=ALL_ROWS)
def _() -> Made:
    talk = _begun(
        producers.add_group(0, 0, NAME), producers.offsets(0, 0, of_group=NAME, offsets=some_rows())
    )
    talk.send_all(*_messages(talk))
    talk.send(_of(producers.end(0, 0, accepted=1)))
    talk.tick()
    return talk, _messages(talk)


@case("Tick", "that ends what waited for messages")
def _() -> Made:
    talk = _begun(producers.add_group(0, 0, NAME), producers.end(0, 0))
    talk.send_all(*_messages(talk))
    heard = talk.shard.channels.heard
    return talk, [api.Tick(v=1, published=talk.next_offset - 1, heard=heard)]
