"""The command `bench archive`; see `commands.py` for the others."""

from typing import Literal

from coordlib.cli.kit.options import Count
from tests.tools.bench import commands

Way = Literal["now", "lookup", "codegen", "unpacked", "nocrc"]


def archive(
    *,
    turns: Count = 12,
    events: Count = 79,
    commits: Count = 27,
    ways: tuple[Way, ...] = (),
) -> int:
    """What a turn of the archive takes, from Kafka to Delta, in one JVM as the job's.

    Parameters
    ----------
    turns
        Of each way; the second half is in the summary.
    events
        Records of `events` in a turn.
    commits
        Records of `committed` in a turn.
    ways
        Given several times: now, lookup (appends as they were before), codegen, unpacked, nocrc;
        all without it.
    """
    return commands.run("archive", turns=turns, events=events, commits=commits, ways=ways)
