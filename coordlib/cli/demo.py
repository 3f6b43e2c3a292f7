"""`coord demo`: the whole engine at work on this machine."""

from importlib import import_module

from coordlib.cli.where import progress


def demo(*, keep: bool = False) -> int:
    """Show the engine at work: a stack of its own, members that come, die and go.

    Parameters
    ----------
    keep
        Leave the demo's stack running at the end.
    """
    run = import_module("coordlib.local.demo").run
    return int(run(progress(), keep=keep) or 0)
