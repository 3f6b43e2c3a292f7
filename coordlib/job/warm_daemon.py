"""The daemon from which Spark forks its Python workers: it imports first what all of them need.

Spark's own daemon is as good as empty, so that each worker imports pandas, pyarrow and the
coordinator by itself, before its first batch. And it collects garbage after every task: with these
modules loaded that walks a few hundred thousand objects, which took more time than the judging.
Here they are imported once, and frozen: workers share their memory, and collections skip them.

Spark starts it by `spark.python.daemon.module`.
"""

import gc

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

from coordlib.job import operator, pipelines  # noqa: F401
from coordlib.job.workers import lower_priority

if __name__ == "__main__":
    lower_priority()
    gc.collect()
    gc.freeze()
    daemon.manager()
