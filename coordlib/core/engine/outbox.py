"""What a batch has to say so far, in order; and what it says once when it ends."""

from collections.abc import Callable, Iterable

import msgspec

from coordlib.core.engine import effect as fx
from coordlib.core.engine.family import Family
from coordlib.core.engine.refusal_lines import REFUSALS, Refusals
from coordlib.core.engine.routing import Output, route
from coordlib.core.engine.row import Row
from coordlib.core.engine.transition import At, Key, event_of
from coordlib.core.wire import responses as rs


class Outbox:
    """Effects as outputs. Owned by one shard during one batch."""

    def __init__(self, shard: int, refusals_of: Callable[[Key], Refusals]) -> None:
        self.outputs: list[Output] = []
        self._shard = shard
        #: What was refused of late, by the entity's key.
        self._refusals_of = refusals_of
        #: The record that is being judged, and how many lines of history it has by now: their ids
        #: name the record, and which line of it.
        self._record = ("", -1)
        self._ordinal = 0
        #: What the effects that were made ready last have changed: the ordinal and the counts
        #: before.
        self._ordinal_before = 0
        self._refusals_before: list[tuple[Refusals, Refusals]] = []

    def put(self, effects: Iterable[fx.Effect], at: At) -> None:
        """All of them, or none when one cannot be written: a step goes through whole."""
        self.outputs += self.ready(effects, at)

    def ready(self, effects: Iterable[fx.Effect], at: At) -> list[Output]:
        """Effects as outputs, to be said next, or to be undone. Raises EffectTooLarge."""
        if self._record != (at.topic, at.offset):
            self._record, self._ordinal = (at.topic, at.offset), 0
        self._ordinal_before = self._ordinal
        self._refusals_before.clear()
        try:
            lines = [self._complete(effect, at) for effect in effects]
            return [route(line, at.shard) for line in lines if line is not None]
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """What was made ready last is not said: as if it had never been."""
        self._ordinal = self._ordinal_before
        for refusals, before in reversed(self._refusals_before):
            refusals.window, refusals.count, refusals.untold = msgspec.structs.astuple(before)

    def _complete(self, effect: fx.Effect, at: At) -> fx.Effect | None:
        """Give a history line its id and time; None: one of a flood, which is only counted."""
        if not isinstance(effect, fx.History):
            return effect
        line: fx.History | None = effect
        if effect.type in REFUSALS:
            refusals = self._refusals_of((effect.space, effect.group))
            self._refusals_before.append((refusals, msgspec.structs.replace(refusals)))
            line = refusals.line(effect, at.clock_ms)
        if line is None:
            return None
        self._ordinal += 1
        return event_of(line, at, self._ordinal - 1)

    # -- the end of a batch: what no record is the cause of --------------------------------

    def put_head(self, family: type[Family], name: str, row: Row | None) -> None:
        """A head that changed, whole; None: a tombstone, the entity is gone."""
        if row is None:
            saved = None
        elif row.changed and row.value is not None:
            row.encode_head()
            saved = row.kind.save(row.value)
        else:
            return
        self.put_saved(family, name, saved)

    def put_saved(self, family: type[Family], name: str, saved: bytes | None) -> None:
        """The record of a head; None: a tombstone."""
        effect = fx.Save(family.HEADS, family.head_key(name), saved)
        self.outputs.append(route(effect, self._shard))

    def put_progress(self, offset: int, time_ms: int, replies: Iterable[int]) -> None:
        """How far the shard has judged, for everybody who reads answers of its entities."""
        judged = rs.Progress(shard=self._shard, offset=offset, time_ms=time_ms)
        self.outputs += [route(fx.Notify(reply, judged), self._shard) for reply in sorted(replies)]


def size_of(outputs: Iterable[Output]) -> int:
    """How many bytes they have."""
    total = 0
    for output in outputs:  # no generator: this runs for every step
        value = output.value
        total += len(output.key) + (len(value) if value else 0)
    return total
