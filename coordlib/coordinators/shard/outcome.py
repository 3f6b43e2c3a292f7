"""One step of one entity: what its kind decides, and what becomes of the entity by it.

Nothing is changed here. The shard writes the effects, and then stores what the outcome has: every
entry whose change was acknowledged, also where the head is the same as before.  # INV-22
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from coordlib.coordinators.shard.kind import Kind
from coordlib.coordinators.shard.step import Around, BrokenInvariant, Step
from coordlib.coordinators.shard.transition import At
from coordlib.effects import effect as fx

Decide = Callable[[Step[Any]], None]


class Held(NamedTuple):
    """What the shard has of an entity before a step; nothing: it is not there."""

    value: Any = None
    kind: Kind | None = None


class Outcome(NamedTuple):
    """What a step came to, if it went through."""

    #: The value after the step; None: there is none.
    value: Any
    #: The kind of that value; None: there is none.
    kind: Kind | None
    effects: list[fx.Effect]
    #: Of the effects, the entries to store or to forget.
    puts: list[fx.Put]
    #: Members whose session starts anew.
    touched: list[str]
    is_deleted: bool
    #: Whether there is anything to store.
    is_change: bool
    #: Whether a member did what it was asked for: that never waits for readers (`answered.py`).
    is_reaction: bool


def take(
    decide: Decide,
    kind: Kind,
    name: str,
    held: Held,
    at: At,
    around: Around,
    named: str | None,
) -> Outcome:
    """Let a kind judge for an entity, or for none; `named`: what history names if none is made."""
    value = held.value
    before = value if held.kind in (None, kind) else kind.adopt(value, at)
    step = kind.STEP(kind, name, before, at, around)
    decide(step)
    # An empty entity of another kind that was judged and did not change keeps its kind.
    after = value if step.value is before else step.value
    found = kind if after is not None and after is not value else held.kind
    told = found.NAME if found else named
    puts = _puts(step)
    return Outcome(
        value=after,
        kind=found,
        effects=step.effects if told == kind.NAME else _named(step.effects, told),
        puts=puts,
        touched=step.touched,
        is_deleted=step.is_deleted,
        is_change=after is not value or bool(step.touched or puts),
        is_reaction=step.is_reaction,
    )


def _named(effects: list[fx.Effect], kind: str | None) -> list[fx.Effect]:
    """The effects of a step, with another kind in its history than the one that judged.

    A kind may judge for no entity, or for an empty one of another kind, and change nothing.
    """
    return [
        replace(effect, kind=kind) if isinstance(effect, fx.History) else effect
        for effect in effects
    ]


def _puts(step: Step[Any]) -> list[fx.Put]:
    """The entries of a step. Raises BrokenInvariant when no entity would keep them.  # INV-44"""
    found = [effect for effect in step.effects if isinstance(effect, fx.Put)]
    if not found:
        return found
    if step.value is None and not step.is_deleted:
        raise BrokenInvariant(f"{step.name}: entries were put for no entity")
    if any(effect.entity != step.name for effect in found):
        raise BrokenInvariant(f"{step.name}: entries of another entity were put")
    return found
