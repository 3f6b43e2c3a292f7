"""`coord demo`: the whole engine at work on this machine."""

from coordlib.cli.output import print_table
from coordlib.cli.where import progress


def demo(*, keep: bool = False) -> int:
    """Show the engine at work: a stack of its own, members that come, die and go.

    Exit code 0 only if every check of its verdict holds.

    Parameters
    ----------
    keep
        Leave the demo's stack running at the end.
    """
    from coordlib.demo import run

    return run(progress(), print_table, keep)
