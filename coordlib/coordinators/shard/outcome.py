"""One step of one group: what its kind decides, and what becomes of the group by it.

Nothing is changed here. The shard writes the effects, and then stores what the outcome has: every
offset whose commit was acknowledged, also where the group itself is the same as before.  # INV-22
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from coordlib.coordinators.groups.group import BrokenInvariant
from coordlib.coordinators.shard import kinds
from coordlib.coordinators.shard.kind import Machine
from coordlib.coordinators.shard.row import Row
from coordlib.coordinators.shard.step import Step, Surroundings
from coordlib.coordinators.shard.transition import At
from coordlib.effects import effect as fx

Decide = Callable[[Step[Any]], None]


class Outcome(NamedTuple):
    """What a step came to, if it went through."""

    #: The group after the step; None: there is none.
    group: Any
    #: The kind of that group; without one, the kind that the history names, if any.
    kind: str | None
    effects: list[fx.Effect]
    #: Of the effects, the offsets to store or to forget.
    commits: list[fx.Commit]
    #: Members whose session starts anew.
    touched: list[str]
    is_deleted: bool
    #: Whether there is anything to store.
    is_change: bool
    #: Whether a member did what it was asked for: that never waits for readers (`answered.py`).
    is_reaction: bool


def take(
    decide: Decide,
    machine: Machine,
    name: str,
    cell: Row | None,
    at: At,
    around: Surroundings,
    kind: str | None,
) -> Outcome:
    """Let a kind judge for a group, or for none; `kind`: what history names if none is made."""
    group: Any = cell.group if cell else None
    is_other = cell is not None and machine is not cell.machine
    before = machine.adopt(group, at) if is_other else group
    step = machine.step(name, before, at, around)
    decide(step)
    # An empty group of another kind that was judged and did not change keeps its kind.
    after = group if step.group is before else step.group
    if after is not None and after is not group:
        kind = machine.KIND
    elif cell is not None:
        kind = cell.stored.kind
    commits = _commits(step)
    return Outcome(
        group=after,
        kind=kind,
        effects=step.effects if kind == machine.KIND else kinds.named(step.effects, kind),
        commits=commits,
        touched=step.touched,
        is_deleted=step.is_deleted,
        is_change=after is not group or bool(step.touched or commits),
        is_reaction=step.is_reaction,
    )


def _commits(step: Step[Any]) -> list[fx.Commit]:
    """The offsets of a step. Raises BrokenInvariant when no group would keep them.  # INV-44"""
    found = [effect for effect in step.effects if isinstance(effect, fx.Commit)]
    if found and step.group is None and not step.is_deleted:
        raise BrokenInvariant(f"{step.name}: offsets were committed to no group")
    if any(effect.group != step.name for effect in found):
        raise BrokenInvariant(f"{step.name}: offsets of another group were committed")
    return found
