"""Settings of the coordinator, read from `coordinator.toml`. Unknown keys are errors.

Every field's default stands here; the file that is shipped states each with its reason.
Times are milliseconds. The core receives sections as values and reads nothing itself.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from coordlib import limits
from coordlib.errors import SetupError
from coordlib.installation import settings_file
from coordlib.redaction import name_alone

Positive = Annotated[int, Meta(ge=1)]
Duration = Annotated[int, Meta(ge=1, le=limits.DURATION_MAX_MS)]
#: Of a thread or a query that waits: at most 24 days, which Python, Spark and Kafka can all count.
Interval = Annotated[int, Meta(ge=0, le=limits.INT32_MAX)]
#: Of a batch: Spark counts partitions' shares of it in 64 bits.
Records = Annotated[int, Meta(ge=1, le=limits.INT32_MAX)]


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a shard, whatever kinds of entities it has."""

    #: Above this size new entities and members are refused. Existing members may use 25 % more.
    bytes_max: Positive = limits.SHARD_BYTES_MAX
    #: How often what has no deadline is looked at, as retention; at multiples on the log's time.
    check_interval_ms: Duration = 600_000


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of consumer groups, named as Kafka's broker settings without the `group.` prefix."""

    session_timeout_min_ms: Duration = limits.SESSION_TIMEOUT_MIN_MS
    session_timeout_max_ms: Duration = limits.SESSION_TIMEOUT_MAX_MS
    initial_rebalance_delay_ms: Annotated[int, Meta(ge=0, le=limits.DURATION_MAX_MS)] = 3_000
    #: Whether a first JoinGroup is answered MEMBER_ID_REQUIRED (KIP-394), for foreign clients.
    requires_member_id: bool = False
    max_size: Positive = limits.GROUP_SIZE_MAX
    groups_per_shard_max: Positive = limits.GROUPS_PER_SHARD_MAX
    #: In each shard, on the log's time; the groups of five seconds may come at once.
    new_groups_per_second_max: Annotated[int, Meta(ge=1, le=1_000_000)] = (
        limits.NEW_GROUPS_PER_SECOND_MAX
    )
    offset_metadata_length_max: Positive = limits.OFFSET_METADATA_LENGTH_MAX
    offsets_per_group_max: Positive = limits.OFFSETS_PER_GROUP_MAX
    offsets_bytes_per_group_max: Positive = limits.OFFSETS_BYTES_PER_GROUP_MAX
    offsets_retention_ms: Duration = 7 * 24 * 3_600_000


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the job runs; none of these changes the decisions of a group."""

    #: Records per micro-batch, at most; fewer where they are large (`worker_memory_bytes`).
    max_offsets_per_trigger: Records = 50_000
    #: Memory that one Python worker may use; bounds the bytes of requests in a batch (conf).
    worker_memory_bytes: Annotated[int, Meta(ge=limits.WORKER_MEMORY_BYTES_MIN)] = (
        limits.WORKER_MEMORY_BYTES
    )
    #: How long the source's fetch may wait at the broker when it has read its range (below).
    fetch_wait_ms: Interval = 5
    #: Shortest time between two batches; 0 starts the next one at once.
    trigger_interval_ms: Interval = 0
    #: How often lag is sampled; 0: never.
    lag_interval_ms: Interval = 30_000
    #: Groups whose offsets are copied to Kafka's own groups of these names; `^…` is an expression.
    mirror_offsets: tuple[str, ...] = ()
    archive_interval_ms: Annotated[int, Meta(ge=1, le=limits.INT32_MAX)] = 30_000
    #: Records per batch of the archive, about; while there are more the next one begins at once.
    archive_offsets_per_trigger: Records = 200_000
    #: How often the driver looks for new topics and partitions; 0: never.
    topic_watch_interval_ms: Interval = 5_000
    #: How long a Kafka transaction of the sink may stay open before the broker aborts it.
    transaction_timeout_ms: Annotated[int, Meta(ge=1_000, le=limits.INT32_MAX)] = 60_000
    #: Whether outputs are checked against the group invariants in production too.
    check_invariants: bool = False


class AssignedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of server-assigned groups, beside the bounds of all groups."""

    #: Entry points of the group `coordlib.strategies` that members may choose.
    strategies: list[str] = []


class ClaimsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims query. None of these changes a judgement: every reader of the topic agrees."""

    #: The coordination topic; empty: there is no such query.
    topic: str = ""
    trigger_interval_ms: Interval = 2_000
    #: Records per batch, at most.
    max_offsets_per_trigger: Records = 200_000


class BrokersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of clusters of brokers."""

    session_timeout_min_ms: Duration = limits.SESSION_TIMEOUT_MIN_MS
    session_timeout_max_ms: Duration = limits.SESSION_TIMEOUT_MAX_MS
    release_timeout_min_ms: Duration = limits.RELEASE_TIMEOUT_MIN_MS
    release_timeout_max_ms: Duration = limits.RELEASE_TIMEOUT_MAX_MS
    clusters_per_shard_max: Positive = limits.CLUSTERS_PER_SHARD_MAX
    brokers_max: Positive = limits.BROKERS_MAX
    partitions_max: Positive = limits.CLUSTER_PARTITIONS_MAX
    #: Leaderships that one demand asks for; the next demand follows the Release.
    rows_per_demand_max: Annotated[int, Meta(ge=1, le=limits.ROWS_PER_DEMAND_MAX)] = (
        limits.ROWS_PER_DEMAND_MAX
    )


class TransactionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of transactions, and of offsets that wait for their decision."""

    pending_per_group_max: Positive = limits.PENDING_PER_GROUP_MAX
    #: With the offsets that they may become.
    pending_bytes_per_group_max: Positive = limits.PENDING_BYTES_PER_GROUP_MAX
    ids_per_shard_max: Positive = limits.TXN_IDS_PER_SHARD_MAX
    timeout_min_ms: Duration = limits.TXN_TIMEOUT_MIN_MS
    timeout_max_ms: Duration = limits.TXN_TIMEOUT_MAX_MS
    partitions_max: Annotated[int, Meta(ge=1, le=limits.TXN_PARTITIONS_MAX)] = (
        limits.TXN_PARTITIONS_MAX
    )
    groups_max: Annotated[int, Meta(ge=1, le=limits.TXN_GROUPS_MAX)] = limits.TXN_GROUPS_MAX
    #: Of an id that nobody uses, on the log's time.
    retention_ms: Duration = 7 * 24 * 3_600_000


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in `coordinator.toml`."""

    shard: ShardConfig = ShardConfig()
    group: GroupConfig = GroupConfig()
    assigned: AssignedConfig = AssignedConfig()
    claims: ClaimsConfig = ClaimsConfig()
    brokers: BrokersConfig = BrokersConfig()
    transactions: TransactionsConfig = TransactionsConfig()
    engine: EngineConfig = EngineConfig()
    #: Passed to every Kafka client, in librdkafka's spelling: security.protocol, sasl.*, ssl.*
    kafka: dict[str, str] = {}


def load_config(path: Path | None, overrides: list[str] | None = None) -> CoordinatorConfig:
    """Read the file, then apply `section.key=value` overrides. Raises SetupError."""
    tree: dict[str, Any] = {}
    if path is not None:
        tree = _read(path)
    for override in overrides or []:
        _apply(tree, override)
    try:
        config = msgspec.convert(tree, CoordinatorConfig, strict=False)
    except msgspec.ValidationError as problem:
        raise SetupError(
            f"A setting is wrong: {problem}.",
            str(path or "command line"),
            f"Correct it; {settings_file()} names every key with its default.",
        ) from problem
    _refuse_empty_ranges(config, str(path or "command line"))
    return config


#: Settings with a least and a greatest value.
_RANGES: Final = (
    ("group", "session_timeout"),
    ("brokers", "session_timeout"),
    ("brokers", "release_timeout"),
    ("transactions", "timeout"),
)


def _refuse_empty_ranges(config: CoordinatorConfig, where: str) -> None:
    """A least value above the greatest one lets nobody in: each member would be refused."""
    for section, name in _RANGES:
        least, most = (
            getattr(getattr(config, section), f"{name}_{end}_ms") for end in ("min", "max")
        )
        if least > most:
            raise SetupError(
                f"{section}.{name}_min_ms is {least}, above {section}.{name}_max_ms, {most}.",
                where,
                "Correct one of them: no timeout lies between.",
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as problem:
        raise SetupError("The configuration file is missing.", str(path), "Name one.") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SetupError(f"This is no TOML: {problem}.", str(path), "Correct it.") from problem
    except OSError as problem:
        raise SetupError(
            "The configuration file cannot be read.",
            f"{path}: {problem.strerror}",
            "Name a file that this user can read.",
        ) from problem


def _apply(tree: dict[str, Any], override: str) -> None:
    name, equals, value = override.partition("=")
    section, dot, key = name.partition(".")
    if not (equals and dot and key):
        raise SetupError(
            "A setting has the form section.key=value.",
            f"--set {name_alone(override)}",
            "For example --set group.initial_rebalance_delay_ms=0.",
        )
    keys = tree.setdefault(section, {})
    if isinstance(keys, dict):  # else the file is wrong, and is refused for that
        keys[key] = _listed(value) if value.startswith("[") else value


def _listed(value: str) -> Any:
    """A list is written as in the file: ["a","b"]."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as problem:
        raise SetupError(
            f"{value} is no list: {problem}.",
            "command line",
            "For example --set 'engine.mirror_offsets=[\"billing\"]'.",
        ) from problem
