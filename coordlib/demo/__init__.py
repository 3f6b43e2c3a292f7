"""`coord demo`: groups at work, a member of each killed, and a verdict.

scenario          from an empty folder to a stopped stack: the acts, and what they prove
acts              the acts by name, and which of them are played
act               what an act is; the base of those with a group: a topic, a group, records, facts
classic_act       20,000 records, consumers in a classic group
assigned_act      6,000 records, Spark queries and a consumer in a server-assigned group
claims_act        4,000 records, consumers that claim partitions, while the job is down;
                  claims_course: its course
brokers_act       a replicated store, whose leaders are killed, suspended and shut down;
                  brokers_course: its course
transactions_act  10,000 records, copied in transactions, and from the copy into a Delta table;
                  transactions_course: its course
production        the records
members           the member processes: started, killed, stopped
member            the program of a member process; spark_member: of one that is a Spark query;
                  claims_member: of a consumer of claims; store_member: of a store;
                  copier_member: of a copier; writer_member: of a Spark query that writes a table
witness           each member's own record of its reading, written and read;
                  store_witness: a store's; copy_witness: a copier's or writer's
store_traffic     writers and readers of the store
watch             watches members, records and job while they run
facts             the facts that a verdict is computed from: witnesses, Delta, the broker
verdict           whether the promises of the act `classic` hold; pure
assigned_verdict  the same for the act `assigned`; pure
claims_verdict    the same for the act `claims`; pure. claims_facts: its facts
brokers_verdict   the same for the act `brokers`; pure. brokers_facts: its facts
transactions_verdict, table_verdict
                  the same for the copy and the table of the act `transactions`; pure.
                  transactions_facts, table_facts: their facts
recorded          the witnesses in the form that simulated runs have, for the same checkers
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
