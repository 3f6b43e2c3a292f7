"""Python workers of one query that give way to those of another query.

Spark keeps a pool of Python workers for each environment, behind a daemon of its own. A query whose
workers have another environment thus never runs in the workers of the other query:

- its daemon lowers its priority (`warm_daemon.py`), and all workers that it forks inherit that.
  Where processors are scarce the other query is judged first;
- the other's workers keep what they hold in memory of their shards (`state.py`).

It costs a second daemon and its workers (a quarter of a GiB, shared pages included), and the time
that the daemon takes to begin, at the first batch. So it is done where driver and executors are one
JVM. A cluster's executor has a core of its own, for which nobody competes, and beside its heap
memory for one daemon and one worker.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coordlib.job.executors import is_one_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: In the environment of a daemon: by how much it gives way.
VARIABLE: Final = "COORD_WORKER_NICENESS"
#: A tenth of the processor's time where both want all of it, and the rest whenever they do not.
WAY_GIVEN: Final = 10
_lock: Final = threading.Lock()


@contextmanager
def workers_of(spark: "SparkSession", niceness: int) -> Iterator[None]:
    """Functions that are handed to Spark meanwhile run in workers of this niceness.

    On a cluster in those that all queries share.

    Spark copies the environment when it is handed a function; there is one for all threads, so
    only one query at a time is made.
    """
    context = spark.sparkContext
    with _lock:
        before = context.environment
        context.environment = environment_of(before, niceness if is_one_jvm(context) else 0)
        try:
            yield
        finally:
            context.environment = before


def environment_of(before: Mapping[str, str], niceness: int) -> dict[str, str]:
    """The environment of workers with this niceness; 0: those that all queries share."""
    return {**before, VARIABLE: str(niceness)} if niceness else dict(before)


def give_way() -> None:
    """Lower this process's priority as its environment says."""
    niceness = int(os.environ.get(VARIABLE, "0"))
    if niceness:
        os.nice(niceness)
