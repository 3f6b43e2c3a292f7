"""What a state machine wants written: Marshal's messages, of our version; and commits to Kafka."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from coordlib.client.claims import signals as sg
from coordlib.client.claims.transport import Transport
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire import marshal
from coordlib.core.wire.marshal import AnyMessage
from coordlib.errors import CannotReach

_log = logging.getLogger("coordlib.client")

_MADE: Final[Mapping[sg.Kind, Callable[..., AnyMessage]]] = {
    sg.Kind.ATTEMPT: marshal.ClaimingPartition,
    sg.Kind.SIGN: marshal.Heartbeat,
    sg.Kind.RELEASE: marshal.ReleasingPartition,
    sg.Kind.PROPOSAL: marshal.ClaimingMessages,
}


def made_of(write: sg.Write, instance: str, client: str, group: str) -> Callable[[int], AnyMessage]:
    """Makes the message from the time of day in seconds."""
    epoch = marshal.BARE if write.epoch is None else write.epoch
    names = (marshal.instance_of(instance, epoch, write.topic_id), client, group, *write.place)
    tail = () if write.kind is sg.Kind.ATTEMPT else (write.position,)

    def made(time_s: int) -> AnyMessage:
        return _MADE[write.kind](marshal.OUR_VERSION, time_s, *names, *tail)

    return made


def commit(transport: Transport, group: str, positions: Mapping[TopicPartition, int]) -> bool:
    """Commit to Kafka's group; whether it has taken them all. May block; raises NotAllowed."""
    try:
        transport.commit(group, positions, is_awaited=True)
    except CannotReach as problem:
        _log.warning("group %s: Kafka's group has no commit: %s", group, problem.what)
        return False
    return True
