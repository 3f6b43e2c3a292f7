"""The command line of the jobs, and what it means."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from coordlib import limits
from coordlib.config import CoordinatorConfig, load_config
from coordlib.core.wire.cells import Owned, ShardRange
from coordlib.errors import SetupError
from coordlib.folders import folder_named
from coordlib.history.plan import ArchiveOptions
from coordlib.installation import settings_file
from coordlib.job.main.claims_query import ClaimsOptions
from coordlib.job.main.coordinator import CoordinatorOptions
from coordlib.kafka.coordination import require_name
from coordlib.kafka.options import KafkaOptions
from coordlib.kafka.topics import require_prefix
from coordlib.redaction import secrets_of, without

_SERVER: Final = re.compile(r"[^\s,]+:[0-9]{1,5}")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints show no secret: they stand in the log of whoever starts the job."""

    def __init__(self, given: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._given = given

    def error(self, message: str) -> NoReturn:
        super().error(without(message, secrets_of(self._given)))


def coordinate_parser(arguments: Sequence[str] = ()) -> Parser:
    """Of the job `coordinate`."""
    parser = Parser(arguments, prog="coordinate", description="Run the coordinator.")
    _add_common(parser)
    parser.add_argument("--tables", help="folder or URI of the Delta tables")
    parser.add_argument(
        "--without-archive", action="store_true", help="the job `archive` runs elsewhere"
    )
    parser.add_argument(
        "--without-claims",
        action="store_true",
        help="the job `claims` runs elsewhere, or nobody follows claims.topic",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="begin a new checkpoint from the compacted topics"
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="rebuild also where requests are lost, or records of the topics, with what is left; "
        "archive also where its topics have lost their ends",
    )
    parser.add_argument(
        "--shards",
        metavar="FIRST-LAST",
        help="process only these shards of the prefix; other job instances have the rest",
    )
    parser.add_argument(
        "--rebuild-claims",
        action="store_true",
        help="begin a new checkpoint of the claims query (CHECKPOINT-claims)",
    )
    return parser


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the coordination job's arguments; exits with 2 and usage when they are wrong."""
    parser = coordinate_parser(arguments)
    parsed = parser.parse_args(arguments)
    if not parsed.without_archive and parsed.tables is None:
        parser.error("--tables is needed, or --without-archive")
    if parsed.accept_loss and parsed.without_archive and not parsed.rebuild:
        parser.error("--accept-loss is of a start with --rebuild, or with an archive")
    return parsed


def claims_parser(arguments: Sequence[str] = ()) -> Parser:
    """Of the job `claims`."""
    parser = Parser(
        arguments, prog="claims", description="Follow a coordination topic of claims, alone."
    )
    _add_common(parser)
    parser.add_argument("--topic", help="the coordination topic (default: claims.topic)")
    parser.add_argument(
        "--rebuild", action="store_true", help="begin a new checkpoint from the snapshots"
    )
    return parser


def parse_claims_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the arguments of the job `claims`; exits with 2 and usage when they are wrong."""
    return claims_parser(arguments).parse_args(arguments)


def _add_common(parser: argparse.ArgumentParser) -> None:
    settings = settings_file()
    parser.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,…", help="of the Kafka cluster"
    )
    parser.add_argument(
        "--prefix", default="coord", help="first part of the topics' names (default: coord)"
    )
    parser.add_argument(
        "--checkpoint", required=True, help="folder or URI of the checkpoint; fixed for its life"
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=settings if settings.is_file() else None,
        help=f"coordinator.toml (default: {settings})".replace("%", "%%"),
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override a setting"
    )
    parser.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of every Kafka client, in librdkafka's spelling; ${ENV:NAME} is resolved",
    )
    parser.add_argument(
        "--kafka-file",
        metavar="FILE",
        help="a file of such options, a line each; secrets belong here",
    )
    parser.add_argument("--status-file", type=Path, help="keep the job's state here as JSON")


def require_places(given: argparse.Namespace) -> None:
    """Check what jobs are told of brokers, topics and folders, before Spark is started.

    Raises:
        SetupError: it can be none.
    """
    servers = [server for each in given.bootstrap_servers.split(",") if (server := each.strip())]
    if not servers or not all(map(_SERVER.fullmatch, servers)):
        raise SetupError(
            "This names no Kafka brokers.",
            f"--bootstrap-servers {given.bootstrap_servers[:200]!r}",
            "Name them as HOST:PORT, with commas between them.",
        )
    require_prefix(given.prefix)
    folder_named(given.checkpoint, "--checkpoint", may_be_uri=True)
    if getattr(given, "tables", None) is not None:
        folder_named(given.tables, "--tables", may_be_uri=True)


def seconds(text: str) -> float:
    """An interval on the command line."""
    value = float(text)
    if not (math.isfinite(value) and 0 < value <= limits.INT32_MAX / 1_000):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0, at most 24 days")
    return value


def positive(text: str) -> int:
    """A number of something on the command line."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def coordinator_options(arguments: argparse.Namespace) -> CoordinatorOptions:
    """Raises SetupError when an argument or a setting is wrong."""
    require_places(arguments)
    config = load_config(arguments.config, arguments.set)
    if config.claims.topic:
        require_name(config.claims.topic, "claims.topic")
    return CoordinatorOptions(
        bootstrap_servers=arguments.bootstrap_servers,
        prefix=arguments.prefix,
        checkpoint=arguments.checkpoint,
        config=config,
        kafka=KafkaOptions.parse(arguments.kafka, config.kafka, arguments.kafka_file),
        status_file=arguments.status_file,
        is_rebuild=arguments.rebuild,
        accepts_loss=arguments.accept_loss and arguments.rebuild,
        owned=_cell_of(arguments, config),
    )


def _cell_of(arguments: argparse.Namespace, config: CoordinatorConfig) -> Owned:
    """The range of shards; what there is once for all of them runs in no job instance.

    Raises SetupError: it is no range, or the job instance would write history or follow claims.
    """
    if arguments.shards is None:
        return None
    owned = ShardRange.parse(arguments.shards)
    if not arguments.without_archive:
        raise SetupError(
            "A job instance writes no history: that of all shards is written by one job.",
            f"--shards {owned}",
            "Add --without-archive, and run one archive for all of them: coord submit archive",
        )
    if config.claims.topic and not arguments.without_claims:
        raise SetupError(
            "A job instance follows no claims: one job follows them for all shards.",
            f"--shards {owned}, claims.topic {config.claims.topic}",
            "Add --without-claims, and run one job for all claims: coord submit claims",
        )
    return owned


def archive_options(arguments: argparse.Namespace, options: CoordinatorOptions) -> ArchiveOptions:
    """The archive of the same prefix; its folder lies beside the coordinator's checkpoint."""
    return ArchiveOptions(
        bootstrap_servers=options.bootstrap_servers,
        prefix=options.prefix,
        tables=arguments.tables,
        checkpoint=f"{options.checkpoint.rstrip('/')}-archive",
        kafka=options.kafka,
        interval_seconds=options.config.engine.archive_interval_ms / 1000,
        max_offsets_per_trigger=options.config.engine.archive_offsets_per_trigger,
        accepts_loss=arguments.accept_loss,
    )


def claims_options(arguments: argparse.Namespace) -> ClaimsOptions:
    """Those of the job `claims`. Raises SetupError when an argument or a setting is wrong."""
    require_places(arguments)
    named = [f"claims.topic={arguments.topic}"] if arguments.topic else []
    config = load_config(arguments.config, [*arguments.set, *named])
    if not config.claims.topic:
        raise SetupError(
            "No coordination topic is named.",
            "claims.topic",
            "Name it: --topic __marshal, or claims.topic in the configuration.",
        )
    require_name(config.claims.topic, "claims.topic")
    kafka = KafkaOptions.parse(arguments.kafka, config.kafka, arguments.kafka_file)
    return ClaimsOptions(
        bootstrap_servers=arguments.bootstrap_servers,
        prefix=arguments.prefix,
        checkpoint=arguments.checkpoint,
        config=config,
        kafka=kafka,
        is_rebuild=arguments.rebuild,
    )


def claims_of_job(
    arguments: argparse.Namespace, options: CoordinatorOptions
) -> ClaimsOptions | None:
    """Those of the claims query beside the coordinator's, whose checkpoint lies beside, too.

    None: it is not wanted.
    """
    if arguments.without_claims or not options.config.claims.topic:
        return None
    return ClaimsOptions(
        bootstrap_servers=options.bootstrap_servers,
        prefix=options.prefix,
        checkpoint=f"{options.checkpoint.rstrip('/')}-claims",
        config=options.config,
        kafka=options.kafka,
        is_rebuild=arguments.rebuild_claims,
        rebuilds_if_empty=options.is_rebuild,
    )
