"""The coordination job: `./spark-submit.sh jobs/coordinate.py --bootstrap-servers … --help`."""

import sys

from pyspark.sql import SparkSession

from coordlib.errors import CoordError
from coordlib.history.archive import start_archive
from coordlib.streaming import lifecycle, logs
from coordlib.streaming.arguments import archive_options, coordinator_options, parse_arguments
from coordlib.streaming.query import Coordinator


def main() -> int:
    """Run until SIGTERM or SIGINT (exit 0), or until something ends the query (exit 1)."""
    stop_flag = lifecycle.stop_flag_on_signals()
    lifecycle.write_pid()
    logs.configure()
    arguments = parse_arguments(sys.argv[1:])
    try:
        options = coordinator_options(arguments)
    except CoordError as problem:
        print(problem, file=sys.stderr)
        return 1
    spark = SparkSession.builder.appName(f"{options.prefix}-coordinator").getOrCreate()
    coordinator = Coordinator(spark, options)
    try:
        queries = [coordinator.start()]
        if not arguments.without_archive:
            queries.append(start_archive(spark, archive_options(arguments, options)))
        lifecycle.run_until_stopped(queries, stop_flag)
    except Exception as problem:
        if coordinator.failure is None and not isinstance(problem, CoordError):
            raise
        print(f"coordinator: {coordinator.failure or problem}", file=sys.stderr, flush=True)
        return 1
    finally:
        coordinator.close()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
