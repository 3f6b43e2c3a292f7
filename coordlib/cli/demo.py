"""`coord demo`: the whole engine at work on this machine."""

from coordlib.cli.output import print_table
from coordlib.cli.where import progress


def demo(*, keep: bool = False) -> int:
    """Run two groups on a stack of their own, kill a member of each, and check the outcome.

    Exit code 0 only if every check of the verdict holds.

    Parameters
    ----------
    keep
        Leave the stack running at the end.
    """
    from coordlib.demo import run

    return run(progress(), print_table, keep)
