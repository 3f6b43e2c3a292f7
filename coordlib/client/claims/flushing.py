"""Which signs of life each flush waits for: the log is to have them all."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from coordlib.client.claims.claim import Claim
from coordlib.client.kit.signals import TopicPartition

#: A claim by its place and epoch.
_Key = tuple[TopicPartition, int]


@dataclass(slots=True)
class _Flush:
    """One that is not answered yet."""

    signs: set[int]
    #: Claims whose sign was not written: the next one carries the same position, or a later one.
    unsigned: set[_Key] = field(default_factory=set)


class Flushes:
    """The flushes of one consumer, by their tickets."""

    def __init__(self) -> None:
        self._open: Final[dict[int, _Flush]] = {}

    def begin(self, ticket: int, signs: Iterable[int]) -> None:
        """It waits for these, which are under way; there is at least one."""
        self._open[ticket] = _Flush(set(signs))

    def signed(self, claim: Claim, sign: int) -> None:
        """A sign of this claim is under way."""
        for each in self._open.values():
            if _key(claim) in each.unsigned:
                each.unsigned.discard(_key(claim))
                each.signs.add(sign)

    def not_written(self, claim: Claim, sign: int) -> None:
        """The producer has given up a sign of this claim."""
        for each in self._open.values():
            if sign in each.signs:
                each.signs.discard(sign)
                each.unsigned.add(_key(claim))

    def acknowledged(self, sign: int) -> list[int]:
        """The log has a sign: the tickets of flushes that wait for nothing more."""
        for each in self._open.values():
            each.signs.discard(sign)
        done = [ticket for ticket, each in self._open.items() if not (each.signs or each.unsigned)]
        for ticket in done:
            del self._open[ticket]
        return done

    def forget(self, ticket: int) -> None:
        """Nobody waits for it any more."""
        self._open.pop(ticket, None)


def _key(claim: Claim) -> _Key:
    return claim.place, claim.epoch
