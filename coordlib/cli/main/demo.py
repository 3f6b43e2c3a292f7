"""`coord demo`: the whole engine at work on this machine."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from coordlib.cli.kit.output import print_table
from coordlib.cli.kit.where import progress


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
    """Run groups on a stack of their own, kill a member of each, and check the outcome.

    Exit code 0 only if every check of the verdict holds.

    Parameters
    ----------
    act
        Name of an act, or "all"; may be repeated; by default classic and assigned.
    keep
        Leave the stack running at the end.
    """
    from coordlib.demo import run

    return run(progress(), print_table, keep, act)
