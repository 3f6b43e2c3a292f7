"""A job of ours as it is, with Spark's word on each batch of claims in a file, a JSON line each.

    claims_job.py --job coordinate|claims --told FILE ARGUMENTS…

`last_batch_ms` of the job's status is the time from one batch to the next, which is the trigger's
2 s as long as nothing is slow; what a batch takes stands in Spark's progress alone.
"""

import sys
import threading
import time
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from py4j.protocol import Py4JError

from coordlib.job.pipelines import CLAIMS
from coordlib.job.query import PipelineQuery

#: Batches of claims that take less than the trigger end further apart.
LOOK_EVERY_S: Final = 0.1


def watch(queries: list[PipelineQuery], told: Path) -> None:
    """Write down each progress that a query tells, until Spark ends."""
    seen = set[str]()
    with told.open("a", buffering=1) as file:
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                progress = [each.query.lastProgress for each in queries if each.query is not None]
            except (Py4JError, OSError):
                return
            for each in progress:
                if each is not None and each.timestamp not in seen:
                    seen.add(each.timestamp)
                    file.write("".join(each.json.splitlines()) + "\n")


def main() -> int:
    """The job's exit code."""
    parser = ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--told", type=Path, required=True)
    given, sys.argv[1:] = parser.parse_known_args()
    queries: list[PipelineQuery] = []
    begin = PipelineQuery.begin

    def noted(query: PipelineQuery) -> Any:
        if query.pipeline.label == CLAIMS:
            queries.append(query)
        return begin(query)

    threading.Thread(target=watch, args=(queries, given.told), daemon=True).start()
    with patch.object(PipelineQuery, "begin", noted):
        return int(import_module(f"coordlib.job.main.{given.job}").main())


if __name__ == "__main__":
    sys.exit(main())
