"""What a batch has to say so far, in order."""

from collections.abc import Callable, Iterable

from coordlib.coordinators.refusal_lines import Refusals
from coordlib.coordinators.transition import At, event_of
from coordlib.effects import effect as fx
from coordlib.effects.routing import Output, route


class Outbox:
    """Effects as outputs. Owned by one shard during one batch."""

    def __init__(self, shard: int, refusals_of: Callable[[str], Refusals]) -> None:
        self.outputs: list[Output] = []
        self._shard = shard
        #: What was refused of late, by the group's name.
        self._refusals_of = refusals_of
        #: How many lines of history the record that is being judged has left.
        self._ordinal = 0

    def begin_record(self) -> None:
        """Lines of history count anew: their ids name the record, and which line of it."""
        self._ordinal = 0

    def put(self, effects: Iterable[fx.Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        before = self._ordinal
        try:
            lines = (self._complete(effect, at) for effect in effects)
            self.outputs += [route(line, at.shard) for line in lines if line is not None]
        except BaseException:
            self._ordinal = before
            raise

    def put_at_end(self, effects: Iterable[fx.Effect]) -> None:
        """What no record is the cause of: it is written once per batch."""
        self.outputs += [route(effect, self._shard) for effect in effects]

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        if not isinstance(effect, fx.Record):
            return effect
        line = self._refusals_of(effect.group).line(effect, at.clock_ms)
        if line is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)
