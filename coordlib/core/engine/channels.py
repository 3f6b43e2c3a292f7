"""Channels: messages from each shard to each shard, in order, each applied exactly once.  # INV-95

A step changes its own entity only. What it wants of an entity of another shard, or of another space
of its own, is a message. The sending shard gives it the next number of the channel, and the sink
writes it to `coord.outbox` in the batch's transaction: nobody acts on a message that another run of
the batch might not send. After the commit the driver feeds it into the log of the other shard, as a
signed control record (`FromShard`). It may do so twice, or late: the other shard judges the number
that follows the newest that it has judged, and no other. When that batch is committed, a tick tells
the sender (`Tick.heard`), which withdraws the message from the outbox.

Channels belong to no protocol. A kind names the messages that it judges (`Kind.MESSAGES`), a step
sends one (`Step.send`), and a family says which entities waited until one was judged
(`Family.heard`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import OUTBOX, BrokenInvariant
from coordlib.core.wire import codec
from coordlib.core.wire.control import HeardValue, SentValue

SENT: Final = "sent"
HEARD: Final = "heard"

_decode_key: Final = msgspec.json.Decoder(tuple[str | int, ...]).decode
_decode_sent: Final = msgspec.json.Decoder(SentValue).decode
_decode_heard: Final = msgspec.json.Decoder(HeardValue).decode


class StoredChannels(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The channels of a shard that were ever used, in its blob."""

    #: Shard -> number of the newest message to it, and of the newest known to be judged.
    sent: dict[int, tuple[int, int]] = {}
    #: Shard -> number of its newest message that was judged here.
    heard: dict[int, int] = {}


class Channels:
    """The channels of one shard, to and from all shards. Owned by one fold; never shared."""

    __slots__ = ("_changed", "_heard", "_sent")

    def __init__(self, stored: StoredChannels | None = None) -> None:
        stored = stored or StoredChannels()
        self._sent, self._heard = dict(stored.sent), dict(stored.heard)
        #: What changed in this batch: the first part of a record's key, and the shard.
        self._changed: set[tuple[str, int]] = set()

    @property
    def heard(self) -> dict[int, int]:
        """Shard -> number of its newest message that was judged here."""
        return dict(sorted(self._heard.items()))

    def sent_to(self, shard: int) -> int:
        """Number of the newest message to a shard; 0: there was none."""
        return self._sent.get(shard, (0, 0))[0]

    def heard_by(self, shard: int) -> int:
        """Number of the newest message that a shard is known to have judged; 0: none."""
        return self._sent.get(shard, (0, 0))[1]

    def unheard_by(self, shard: int) -> int:
        """How many messages to a shard are not known to be judged."""
        sent, heard = self._sent.get(shard, (0, 0))
        return sent - heard

    # -- what a batch changes --------------------------------------------------------------

    def send(self, messages: Iterable[fx.ToShard]) -> None:
        """The messages of a step that went through, in order.

        Raises BrokenInvariant: a number is not the next one.
        """
        for each in messages:
            sent, heard = self._sent.get(each.shard, (0, 0))
            if each.number != sent + 1:
                raise BrokenInvariant(f"message {each.number} to {each.shard} behind {sent}")
            self._sent[each.shard] = each.number, heard
            self._changed.add((SENT, each.shard))

    def gap_before(self, source: int, number: int) -> int:
        """How many messages are missing before this one; below 0: it was judged before."""
        return number - self._heard.get(source, 0) - 1

    def hear(self, source: int, number: int) -> None:
        """The next message of a shard is being judged."""
        self._heard[source] = number
        self._changed.add((HEARD, source))

    def confirm(self, shard: int, number: int) -> range:
        """A shard has judged all messages up to this one: those of which that is news.

        A number beyond the newest that was sent says no more than that one.
        """
        sent, known = self._sent.get(shard, (0, 0))
        number = min(number, sent)
        if number <= known:
            return range(0)
        self._sent[shard] = sent, number
        self._changed.add((SENT, shard))
        return range(known + 1, number + 1)

    # -- bytes -----------------------------------------------------------------------------

    def saved(self) -> list[fx.Save]:
        """The records of the channels that changed in this batch."""
        return [
            fx.Save(OUTBOX, codec.encode(key), codec.encode(self._value(*key)))
            for key in sorted(self._changed)
        ]

    def _value(self, what: str, shard: int) -> Any:
        if what == HEARD:
            return HeardValue(heard=self._heard[shard])
        sent, heard = self._sent[shard]
        return SentValue(sent=sent, heard=heard)

    def stored(self) -> StoredChannels | None:
        """For the shard's blob; None: no channel was ever used."""
        if not (self._sent or self._heard):
            return None
        return StoredChannels(dict(sorted(self._sent.items())), self.heard)


def restored(outbox: Mapping[bytes, bytes]) -> Channels:
    """From the shard's partition of `coord.outbox`. Raises msgspec.MsgspecError."""
    sent: dict[int, tuple[int, int]] = {}
    heard: dict[int, int] = {}
    for key, value in outbox.items():
        match _decode_key(key):
            case ("sent", int(shard)):
                found = _decode_sent(value)
                sent[shard] = found.sent, found.heard
            case ("heard", int(shard)):
                heard[shard] = _decode_heard(value).heard
            case (int(), int(), int()):
                pass  # a message that waits: the driver feeds it
            case other:
                raise msgspec.ValidationError(f"No key of coord.{OUTBOX}: {other!r}")
    return Channels(StoredChannels(sent, heard))
