"""The claims query in an application of its own: `coord submit claims --help`.

For a coordinator that was started with --without-claims, or for a coordination topic without one.
It ends with 0 on SIGTERM, after the batch that it is in.
"""

import sys
import threading

from pyspark.sql import SparkSession

from coordlib import exit_codes
from coordlib.errors import CoordError
from coordlib.job import process
from coordlib.job.background.loop import HealthReport, StatusFile
from coordlib.job.main.arguments import claims_options, parse_claims_arguments
from coordlib.job.main.claims_query import ClaimsOptions, ClaimsQuery
from coordlib.redaction import secrets_of, without


def main() -> int:
    """Run until a signal (exit 0) or a failure; returns the exit code."""
    stop_flag = process.stop_flag_on_signals()
    process.write_pid()
    process.configure()
    arguments = parse_claims_arguments(sys.argv[1:])
    try:
        options = claims_options(arguments)
        _run(options, StatusFile(arguments.status_file), stop_flag)
    except CoordError as reason:
        # Last of all: Spark's end leaves lines of its own in the log.
        shown = without(str(reason), secrets_of(sys.argv[1:]))
        print(f"claims: {shown}", file=sys.stderr, flush=True)
        return exit_codes.of_job(reason)
    return exit_codes.OK


def _run(options: ClaimsOptions, status: StatusFile, stop_flag: threading.Event) -> None:
    """Raises what ended the query, a CoordError if it can be told in words."""
    spark = SparkSession.builder.appName(f"{options.prefix}-claims").getOrCreate()
    query = ClaimsQuery(spark, options, status, HealthReport(), is_alone=True)
    try:
        query.run(stop_flag)
    except Exception:
        if not stop_flag.is_set():  # else Spark was told to end, too
            raise
    finally:
        query.close()
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
