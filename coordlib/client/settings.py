"""confluent-kafka's configuration keys, as a coordinated consumer understands them.

Keys that name the group's timing and start position are ours; `bootstrap.servers`, `security.*`
and everything else go to all Kafka clients as they are. Keys whose promise cannot be kept are
refused rather than ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED

from coordlib.client.assignor import Assignor
from coordlib.client.strategy import find_assignors
from coordlib.client.wording import Timing
from coordlib.errors import SetupError

OnCommit = Callable[[Any, list[Any]], None]

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
    assignors: tuple[Assignor, ...]
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
        assignors=find_assignors(rest.pop("partition.assignment.strategy", "range")),
        auto_offset_reset=reset,
        on_commit=rest.pop("on_commit", None),
        common=rest,
    )


def _refuse_promises(rest: dict[str, Any]) -> None:
    """Nothing is committed behind the caller's back, and the protocol is the classic one."""
    if str(rest.pop("enable.auto.commit", False)).lower() not in {"false", "0"}:
        raise SetupError(
            "enable.auto.commit is not offered.", "", "Call commit() when work is done."
        )
    if (protocol := str(rest.pop("group.protocol", "classic"))) != "classic":
        raise SetupError("group.protocol can only be classic.", repr(protocol))
