"""confluent-kafka's configuration keys, as a coordinated consumer takes them, and its member.

Keys that name the group's timing and start position are ours; `bootstrap.servers`, `security.*`
and everything else go to all Kafka clients as they are. Keys whose promise cannot be kept are
refused rather than ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED

from coordlib.client.groups.assignors import Assignor, find_assignors
from coordlib.client.groups.member import AssignedMember, ClassicMember
from coordlib.client.kit.config import DECIDED_BY, PREFIX, boolean, decider_of, whole
from coordlib.client.kit.requests import Timing
from coordlib.client.kit.transport import Transport
from coordlib.core.wire.offsets import COORDINATOR, KAFKA
from coordlib.errors import SetupError
from coordlib.kafka.options import refuse_transactional

OnCommit = Callable[[Any, list[Any]], None]

#: The kinds of groups, as `group.protocol` names them (the key is KIP-848's).
CLASSIC_KIND, ASSIGNED_KIND = "classic", "assigned"
#: Keys that only one of the two kinds has, and what to do where they stand beside the other one.
_OF_KIND = {
    CLASSIC_KIND: {
        "group.instance.id": "Leave it out, or join a classic group.",
        "partition.assignment.strategy": "Name the coordinator's strategy: group.remote.assignor.",
    },
    ASSIGNED_KIND: {
        "group.remote.assignor": "Name the assignors: partition.assignment.strategy.",
        "group.capacity": "Leave it out, or set group.protocol to assigned.",
    },
}
#: How often a leader makes its group rebalance for changed topics, at most.
INTERVAL = "coord.rebalance.interval.ms"
#: How often stored offsets are committed, in librdkafka's bounds; 0: when they are let go.
COMMIT_INTERVAL = "auto.commit.interval.ms"
COMMIT_INTERVAL_MS, COMMIT_INTERVAL_MAX_MS = 5_000, 86_400_000
REFRESH = "topic.metadata.refresh.interval.ms"
#: OFFSET_STORED makes the data consumer look under a group id that never commits: its own "error".
_RESETS = {
    "earliest": OFFSET_BEGINNING,
    "beginning": OFFSET_BEGINNING,
    "smallest": OFFSET_BEGINNING,
    "latest": OFFSET_END,
    "end": OFFSET_END,
    "largest": OFFSET_END,
    "error": OFFSET_STORED,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """A consumer's configuration, taken apart."""

    group: str
    client: str | None
    instance: str | None
    rack: str | None
    prefix: str
    timing: Timing
    #: CLASSIC_KIND: the leader assigns; ASSIGNED_KIND: the coordinator does.
    kind: str
    assignors: tuple[Assignor, ...]
    #: The strategy for a server-assigned group; None: that of the group.
    strategy: str | None
    capacity: int
    auto_offset_reset: str
    on_commit: OnCommit | None
    #: How often stored offsets are committed; 0: only when they are let go; None: never.
    auto_commit_ms: int | None
    #: Whether what was returned is stored; else `store_offsets` stores.
    stores: bool
    #: Whether the coordinator decides about the transactions in the topics; else Kafka does.
    is_decided_here: bool
    #: Options for every Kafka client.
    common: dict[str, Any]

    @property
    def has_auto_commit(self) -> bool:
        """Whether the consumer commits by itself."""
        return self.auto_commit_ms is not None

    @property
    def start_offset(self) -> int:
        """Where to start without a committed offset: a logical offset of confluent-kafka."""
        return int(_RESETS[self.auto_offset_reset])


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Take a configuration apart. Raises SetupError, naming the key."""
    rest = dict(config)
    refuse_transactional(rest)
    kind = _kind(rest)
    reset = str(rest.pop("auto.offset.reset", "latest"))
    if reset not in _RESETS:
        raise SetupError("auto.offset.reset is none of " + ", ".join(_RESETS), repr(reset))
    decider = decider_of(rest.pop(DECIDED_BY, KAFKA))
    if not rest.get("group.id"):
        raise SetupError("A consumer needs group.id.")

    def number(key: str, otherwise: int) -> int:
        return whole(key, rest.pop(key, otherwise))

    usual = Timing()
    timing = Timing(
        session_timeout_ms=number("session.timeout.ms", usual.session_timeout_ms),
        rebalance_timeout_ms=number("max.poll.interval.ms", usual.rebalance_timeout_ms),
        heartbeat_interval_ms=number("heartbeat.interval.ms", usual.heartbeat_interval_ms),
        # Not taken out: all Kafka clients understand it.
        metadata_refresh_ms=whole(REFRESH, rest.get(REFRESH, usual.metadata_refresh_ms)),
        rebalance_interval_ms=number(INTERVAL, usual.rebalance_interval_ms),
    )
    if timing.rebalance_interval_ms < 0:
        raise SetupError(f"{INTERVAL} must be 0 or more.", str(timing.rebalance_interval_ms))
    if 3 * timing.heartbeat_interval_ms > timing.session_timeout_ms:
        raise SetupError("heartbeat.interval.ms must be at most a third of session.timeout.ms.")
    return Settings(
        group=str(rest.pop("group.id")),
        client=_text(rest.pop("client.id", None)),
        instance=_text(rest.pop("group.instance.id", None)),
        rack=_text(rest.get("client.rack") or None),
        prefix=str(rest.pop(PREFIX, "coord")),
        timing=timing,
        kind=kind,
        strategy=_text(rest.pop("group.remote.assignor", None)),
        capacity=number("group.capacity", 1),
        assignors=find_assignors(rest.pop("partition.assignment.strategy", "range")),
        auto_offset_reset=reset,
        on_commit=rest.pop("on_commit", None),
        auto_commit_ms=_auto_commit_ms(rest),
        stores=boolean("enable.auto.offset.store", rest.pop("enable.auto.offset.store", True)),
        is_decided_here=decider == COORDINATOR,
        common=rest,
    )


def member_of(settings: Settings, transport: Transport | None) -> ClassicMember | AssignedMember:
    """The member that these settings describe. Raises SetupError, CannotReach.

    Members of both kinds are used alike. They differ in who assigns, and in the partitions that
    on_revoke names.
    """
    common: dict[str, Any] = {
        "transport": transport,
        "client": settings.client,
        "instance": settings.instance,
        "prefix": settings.prefix,
        "timing": settings.timing,
    }
    if settings.kind == ASSIGNED_KIND:
        return AssignedMember(
            settings.group,
            settings.common,
            strategy=settings.strategy,
            capacity=settings.capacity,
            **common,
        )
    return ClassicMember(
        settings.group,
        settings.common,
        rack=settings.rack,
        assignors=settings.assignors,
        **common,
    )


def _auto_commit_ms(rest: dict[str, Any]) -> int | None:
    is_on = boolean("enable.auto.commit", rest.pop("enable.auto.commit", True))
    interval_ms = whole(COMMIT_INTERVAL, rest.pop(COMMIT_INTERVAL, COMMIT_INTERVAL_MS))
    if not 0 <= interval_ms <= COMMIT_INTERVAL_MAX_MS:
        bounds = f"{COMMIT_INTERVAL} is 0 to {COMMIT_INTERVAL_MAX_MS:,}."
        raise SetupError(bounds, str(interval_ms))
    return interval_ms if is_on else None


def _text(value: Any) -> str | None:
    """As confluent-kafka takes a number for the text of a key."""
    return None if value is None else str(value)


def _kind(rest: dict[str, Any]) -> str:
    """The kind of group. Keys of the other kind are refused: their promises could not be kept."""
    kind = str(rest.pop("group.protocol", CLASSIC_KIND))
    if kind not in _OF_KIND:
        raise SetupError(f"group.protocol is {CLASSIC_KIND} or {ASSIGNED_KIND}.", repr(kind))
    (other,) = set(_OF_KIND) - {kind}
    for key, hint in _OF_KIND[other].items():
        if key in rest:
            raise SetupError(f"{key} is not offered where group.protocol is {kind}.", "", hint)
    return kind
