"""Records as the engine writes them, for tests of what is made of them."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from coordlib.core.wire import codec, stored
from coordlib.history.plan import Source

START = datetime(2026, 3, 1, 23, 59, 50, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
INCARNATION = "a-B_9-xyz"  # topic ids are base64 for URLs: they contain - and _
#: Whose records these are.
SOURCE = Source("coord", {"events": "of-events", "groups": "of-groups", "lag": "of-lag"})
KAFKA_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Log:
    """The output topics of one engine, filled record by record."""

    prefix: str = "coord"
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def put(
        self, topic: str, key: bytes, value: bytes | None, seconds: float, partition: int = 0
    ) -> None:
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + 1
        self.rows.append((key, value, f"{self.prefix}.{topic}", partition, offset, at(seconds)))

    def event(
        self,
        type_: str,
        seconds: float,
        *,
        group: str = "payments",
        kind: str | None = "classic",
        space: str | None = None,
        generation: int = 1,
        member: str = "",
        reason: str = "",
        cause: str | None = None,
        partition: int = 0,
        of_record: tuple[int, int] | None = None,
        **detail: Any,
    ) -> None:
        """`of_record`: the record that has caused it, and which of its events it is."""
        offset = self.ends.get(("events", partition), 0)
        record, ordinal = (100 + offset, 0) if of_record is None else of_record
        coordinate = f"r{partition}-{record}"
        event = stored.Event(
            event_id=f"{INCARNATION}-{coordinate}-{ordinal}",
            time_ms=START_MS + round(seconds * 1000),
            group=group,
            protocol=kind,
            type=type_,
            generation=generation,
            member=member,
            cause=cause or coordinate,
            reason=reason,
            detail=detail,
            kind=kind,
            space=space,
        )
        self.put("events", group.encode(), codec.encode(event), seconds, partition)

    def group(
        self, state: str | None, seconds: float, *, group: str = "payments", **fields: Any
    ) -> None:
        value = {"kind": "classic", "v": 1, "group": group, "state": state, "from_later": 1}
        encoded = None if state is None else json.dumps(value | fields).encode()
        self.put("groups", group.encode(), encoded, seconds)

    def committed(
        self, topic: str, partition: int, offset: int | None, seconds: float, member: str = "m1"
    ) -> None:
        key = json.dumps(["payments", topic, partition]).encode()
        value = None
        if offset is not None:
            value = codec.encode(
                stored.CommittedValue(
                    offset=offset,
                    leader_epoch=-1,
                    metadata="",
                    commit_ms=START_MS + round(seconds * 1000),
                    commit_clock_ms=START_MS + round(seconds * 1000),
                    generation=1,
                    member=member,
                )
            )
        self.put("committed", key, value, seconds)

    def lag(
        self,
        seconds: float,
        *lines: dict[str, Any],
        group: str = "payments",
        below: str = "lag",
        **of: str,
    ) -> None:
        value = codec.encode(
            stored.LagSample(
                time_ms=START_MS + round(seconds * 1000),
                interval_ms=30_000,
                group=group,
                lines=tuple(stored.LagLine(**line) for line in lines),
                **of,
            )
        )
        self.put(below, group.encode(), value, seconds)


def a_life_of_a_group() -> Log:
    """Two members share a topic, one dies, the other takes over and commits.

    It crosses midnight between the generations.
    """
    log = Log()
    log.event("GroupCreated", 0, reason="first member joins", generation=0)
    for name in ("m1", "m2"):
        log.event("MemberJoined", 0.1, member=name, generation=0, client=f"client of {name}")
    log.event("RebalanceStarted", 0.1, reason="member joined", generation=0)
    log.event(
        *("GenerationStarted", 3.0), reason="member joined",
        protocol="range", leader="m1", members=["m1", "m2"], duration_ms=2900,
    )  # fmt: skip
    log.event(
        "AssignmentIssued", 3.2, member="m1", fence=104, sync=104, partitions={"orders": [0, 1]}
    )
    log.event(
        *("AssignmentIssued", 3.2),
        member="m2",
        fence=104,
        sync=104,
        partitions={"orders": [2], "a.b": [0]},
    )
    log.event(
        *("OffsetsCommitted", 5.0), member="m2",
        offsets=[{"topic": "orders", "partition": 2, "offset": 41}],
    )  # fmt: skip
    log.event("CommitRefused", 6.0, member="m9", reason="UNKNOWN_MEMBER_ID", client="É\n")
    log.event("MemberRemoved", 30.0, member="m2", reason="session expired", client="client of m2")
    log.event("RebalanceStarted", 30.0, reason="session expired")
    log.event(
        *("GenerationStarted", 33.0), reason="session expired", generation=2,
        protocol="range", leader="m1", members=["m1"], duration_ms=3000,
    )  # fmt: skip
    log.event(
        *("AssignmentIssued", 33.5), member="m1", generation=2, fence=112, sync=112,
        partitions={"orders": [0, 1, 2], "a.b": [0]},
    )  # fmt: skip
    log.event(
        *("OffsetsCommitted", 40.0), member="m1", generation=2,
        offsets=[
            {"topic": "orders", "partition": 2, "offset": 60},
            {"topic": "a.b", "partition": 0, "offset": 7},
        ],
    )  # fmt: skip
    log.event(
        *("RequestRejected", 41.0), group="", kind=None, generation=-1, reason="No JSON object",
        error="INVALID_REQUEST", client="", bytes="e30=",
    )  # fmt: skip
    for seconds, client in ((42.0, "late"), (43.0, "later")):
        log.event(
            *("RequestRejected", seconds), generation=2, reason="Offer another protocol.",
            error="INCONSISTENT_GROUP_PROTOCOL", request="JoinGroup", client=client,
        )  # fmt: skip
    log.event(
        *("CommitRefused", 44.0), member="m2", generation=2, reason="PARTITION_NOT_OWNED",
        client="c2", request_generation=1, request="Release",
        offsets=[{"topic": "a", "partition": 2, "offset": 9, "error": "PARTITION_NOT_OWNED"}],
    )  # fmt: skip
    member = {"client": "c1", "instance": None, "session_timeout_ms": 45_000, "joined_ms": START_MS}
    members = {"m1": member | {"protocols": [{"name": "range", "metadata": "AAE="}]}}
    log.group("Stable", 3.2, generation=1, protocol="range", leader="m1", members=members)
    log.group("Stable", 33.5, generation=2, protocol="range", leader="m1", members=members)
    log.group("Empty", 34, group="gone", generation=3, members={})
    log.group(None, 35, group="gone")
    log.committed("orders", 2, 41, 5.0, "m2")
    log.committed("orders", 2, 60, 40.0)
    log.committed("a.b", 0, 7, 40.0)
    log.committed("old", 0, 1, 40.0)
    log.committed("old", 0, None, 42.0)
    orders = {"topic": "orders", "partition": 2, "log_start": 50, "log_end": 70}
    behind = {"lag": 20, "lag_seconds": 12.5, "is_at_least": True, "lost": 9}
    log.lag(35.0, orders | behind | {"committed": 41})
    gone = {"topic": "a.b", "partition": 0, "committed": 7}
    log.lag(45.0, orders | {"committed": 60, "lag": 10, "lag_seconds": 0.5, "lost": 0}, gone)
    old = {"topic": "old", "partition": 0}
    cut = {"log_start": 0, "log_end": 0, "lag": 0, "lag_seconds": 0.0, "lost": 0}
    log.lag(41.0, old | cut | {"committed": 1, "is_beyond_end": True})
    log.lag(45.0, old | {"committed": None})
    return log
