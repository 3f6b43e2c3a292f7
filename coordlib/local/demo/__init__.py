"""`coord demo`: 20,000 records, three member processes, one of them killed, and a verdict.

scenario     the course of events, from an empty folder to a stopped stack
production   the records
members      the member processes: started, killed, stopped
member       what runs in each of them
witness      what each wrote down of what it consumed, and reading it
facts        everything that the verdict is computed from: witnesses, Delta, the broker
verdict      whether the promises hold; pure
show         tables, verdict, and the line that tells how far it is
"""

from coordlib.local.demo.show import PrintTable
from coordlib.local.progress import Progress


def run(progress: Progress, print_table: PrintTable, keep: bool = False) -> int:
    """Run the demo. Returns 0 if every check of the verdict holds, else 1.

    Args:
        progress: told what is being done.
        print_table: prints headers and rows on stdout.
        keep: leave broker and job running at the end.

    Raises:
        CoordError: it could not be brought to its end.
    """
    from coordlib.local.demo.scenario import play

    return play(progress, print_table, keep)
