"""`coord demo`: the whole engine at work on this machine."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from coordlib.cli.output import print_table
from coordlib.cli.where import progress


def require_acts(_: Any, names: Sequence[str]) -> None:
    """Raises SetupError for a name that no act has, before anything is deleted or started."""
    from coordlib.demo.acts import chosen

    chosen(names)


Acts = Annotated[
    tuple[str, ...], Parameter(negative="", show_default=False, validator=require_acts)
]


def demo(
    *,
    act: Acts = (),
    keep: bool = False,
) -> int:
    """Show the engine at work: a stack of its own, members that come, die and go.

    Exit code 0 only if every check of its verdict holds.

    Parameters
    ----------
    act
        Name of an act that is played, or "all"; give it again for another one. A wrong name lists
        them. Without it two are played, classic and assigned.
    keep
        Leave the demo's stack running at the end.
    """
    from coordlib.demo import run

    return run(progress(), print_table, keep, act)
