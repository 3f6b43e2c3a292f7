"""`coord demo`: groups at work, a member of each killed, and a verdict.

scenario          from an empty folder to a stopped stack: the acts, and what they prove
acts              the acts by name, and which of them are played
act               what all have in common: a topic, a group, records, facts
classic_act       20,000 records, consumers that divide by themselves
assigned_act      6,000 records, Spark queries and a consumer, divided by the coordinator
production        the records
members           the member processes: started, killed, stopped
member            what runs in each of them; spark_member: in one that is a Spark query
witness           what each wrote down of what it consumed, and reading it
watch             looks at everything while it runs
facts             everything that a verdict is computed from: witnesses, Delta, the broker
verdict           whether the promises of the act `classic` hold; pure
assigned_verdict  the same of `assigned`; pure
recorded          the witnesses in the form that simulated runs have, for the same checkers
show              tables, verdict, and the line that tells how far it is
"""

from collections.abc import Sequence

from coordlib.demo.show import PrintTable
from coordlib.local.progress import Progress


def run(
    progress: Progress, print_table: PrintTable, keep: bool = False, acts: Sequence[str] = ()
) -> int:
    """Run the demo. Returns 0 if every check of the verdict holds, else 1.

    Args:
        progress: told what is being done.
        print_table: prints headers and rows on stdout.
        keep: leave broker and job running at the end.
        acts: names of those that are played, "all" for all; none: the usual ones.

    Raises:
        SetupError: there is no act of a name.
        CoordError: it could not be brought to its end.
    """
    from coordlib.demo.scenario import play

    return play(progress, print_table, keep, acts)
