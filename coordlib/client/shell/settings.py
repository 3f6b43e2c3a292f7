"""confluent-kafka's configuration keys, as a coordinated consumer understands them.

Keys that name the group's timing and start position are ours; `bootstrap.servers`, `security.*`
and everything else go to all Kafka clients as they are. Keys whose promise cannot be kept are
refused rather than ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED

from coordlib.client.classic.assignor import Assignor
from coordlib.client.classic.strategy import find_assignors
from coordlib.client.machine.wording import Timing
from coordlib.errors import SetupError

OnCommit = Callable[[Any, list[Any]], None]

CLASSIC, ASSIGNED = "classic", "assigned"
#: Keys that only one of the two protocols knows, and where else to say so.
_OF_PROTOCOL = {
    CLASSIC: {
        "group.instance.id": "Leave it out, or join a classic group.",
        "partition.assignment.strategy": "Name the coordinator's strategy: group.remote.assignor.",
    },
    ASSIGNED: {
        "group.remote.assignor": "Name the assignors: partition.assignment.strategy.",
        "group.capacity": "Leave it out, or set group.protocol to assigned.",
    },
}
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
    #: `classic`: the members divide; `assigned`: the coordinator does.
    protocol: str
    assignors: tuple[Assignor, ...]
    #: How the coordinator is to divide; None: as the group does.
    strategy: str | None
    capacity: int
    auto_offset_reset: str
    on_commit: OnCommit | None
    #: What goes to every Kafka client.
    common: dict[str, Any]

    @property
    def start_offset(self) -> int:
        """Where to start without a committed offset: a logical offset of confluent-kafka."""
        return int(_RESETS[self.auto_offset_reset])


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Take a configuration apart. Raises SetupError, naming the key."""
    rest = dict(config)
    _refuse_promises(rest)
    protocol = _protocol(rest)
    reset = str(rest.pop("auto.offset.reset", "latest"))
    if reset not in _RESETS:
        raise SetupError("auto.offset.reset is none of " + ", ".join(_RESETS), repr(reset))
    if not rest.get("group.id"):
        raise SetupError("A consumer needs group.id.")
    usual = Timing()
    timing = Timing(
        session_timeout_ms=int(rest.pop("session.timeout.ms", usual.session_timeout_ms)),
        rebalance_timeout_ms=int(rest.pop("max.poll.interval.ms", usual.rebalance_timeout_ms)),
        heartbeat_interval_ms=int(rest.pop("heartbeat.interval.ms", usual.heartbeat_interval_ms)),
        # Not taken out: all Kafka clients understand it.
        metadata_refresh_ms=int(rest.get(REFRESH, usual.metadata_refresh_ms)),
    )
    if 3 * timing.heartbeat_interval_ms > timing.session_timeout_ms:
        raise SetupError("heartbeat.interval.ms must be at most a third of session.timeout.ms.")
    return Settings(
        group=str(rest.pop("group.id")),
        client=rest.pop("client.id", None),
        instance=rest.pop("group.instance.id", None),
        rack=rest.get("client.rack") or None,
        prefix=str(rest.pop("coord.prefix", "coord")),
        timing=timing,
        protocol=protocol,
        strategy=rest.pop("group.remote.assignor", None),
        capacity=int(rest.pop("group.capacity", 1)),
        assignors=find_assignors(rest.pop("partition.assignment.strategy", "range")),
        auto_offset_reset=reset,
        on_commit=rest.pop("on_commit", None),
        common=rest,
    )


def _refuse_promises(rest: dict[str, Any]) -> None:
    """Nothing is committed behind the caller's back."""
    if str(rest.pop("enable.auto.commit", False)).lower() not in {"false", "0"}:
        raise SetupError(
            "enable.auto.commit is not offered.", "", "Call commit() when work is done."
        )


def _protocol(rest: dict[str, Any]) -> str:
    """Who divides. What the other protocol's keys promise would not be kept."""
    protocol = str(rest.pop("group.protocol", CLASSIC))
    if protocol not in _OF_PROTOCOL:
        raise SetupError(f"group.protocol is {CLASSIC} or {ASSIGNED}.", repr(protocol))
    (other,) = set(_OF_PROTOCOL) - {protocol}
    for key, mend in _OF_PROTOCOL[other].items():
        if key in rest:
            raise SetupError(f"{key} is not offered where group.protocol is {protocol}.", "", mend)
    return protocol
