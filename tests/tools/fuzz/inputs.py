"""What mutations start from: every request and answer, valid, and ConsumerProtocol bytes."""

import struct
from functools import cache

from coordlib.effects.routing import RESPONSES
from coordlib.records import codec
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from tests.tools import driving
from tests.tools.claims import logs
from tests.tools.core import InputRecord
from tests.tools.random_logs import draw_log

_LOGS = 6
_LOG_LENGTH = 120
_TOPICS = ("t", "orders", "a b", "\u00e9\u4e2d")


@cache
def requests() -> tuple[bytes, ...]:
    """What clients wrote in some random logs, and every request with all its fields."""
    drawn = {r.value for log, _ in map(_drawn, range(_LOGS)) for r in log if r.value is not None}
    return (*map(codec.encode, _full_requests()), *sorted(drawn))


@cache
def responses() -> tuple[bytes, ...]:
    """What those logs were answered, notices and Progress among it."""
    said = {
        output.value
        for _, talk in map(_drawn, range(_LOGS))
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


def _full_requests() -> tuple[rq.AnyRequest, ...]:
    leaver = rq.Leaver("a-t-0-0", "i")
    row = rq.CommittedOffset("t", 2**31 - 1, 2**63 - 1, 7, "where I was")
    places = (rq.TopicPartitions("t", (0, 1, 2)), rq.TopicPartitions("\u00e9", ()))
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
        driving.leave("a", leaver, rq.Leaver("b"), reason="closed", remain=True),
        driving.commit("a", 3, "a-t-0-0", instance="i", offsets=(row, row)),
        driving.fetch("a", topics=places, require_stable=True),
        driving.delete_offsets("a", ("t", 0), ("u", 1)),
        driving.describe("a"),
        driving.delete("a"),
        driving.find("a"),
        driving.release("a"),
        rq.Tick(v=1, published=41),
        rq.Tick(v=1, published=41, n=(3, 18), key="fc51cd8e6218a1a3", sig=b"signature"),
    )
