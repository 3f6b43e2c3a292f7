"""From what a state machine wants written to Marshal's messages, of our version."""

from collections.abc import Callable, Mapping
from typing import Final

from coordlib.client.claims import signals as sg
from coordlib.records import marshal
from coordlib.records.marshal import AnyMessage

_MADE: Final[Mapping[sg.Kind, Callable[..., AnyMessage]]] = {
    sg.Kind.ATTEMPT: marshal.ClaimingPartition,
    sg.Kind.SIGN: marshal.Heartbeat,
    sg.Kind.RELEASE: marshal.ReleasingPartition,
    sg.Kind.PROPOSAL: marshal.ClaimingMessages,
}


def made_of(write: sg.Write, instance: str, client: str, group: str) -> Callable[[int], AnyMessage]:
    """Makes the message from the time of day in seconds."""
    epoch = marshal.BARE if write.epoch is None else write.epoch
    names = (marshal.instance_of(instance, epoch), client, group, *write.place)
    tail = () if write.kind is sg.Kind.ATTEMPT else (write.position,)

    def made(time_s: int) -> AnyMessage:
        return _MADE[write.kind](marshal.OUR_VERSION, time_s, *names, *tail)

    return made
