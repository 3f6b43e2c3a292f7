"""What a batch has to say so far, in order."""

from collections.abc import Iterable

from coordlib.coordinators.transition import At, event_of
from coordlib.effects import effect as fx
from coordlib.effects.routing import Output, route


class Outbox:
    """Effects as outputs. Owned by one shard during one batch."""

    def __init__(self, shard: int) -> None:
        self.outputs: list[Output] = []
        self._shard = shard
        #: How many lines of history the record that is being judged has left.
        self._ordinal = 0

    def begin_record(self) -> None:
        """Lines of history count anew: their ids name the record, and which line of it."""
        self._ordinal = 0

    def put(self, effects: Iterable[fx.Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        before = self._ordinal
        try:
            self.outputs += [route(self._complete(effect, at), at.shard) for effect in effects]
        except BaseException:
            self._ordinal = before
            raise

    def put_at_end(self, effect: fx.Effect) -> None:
        """What no record is the cause of: it is written once per batch."""
        self.outputs.append(route(effect, self._shard))

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect:
        """Give a history line its id and time."""
        if not isinstance(effect, fx.Record):
            return effect
        self._ordinal += 1
        return event_of(effect, at, self._ordinal - 1)
