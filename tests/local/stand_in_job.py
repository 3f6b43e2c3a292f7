"""A stand-in for jobs/coordinate.py: a Spark session, Python workers, a clean stop on SIGTERM.

Takes the job's own arguments and needs only `--status-file`. With `--exit CODE` it ends at once
with that code.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

stop = False


def on_stop(_number: int, _frame: object) -> None:
    global stop
    stop = True


def square(frames):
    yield from frames


def main() -> int:
    signal.signal(signal.SIGTERM, on_stop)
    Path(os.environ["COORD_DRIVER_PID_FILE"]).write_text(str(os.getpid()))
    parser = argparse.ArgumentParser()
    parser.add_argument("--status-file", type=Path)
    parser.add_argument("--exit", type=int)
    arguments, _ = parser.parse_known_args()
    if arguments.exit is not None:
        print("ending as asked", file=sys.stderr)
        return arguments.exit
    spark = SparkSession.builder.getOrCreate()
    batch_id = 0
    while not stop:
        spark.range(100).mapInPandas(square, "id long").collect()  # keeps Python workers alive
        tell(arguments.status_file, "running", batch_id)
        batch_id += 1
        time.sleep(0.1)
    tell(arguments.status_file, "stopped", batch_id)
    spark.stop()
    return 0


def tell(path: Path, state: str, batch_id: int) -> None:
    status = {"state": state, "pid": os.getpid(), "batch_id": batch_id, "last_batch_ms": 1}
    status["start_s"] = {"session": 2.04, "first batch": 3.5}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(status | {"updated_ms": int(time.time() * 1000)}))
    partial.rename(path)


sys.exit(main())
