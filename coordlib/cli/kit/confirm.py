"""Ask before something is done that cannot be undone."""

import sys

from coordlib.cli.kit.output import say
from coordlib.errors import CoordError, SetupError


def confirm(what: str, where: str, yes: bool) -> None:
    """Return if the user agrees, by `--yes` or on the terminal.

    Raises:
        CoordError: the user does not.
        SetupError: there is no terminal to ask on.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SetupError(
            f"{what} cannot be undone, and there is no terminal to ask on.",
            where,
            "Nothing was done. Say --yes if it is meant.",
        )
    say(f"{what}: {where}. This cannot be undone. Go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CoordError("Nothing was done.", where, "Answer y, or say --yes.")
