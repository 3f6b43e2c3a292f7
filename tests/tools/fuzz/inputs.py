"""What mutations start from: every request and answer, valid, and ConsumerProtocol bytes."""

import struct
from functools import cache

import msgspec

from coordlib.core.engine.effects import RESPONSES
from coordlib.core.wire import api, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.data_headers import Marker, Stamp, header_of
from tests.tools import clusters as c
from tests.tools import driving, producers
from tests.tools.broker_logs import Life
from tests.tools.claims import logs
from tests.tools.core import InputRecord
from tests.tools.random_logs import draw_log

_LOGS = 6
_LOG_LENGTH = 120
_LIVES = 3
_TOPICS = ("t", "orders", "a b", "\u00e9\u4e2d")


@cache
def requests() -> tuple[bytes, ...]:
    """What clients wrote in some random logs, and every request with all its fields."""
    drawn = {r.value for log, _ in map(_drawn, range(_LOGS)) for r in log if r.value is not None}
    return (*map(codec.encode, _full_requests()), *sorted(drawn), *of_brokers())


@cache
def of_brokers() -> tuple[bytes, ...]:
    """What brokers and operators wrote in some random lives, and each request with all fields."""
    drawn = {each.value for life in _lives() for each in life.talk.log if each.value is not None}
    return (*map(codec.encode, _full_broker_requests()), *sorted(drawn))


@cache
def responses() -> tuple[bytes, ...]:
    """What those logs were answered, notices and Progress among it."""
    said = {
        output.value
        for talk in (*(talk for _, talk in map(_drawn, range(_LOGS))), *(e.talk for e in _lives()))
        for output in talk.outputs
        if output.topic == RESPONSES and output.value is not None
    }
    return tuple(sorted(said))


@cache
def messages() -> tuple[bytes, ...]:
    """Of claims: all types, ours and Marshal's, odd numbers and names among them."""
    drawn = {each.value for seed in range(4) for each in logs.hostile(seed, 60)}
    odd = (b"Heartbeat/+1/-2/i/c/g/t/007/9223372036854775807", b"ReleaseGroup/0/1/i/c/g//0/9")
    return (*odd, *sorted(value for value in drawn if value))


@cache
def headers() -> tuple[bytes, ...]:
    """What a producer of ours writes beside its records, and its markers; all fields and few."""
    stamp = Stamp(i="AbCdEfGh", t="copier \u4e2d", p=2**53 - 1, e=32_766, s=2**40)
    without_id = Stamp(i="i", p=0, s=0)
    marker = Marker(i="AbCdEfGh", t="copier", p=0, e=0, r="commit", n=2**31)
    unknown = Marker(i="i", t="t", p=1, e=1, r="abort")
    return tuple(header_of(each)[1] for each in (stamp, without_id, marker, unknown))


@cache
def subscriptions() -> tuple[bytes, ...]:
    """Of every version, with and without what is optional."""
    owned: dict[str, tuple[int, ...]] = {"t": (0, 1), "orders": (2**31 - 1,)}
    return tuple(
        cp.encode_subscription(
            cp.Subscription(
                version=version,
                topics=topics,
                user_data=user_data,
                owned=owned if version >= 1 else {},
                generation=7 if version >= 2 else -1,
                rack=rack if version >= 3 else None,
            )
        )
        for version in range(cp.NEWEST_VERSION + 1)
        for topics in ((), _TOPICS)
        for user_data, rack in ((None, None), (b"\x00\x00\x00\x05", "r1"))
    )


@cache
def assignments() -> tuple[bytes, ...]:
    """Shares with some partitions, with many, and with none."""
    shares: tuple[dict[str, tuple[int, ...]], ...] = (
        {},
        {"t": (0,)},
        {topic: tuple(range(40)) for topic in _TOPICS},
    )
    values = [cp.Assignment(partitions=each, user_data=data) for each in shares for data in _DATA]
    return (b"", *map(cp.encode_assignment, values))


_DATA = (None, b"", struct.pack(">i", 3))


@cache
def _drawn(seed: int) -> tuple[list[InputRecord], driving.Conversation]:
    log, talk = draw_log(seed, _LOG_LENGTH, driving.SETTINGS, positions=True)
    talk.end_batch()
    return log, talk


@cache
def _lives() -> tuple[Life, ...]:
    lives = tuple(map(Life, range(_LIVES)))
    for life in lives:
        life.run(_LOG_LENGTH)
    return lives


def _full_broker_requests() -> tuple[api.AnyRequest, ...]:
    """Every field away from its default."""
    told = api.DeletedReplica(topic="t", topic_id=7, partition=0, error="KAFKA_STORAGE_ERROR")
    topics = (
        c.new_topic("t", 6, 3, min_isr=2, unclean=True),
        c.new_topic("u", assignment=[(1, 2), (2, 1)]),
    )
    rows = {("t", 0): (3, 9, ((1, 0), (2, 2**63 - 1))), ("\u00e9", 2**31 - 1): (0, 0, ())}
    return (
        c.register(
            2**31 - 1,
            endpoints=(api.Endpoint("in", "h\u00f6st", 65_535), api.Endpoint("out", "h", 1)),
            rack="r1",
            storage="disk",
            previous=7,
            version=4,
            reason="because",
            reply=0,
        ),
        c.beat(1, 0, 4, "Stopping", reason="because \u4e2d", reply=1),
        c.alter(1, 0, rows, recovered=True),
        c.lets_go("b1", "b1-t-0-0", 9),
        c.leaves("b1", "b1-t-0-0", reason="closed", remain=True),
        c.lives("b1", "b1-t-0-0"),
        c.deleted(1, 0, told, told),
        c.create(*topics, validate_only=True),
        c.about(api.CreatePartitions, topic="t", count=9, assignment={"8": (1, 2, 3)}),
        c.about(api.DeleteTopics, topics=("t", "\u00e9")),
        c.elect("unclean", ("t", 0), ("u", 1)),
        c.elect("preferred"),
        c.move(("t", 0), (1, 2, 3)),
        c.move(("t", 0), None),
        c.about(api.UnregisterBroker, broker=1),
        c.about(api.Metadata, topics=("t", "u")),
        c.about(api.DescribeGroup, space="cluster"),
        c.about(api.DeleteGroup, space="cluster"),
        c.about(api.ReleaseQuarantine, space="cluster"),
    )


def _full_requests() -> tuple[api.AnyRequest, ...]:
    leaver = api.Leaver("a-t-0-0", "i")
    row = api.CommittedOffset("t", 2**31 - 1, 2**63 - 1, 7, "where I was")
    places = (api.TopicPartitions("t", (0, 1, 2)), api.TopicPartitions("\u00e9", ()))
    return (
        driving.join(
            "a",
            member="a-t-0-0",
            generation=3,
            instance="i",
            reason="because \u4e2d",
            reply=0,
            protocol_type=cp.CONSUMER,
            protocols={"range": subscriptions()[0], "sticky": subscriptions()[-1]},
        ),
        driving.sync(
            "a",
            3,
            "a-t-0-0",
            instance="i",
            protocol_type=cp.CONSUMER,
            protocol="range",
            assignments={"a-t-0-0": assignments()[-1], "b": b""},
        ),
        driving.sync("a", 3, "a-t-0-0", error="UNKNOWN_SERVER_ERROR", message="why not \u4e2d"),
        driving.heartbeat("a", 3, "a-t-0-0", instance="i", reply=1),
        driving.leave("a", leaver, api.Leaver("b"), reason="closed", remain=True),
        driving.commit("a", 3, "a-t-0-0", instance="i", offsets=(row, row)),
        driving.fetch("a", topics=places, require_stable=True),
        driving.delete_offsets("a", ("t", 0), ("u", 1)),
        driving.describe("a"),
        driving.delete("a"),
        driving.find("a"),
        driving.release("a"),
        driving.pending_commit("a", 3, "a-t-0-0", instance="i", reply=1, offsets=(row, row)),
        driving.with_writes("a", 3, "a-t-0-0", table="s3://lake/orders", offsets=(row,)),
        driving.decide("a", "r0-42", "abort", member="a-t-0-0", generation=3, reason="\u4e2d"),
        driving.ended((3, 2**40), (5,)),
        producers.init(2**40, 32_766, reply=1),
        producers.init(group=None),
        producers.add(3, 5),
        producers.add_group(3, 5, "\u00e9"),
        producers.offsets(3, 5, 2, member="a-t-0-0", generation=3, offsets=(row,)),
        producers.end(3, 5, "abort"),
        producers.written(3, 5),
        producers.abort(reason="because \u4e2d"),
        producers.describe(),
        api.Tick(v=1, published=41),
        api.Tick(v=1, published=41, heard={0: 3, 1: 2**40}),
        api.FromShard(v=1, source=0, seq=1, body=msgspec.Raw(b'{"type":"Unknown","group":"g"}')),
        api.Tick(v=1, published=41, n=(3, 18), key="fc51cd8e6218a1a3", sig=b"signature"),
    )
