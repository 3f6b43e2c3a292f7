"""The command line of the jobs, and what it means."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from coordlib import limits
from coordlib.config import load_config
from coordlib.errors import SetupError
from coordlib.folders import folder_named
from coordlib.history.archive import ArchiveOptions
from coordlib.installation import settings_file
from coordlib.kafka.options import KafkaOptions
from coordlib.kafka.topics import require_prefix
from coordlib.redaction import secrets_of, without
from coordlib.streaming.query import CoordinatorOptions

_SERVER: Final = re.compile(r"[^\s,]+:[0-9]{1,5}")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints show no secret: they stand in the log of whoever starts the job."""

    def __init__(self, given: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._given = given

    def error(self, message: str) -> NoReturn:
        super().error(without(message, secrets_of(self._given)))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the coordination job's arguments; exits with 2 and usage when they are wrong."""
    settings = settings_file()
    parser = Parser(arguments, prog="coordinate", description="Run the coordinator.")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--prefix", default="coord", help="of every topic (default: coord)")
    parser.add_argument(
        "--checkpoint", required=True, help="folder or URI of the checkpoint; fixed for its life"
    )
    parser.add_argument("--tables", help="folder or URI of the Delta tables")
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
    parser.add_argument(
        "--without-archive", action="store_true", help="the job `archive` runs elsewhere"
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="begin a new checkpoint from the compacted topics"
    )
    parsed = parser.parse_args(arguments)
    if not parsed.without_archive and parsed.tables is None:
        parser.error("--tables is needed, or --without-archive")
    return parsed


def require_places(given: argparse.Namespace) -> None:
    """Check what both jobs are told of brokers, topics and folders, before Spark is started.

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
    if given.tables is not None:
        folder_named(given.tables, "--tables", may_be_uri=True)


def seconds(text: str) -> float:
    """An interval on the command line."""
    value = float(text)
    if not (math.isfinite(value) and 0 < value <= limits.DURATION_MAX_MS / 1_000):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
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
    return CoordinatorOptions(
        bootstrap_servers=arguments.bootstrap_servers,
        prefix=arguments.prefix,
        checkpoint=arguments.checkpoint,
        config=config,
        kafka=KafkaOptions.parse(arguments.kafka, config.kafka, arguments.kafka_file),
        status_file=arguments.status_file,
        is_rebuild=arguments.rebuild,
    )


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
    )
