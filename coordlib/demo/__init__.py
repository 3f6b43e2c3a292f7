"""`coord demo`: groups at work, a member of each killed, and a verdict.

scenario          from an empty folder to a stopped stack: the acts, and what they prove
acts              the two acts, and which of them are played
act               what an act is: a topic, a group, records, a course, facts
production        the records
members           the member processes: started, killed, stopped
member            the program of a member process; spark_member: of one that is a Spark query
witness           each member's own record of its reading, written and read
watch             watches members, records and job while they run
facts             the facts that a verdict is computed from: witnesses, Delta, the broker
history           the witnesses as one history, in the form that simulated runs have
checkers          whether a history keeps every promise; pure
verdict           whether the promises of an act hold; pure
show              tables, verdict, and the line of progress
"""

from collections.abc import Sequence

from coordlib.demo.show import PrintTable
from coordlib.local.progress import Progress


def run(
    progress: Progress, print_table: PrintTable, keep: bool = False, acts: Sequence[str] = ()
) -> int:
    """Run the demo. Returns 0 if every check of the verdict holds, else 1.

    Args:
        progress: called with each phase.
        print_table: prints headers and rows on stdout.
        keep: leave broker and job running at the end.
        acts: names of the acts to play, "all" for all; none: the usual ones.

    Raises:
        SetupError: an act of a given name does not exist.
        CoordError: the demo could not be finished.
    """
    from coordlib.demo.scenario import play

    return play(progress, print_table, keep, acts)
