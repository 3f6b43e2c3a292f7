"""The coordination job: `coord submit coordinate --help`."""

import sys
import threading
import traceback
from argparse import Namespace
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from coordlib import exit_codes
from coordlib.core.wire.cells import named
from coordlib.errors import CoordError
from coordlib.history.archive import Archive
from coordlib.history.plan import ArchiveOptions
from coordlib.job import failures, process
from coordlib.job.background.threads import ArchiveWatch, ClaimsWatch
from coordlib.job.main.arguments import (
    archive_options,
    claims_of_job,
    coordinator_options,
    parse_arguments,
)
from coordlib.job.main.claims_query import ClaimsOptions, ClaimsQuery
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from coordlib.job.process import StartTimes, wait_to_begin
from coordlib.redaction import secrets_of, without
from coordlib.spark_reasons import reason_of


def main() -> int:
    """Run until a signal (exit 0) or a failure; returns the exit code."""
    times = StartTimes()
    times.reach("launch")
    stop_flag = process.stop_flag_on_signals()
    process.write_pid()
    process.configure()
    arguments = parse_arguments(sys.argv[1:])
    try:
        options = coordinator_options(arguments)
    except CoordError as problem:
        print(_shown(problem), file=sys.stderr)
        return exit_codes.of_job(problem)
    try:
        _run(arguments, options, stop_flag, times)
    except CoordError as reason:
        # Last of all: Spark's end leaves lines of its own in the log.
        print(f"coordinator: {_shown(reason)}", file=sys.stderr, flush=True)
        return exit_codes.of_job(reason)
    except Exception as problem:  # noqa: BLE001  # it ends the job, and its reason stands last
        traceback.print_exc()
        cause = without(reason_of(problem), secrets_of(sys.argv[1:]))
        print(f"coordinator: The query failed: {cause}", file=sys.stderr, flush=True)
        return exit_codes.FAILED
    return exit_codes.OK


def _shown(problem: CoordError) -> str:
    return without(str(problem), secrets_of(sys.argv[1:]))


def _run(
    arguments: Namespace,
    options: CoordinatorOptions,
    stop_flag: threading.Event,
    times: StartTimes,
) -> None:
    """Raises what ended the job, a CoordError if it can be told in words."""
    spark = _session(options)
    times.reach("session")
    wait_to_begin(stop_flag)
    times.reach("broker")
    coordinator, archive, claims = None, None, None
    try:
        coordinator = Coordinator(spark, options, times)
        with suppress(process.StopAsked):
            queries = [coordinator.start(stop_flag.is_set)]
            if not arguments.without_archive:
                archive = _start_archive(spark, archive_options(arguments, options), coordinator)
            if of_claims := claims_of_job(arguments, options):
                claims = _start_claims(spark, of_claims, coordinator)

            def check() -> None:
                coordinator.check()
                queries[0] = coordinator.query or queries[0]  # it may go on as another one

            process.run_until_stopped(
                queries, stop_flag, check, partial(coordinator.note_end, None)
            )
    except Exception as problem:
        reason = _reason(problem, coordinator, options.checkpoint, stop_flag)
        if coordinator:
            coordinator.failure = reason
        if reason is problem:
            raise
        raise reason from None  # Spark has logged the whole of it
    finally:
        if coordinator:
            coordinator.close()
        if claims:
            claims.stop()
        if archive:
            archive.stop()
        spark.stop()


def _session(options: CoordinatorOptions) -> SparkSession:
    # Job instances may share a Spark master.
    name = named(f"{options.prefix}-coordinator", options.owned)
    try:
        return SparkSession.builder.appName(name).getOrCreate()
    except Exception as problem:
        reason = failures.explain(problem, options.checkpoint)
        if reason is None:
            raise
        raise reason from None  # Spark has logged the whole of it


def _start_archive(
    spark: SparkSession, options: ArchiveOptions, coordinator: Coordinator
) -> ArchiveWatch:
    """Begin to write history; where that fails the coordinator goes on, and its status tells."""
    archive = ArchiveWatch(
        lambda: Archive(spark, options), options.interval_seconds, coordinator.health
    )
    archive.start()
    return archive


def _start_claims(
    spark: SparkSession, options: ClaimsOptions, coordinator: Coordinator
) -> ClaimsWatch:
    """Begin to follow the coordination topic; where that fails the coordinator goes on."""
    health = coordinator.health
    query = ClaimsQuery(spark, options, coordinator.status_file, health)
    watch = ClaimsWatch(query, health, coordinator.has_begun)
    watch.start()
    return watch


def _reason(
    problem: Exception,
    coordinator: Coordinator | None,
    checkpoint: str,
    stop_flag: threading.Event,
) -> Exception:
    """What ended the job, in words if they are known; noted for the next start."""
    if coordinator is None:
        return failures.explain(problem, checkpoint) or problem
    reason = coordinator.failure or failures.explain(problem, checkpoint) or problem
    # Spark may have been told to end, too.
    coordinator.note_end(None if stop_flag.is_set() else reason)
    return reason


if __name__ == "__main__":
    sys.exit(main())
