"""Bugs that a job may have: steps of one group raise, until a fixed job is started (INV-42).

Which step breaks is decided by the record that is being judged, and by nothing else: whoever
judges it again, after a crash, on another executor or in the fold that the checks do, meets the
bug again. The core knows nothing of it: its handlers are replaced while a batch is folded.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.classic.group import Step
from coordlib.core.registry import REGISTRY

#: A step that no request has asked for.
DEADLINE: Final = "deadline"


class Poison(RuntimeError):
    """What a step with a bug raises, when it has done all that it does."""


@dataclass
class Defect:
    """One bug. `of`: the name of a request's type, or DEADLINE."""

    group: str
    of: str
    #: The first record that is judged with it.
    first: int
    #: The first record that is judged without it again; None: nobody has fixed it.
    end: int | None = None

    def breaks(self, step: Step, of: str) -> bool:
        is_meant = (self.group, self.of) == (step.name, of)
        return (
            is_meant
            and step.at.topic == REQUESTS  # offsets of another topic say nothing here
            and self.first <= step.at.offset
            and (self.end is None or step.at.offset < self.end)
        )


@contextmanager
def in_force(defects: list[Defect]) -> Iterator[None]:
    """While it lasts, the steps of all protocols have these bugs."""

    def broken(of: str, decide: Callable[..., None]) -> Callable[..., None]:
        def decide_and_break(step: Step, *rest: Any, **named: Any) -> None:
            decide(step, *rest, **named)
            if any(defect.breaks(step, of) for defect in defects):
                raise Poison(f"a defect of {of}")

        return decide_and_break

    with ExitStack() as patches:
        for machine in REGISTRY.kinds.values() if defects else ():
            handlers = {kind: broken(kind.__name__, h) for kind, h in machine.handlers.items()}
            patches.enter_context(patch.dict(machine.handlers, handlers))
            patches.enter_context(patch.object(machine, "fire", broken(DEADLINE, machine.fire)))
        yield
