"""Exit codes of commands and of jobs, in one table.

           coord                       coord submit, spark-submit.sh, jobs/*.py
      0    done                        stopped when asked
      1    failed                      failed: a supervisor is to start it again
      2    wrong usage or settings     the same; starting it again changes nothing
      3    unhealthy                   a newer driver does this prefix's work
      4    nothing answers             refused: topics or checkpoint are not what they must be
    130    ended by Ctrl-C             -

A job that ends with 2, 3 or 4 must not be started again before an operator has read its message.
Beside these, 128 + n: signal n ended it, and 52: Java had no memory left. A supervisor answers both
by starting it again; where two starts end so with the same batch, the next plans fewer records.
"""

from typing import Final

from coordlib.errors import (
    CannotReach,
    CoordError,
    DriverFenced,
    NotReady,
    SetupError,
    StartRefused,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNHEALTHY: Final = 3
FENCED: Final = 3
UNREACHABLE: Final = 4
REFUSED: Final = 4
INTERRUPTED: Final = 130  # as a shell says of a program that Ctrl-C ended


def of_command(problem: CoordError) -> int:
    """The exit code of `coord` for this reason."""
    if isinstance(problem, CannotReach):
        return UNREACHABLE
    return USAGE if _is_lasting_setup(problem) else FAILED


def of_job(problem: CoordError) -> int:
    """The exit code of a job for this reason."""
    if isinstance(problem, DriverFenced):
        return FENCED
    if isinstance(problem, StartRefused):
        return REFUSED
    return USAGE if _is_lasting_setup(problem) else FAILED


def _is_lasting_setup(problem: CoordError) -> bool:
    return isinstance(problem, SetupError) and not isinstance(problem, NotReady)
