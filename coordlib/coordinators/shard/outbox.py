"""What a batch has to say so far, in order."""

from collections.abc import Callable, Iterable

import msgspec

from coordlib.coordinators.shard.refusal_lines import REFUSALS, Refusals
from coordlib.coordinators.shard.transition import At, Key, event_of
from coordlib.effects import effect as fx
from coordlib.effects.routing import Output, route


class Outbox:
    """Effects as outputs. Owned by one shard during one batch."""

    def __init__(self, shard: int, refusals_of: Callable[[Key], Refusals]) -> None:
        self.outputs: list[Output] = []
        self._shard = shard
        #: What was refused of late, by the entity's key.
        self._refusals_of = refusals_of
        #: How many lines of history the record that is being judged has left.
        self._ordinal = 0
        #: What the effects that were made ready last have changed: the ordinal and the counts
        #: before.
        self._ordinal_before = 0
        self._refusals_before: list[tuple[Refusals, Refusals]] = []

    def begin_record(self) -> None:
        """Lines of history count anew: their ids name the record, and which line of it."""
        self._ordinal = 0

    def put(self, effects: Iterable[fx.Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        self.say(self.ready(effects, at))

    def ready(self, effects: Iterable[fx.Effect], at: At) -> list[Output]:
        """Effects as outputs, to be said next, or to be undone. Raises EffectTooLarge."""
        self._ordinal_before = self._ordinal
        self._refusals_before.clear()
        try:
            lines = (self._complete(effect, at) for effect in effects)
            return [route(line, at.shard) for line in lines if line is not None]
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """What was made ready last is not said: as if it had never been."""
        self._ordinal = self._ordinal_before
        for refusals, before in reversed(self._refusals_before):
            refusals.window, refusals.count, refusals.untold = msgspec.structs.astuple(before)

    def say(self, outputs: Iterable[Output]) -> None:
        """These, which were made ready."""
        self.outputs += outputs

    def put_at_end(self, effects: Iterable[fx.Effect]) -> None:
        """What no record is the cause of: it is written once per batch."""
        self.outputs += [route(effect, self._shard) for effect in effects]

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        if not isinstance(effect, fx.History):
            return effect
        refusals = self._refusals_of((effect.space, effect.group))
        if effect.type in REFUSALS:
            self._refusals_before.append((refusals, msgspec.structs.replace(refusals)))
        line = refusals.line(effect, at.clock_ms)
        if line is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)


def size_of(outputs: Iterable[Output]) -> int:
    """How many bytes they have."""
    total = 0
    for output in outputs:  # no generator: this runs for every step
        value = output.value
        total += len(output.key) + (len(value) if value else 0)
    return total
