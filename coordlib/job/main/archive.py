"""The archive in an application of its own: `coord submit archive --help`.

For a coordinator that was started with --without-archive. It ends with 0 on SIGTERM, after the
batch that it is in.
"""

import sys
from collections.abc import Sequence

from coordlib import exit_codes
from coordlib.errors import CoordError
from coordlib.history.archive import Archive
from coordlib.history.plan import ArchiveOptions
from coordlib.job import failures, process
from coordlib.job.main.arguments import Parser, positive, require_places, seconds
from coordlib.job.process import stop_flag_on_signals, write_pid
from coordlib.kafka.options import KafkaOptions
from coordlib.redaction import secrets_of, without


def main() -> int:
    """Run until a signal (exit 0) or a failure; returns the exit code."""
    stop_flag = stop_flag_on_signals()
    write_pid()
    process.configure()
    try:
        options = _options()
    except CoordError as error:
        print(_shown(error), file=sys.stderr)
        return exit_codes.of_job(error)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"{options.prefix}-archive").getOrCreate()
    try:
        Archive(spark, options).run(stop_flag)
    except Exception as problem:
        if stop_flag.is_set():
            return 0  # Spark was told to end, too
        reason = problem if isinstance(problem, CoordError) else failures.explain_archive(problem)
        if reason is None:
            raise
        print(_shown(reason), file=sys.stderr)
        return exit_codes.of_job(reason)
    finally:
        spark.stop()
    return exit_codes.OK


def _shown(problem: Exception) -> str:
    return without(str(problem), secrets_of(sys.argv[1:]))


def archive_parser(arguments: Sequence[str] = ()) -> Parser:
    """Of the job `archive`."""
    parser = Parser(arguments, prog="archive", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True, help="of the Kafka cluster")
    parser.add_argument(
        "--prefix", default="coord", help="first part of the topics' names (%(default)s)"
    )
    parser.add_argument("--checkpoint", required=True, help="folder or URI, for this archive alone")
    parser.add_argument("--tables", required=True, help="folder or URI of the Delta tables")
    parser.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of every Kafka client, in librdkafka's spelling",
    )
    parser.add_argument("--kafka-file", metavar="FILE", help="a file of such options, a line each")
    parser.add_argument(
        "--interval-seconds",
        type=seconds,
        default=30.0,
        help="how often rows are written (%(default)s)",
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=positive,
        default=200_000,
        metavar="RECORDS",
        help="of one batch, about; the next one begins at once while there are more (%(default)s)",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="begin also where topics have lost their ends since they were read",
    )
    return parser


def _options() -> ArchiveOptions:
    given = archive_parser(sys.argv[1:]).parse_args()
    require_places(given)
    kafka = KafkaOptions.parse(given.kafka, file=given.kafka_file)
    kafka.spark()  # a certificate that cannot be read is a wrong argument
    return ArchiveOptions(
        bootstrap_servers=given.bootstrap_servers,
        prefix=given.prefix,
        tables=given.tables,
        checkpoint=given.checkpoint,
        kafka=kafka,
        interval_seconds=given.interval_seconds,
        max_offsets_per_trigger=given.max_offsets_per_trigger,
        accepts_loss=given.accept_loss,
    )


if __name__ == "__main__":
    sys.exit(main())
