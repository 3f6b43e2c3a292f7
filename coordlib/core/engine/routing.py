"""Where an effect is written: topic, partition, key, value. Pure, so that tests can read it.

Topics are named without their prefix; the driver adds it. All records of a group go to the
partition of its shard, answers to the partition that the client reads.
"""

import msgspec

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.wire import codec
from coordlib.core.wire.responses import Progress

RESPONSES = "responses"
ASSIGNMENTS = "assignments"
GROUPS = "groups"
COMMITTED = "committed"
CLUSTERS = "clusters"
METADATA = "metadata"
TRANSACTIONS = "transactions"
OUTBOX = "outbox"
EVENTS = "events"
#: Of the claims' plane, which also has ASSIGNMENTS, COMMITTED and EVENTS.
SNAPSHOTS = "snapshots"
OUTPUT_TOPICS = (
    RESPONSES,
    ASSIGNMENTS,
    GROUPS,
    COMMITTED,
    CLUSTERS,
    METADATA,
    TRANSACTIONS,
    OUTBOX,
    EVENTS,
)


class Output(msgspec.Struct, frozen=True, array_like=True):
    """One Kafka record to be written; `value` None is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


class EffectTooLarge(AssertionError):
    """The core let an effect through that no output record can hold: a defect of its bounds."""


def route(effect: fx.Effect, shard: int) -> Output:
    """The record that carries out this effect. Raises EffectTooLarge (a broken invariant)."""
    output = _route(effect, shard)
    if output.value is not None and len(output.value) > limits.OUTPUT_BYTES_MAX - limits.KIB:
        raise EffectTooLarge(f"{output.topic} record of {len(output.value)} bytes")
    return output


def _route(effect: fx.Effect, shard: int) -> Output:
    match effect:
        case fx.Respond(reply, response):
            return Output(RESPONSES, reply, response.group.encode(), codec.encode(response))
        case fx.Notify(reply, notification):
            key = b"" if isinstance(notification, Progress) else notification.group.encode()
            return Output(RESPONSES, reply, key, codec.encode(notification))
        case fx.Event(value):
            return Output(EVENTS, shard, value.group.encode(), codec.encode(value))
        case fx.Publish(topic, key, published):
            return Output(topic, shard, key, _optional(published))
        case fx.Put(topic=topic, key=key, value=entry):
            return Output(topic, shard, key, _optional(entry))
        case fx.Save(topic, key, saved):
            return Output(topic, shard, key, saved)
        case fx.ToShard(to, number, message):
            return Output(OUTBOX, shard, codec.encode((shard, to, number)), _optional(message))
        case fx.Own(group, topic, partition, owner):
            key = codec.encode((group, topic, partition))
            return Output(ASSIGNMENTS, shard, key, _optional(owner))
        case fx.SavePage(page, saved):
            return Output(SNAPSHOTS, shard, str(page).encode(), saved)
        case _:
            raise AssertionError(f"{type(effect).__name__} has no route")


def _optional(value: msgspec.Struct | None) -> bytes | None:
    return None if value is None else codec.encode(value)
