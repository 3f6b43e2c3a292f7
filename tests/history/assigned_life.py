"""A server-assigned group's life, as the real core tells it, in Delta tables without a JVM."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import write_deltalake

from coordlib.core.engine.effects import COMMITTED
from coordlib.core.engine.effects import EVENTS as EVENTS_TOPIC
from coordlib.core.groups.assigned.group import Member
from coordlib.core.wire import api
from coordlib.core.wire.stored import LagSample
from coordlib.history.tables import COLUMNS, EVENTS, LAG, PARTITIONED_BY, SNAPSHOTS, path_of
from coordlib.job.background.committed_log import CommittedOffsets, read_record
from coordlib.job.background.lag_sampler import LagSampler
from coordlib.kafka.logs import Bounds
from tests.core.groups.test_topics import listing
from tests.tools.driving import Conversation, commit, heartbeat, leave

START = datetime(2026, 3, 1, 15, 0, tzinfo=UTC)
GROUP, TOPIC = "click-readers", "clicks"
SESSION_S = 10
SAMPLE_MS = 1_000
#: Records a second: what comes to partition 0, to each next one that much more, and what a member
#: reads of each partition at most.
PRODUCED, PRODUCED_MORE, READ = 100, 15, 350
_TYPES = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


class Life:
    """Members come and go; whoever is asked to let go does so 400 ms later, and commits.

    Their topic grows all the while, and its lag is sampled as the driver does it.
    """

    def __init__(self, partitions: int = 6) -> None:
        self.talk = Conversation()
        self.talk.now_ms = int(START.timestamp() * 1000)
        self.talk.send(listing({TOPIC: partitions}))
        #: Next record to be read of each partition.
        self._read = dict.fromkeys(range(partitions), 0)
        self._offsets, self._taken_in = CommittedOffsets(), 0
        self.samples: list[LagSample] = []
        self._sampler = LagSampler(
            lambda places: {each: Bounds(0, self.log_end(each.partition)) for each in places},
            self.samples.append,
            SAMPLE_MS,
            now_ms=lambda: self.talk.now_ms,
            now_s=lambda: self.talk.now_ms / 1000,
        )

    def log_end(self, partition: int) -> int:
        grown_ms = self.talk.now_ms - int(START.timestamp() * 1000)
        return grown_ms * (PRODUCED + PRODUCED_MORE * partition) // 1000

    def sample(self) -> None:
        """What the driver does beside the batches: it reads its own output back, and looks."""
        new, self._taken_in = self.talk.outputs[self._taken_in :], len(self.talk.outputs)
        for each in new:
            change = read_record(each.key, each.value) if each.topic == COMMITTED else None
            if change is not None and (self._offsets.put(*change) or change.offset is None):
                self._sampler.changed(*change)
        self._sampler.turn(self._offsets)

    def pass_time(self, ms: int) -> None:
        self.talk.tick(after_ms=ms)
        self.sample()

    @property
    def members(self) -> dict[str, Member]:
        """By client."""
        group: Any = self.talk.group(GROUP)
        return {each.client: each for each in group.members.values()}

    def join(self, client: str, after_ms: int = 1_000, settles: bool = True) -> None:
        self.talk.send(
            api.Subscribe(
                v=1, id=f"{client}-1", client=client, group=GROUP, topics=(TOPIC,),
                session_timeout_ms=SESSION_S * 1000, rebalance_timeout_ms=20_000,
            ),
            after_ms,
        )  # fmt: skip
        if settles:
            self.settle()

    def settle(self) -> None:
        """Until nobody is asked for anything any more."""
        self.pass_time(50)
        while owing := [(each, d) for each in self.members.values() for d in each.demands]:
            for each, demand in owing:
                self.let_go(each, demand.timer.cause, demand.partitions.get(TOPIC, ()))

    def let_go(self, member: Member, cause: int, partitions: Any, after_ms: int = 400) -> None:
        rows = tuple(api.CommittedOffset(TOPIC, each, self._read[each]) for each in partitions)
        generation = self.talk.group(GROUP).generation
        self.talk.send(
            api.Release(
                v=1, id=f"{member.client}-{self.talk.next_offset}", client=member.client,
                group=GROUP, generation=generation, member=member.member, cause=cause, offsets=rows,
            ),
            after_ms,
        )  # fmt: skip
        self.pass_time(50)

    def work(self, seconds: int, *clients: str) -> None:
        """These send heartbeats and commit; others are silent."""
        for _ in range(seconds):
            for client in clients:
                self._work(self.members[client])
            self.pass_time(1_000)
            for client in clients:
                for demand in self.members[client].demands:
                    self.let_go(
                        self.members[client], demand.timer.cause, demand.partitions.get(TOPIC, ())
                    )

    def _work(self, member: Member) -> None:
        generation = self.talk.group(GROUP).generation
        id_ = f"{member.client}-{self.talk.next_offset}"
        self.talk.send(heartbeat(member.client, generation, member.member, group=GROUP, id=id_))
        owned = member.owned.get(TOPIC, ())
        for each in owned:
            self._read[each] = min(self._read[each] + READ, self.log_end(each))
        rows = tuple(api.CommittedOffset(TOPIC, each, self._read[each]) for each in owned)
        if rows:
            self.talk.send(
                commit(
                    *(member.client, generation, member.member),
                    group=GROUP,
                    id=f"{id_}c",
                    offsets=rows,
                )
            )

    def leave(self, client: str) -> None:
        member = self.members[client].member
        self.talk.send(leave(client, member, group=GROUP), 500)
        self.pass_time(50)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [
            json.loads(each.value)
            for each in self.talk.outputs
            if each.topic == EVENTS_TOPIC and each.value is not None
        ]

    def write(self, tables: Path) -> Path:
        """The tables as the archive writes them; no snapshots."""
        samples = [row for each in self.samples for row in _lag_rows(each)]
        return write_tables(tables, [row_of_event(each) for each in self.events], samples)


def a_life_of_an_assigned_group() -> Life:
    """Two share, a third joins, one of the first two dies, the others leave."""
    life = Life()
    life.join("query-1")
    life.join("query-2")
    life.work(6, "query-1", "query-2")
    life.join("member-5")
    life.work(4, "query-1", "query-2", "member-5")
    life.work(SESSION_S + 8, "query-1", "member-5")
    life.leave("member-5")
    life.work(2, "query-1")
    life.leave("query-1")
    return life


def write_tables(
    tables: Path, events: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]] = ()
) -> Path:
    """Delta tables of these rows, as the archive lays them out."""
    for name, some in {EVENTS: events, SNAPSHOTS: (), LAG: samples}.items():
        schema = pa.schema([(column, _TYPES[kind]) for column, kind in COLUMNS[name].items()])
        table = pa.Table.from_pylist(list(some), schema)
        write_deltalake(path_of(str(tables), name), table, partition_by=[*PARTITIONED_BY[name]])
    return tables


def row_of_event(event: dict[str, Any]) -> dict[str, Any]:
    """A record of the events topic as its row of the table."""
    time = datetime.fromtimestamp(event["time_ms"] / 1000, UTC)
    _, shard, offset, _ = event["event_id"].rsplit("-", 3)
    return {
        "event_id": event["event_id"],
        "time": time,
        "date": time.date(),
        "shard": int(shard[1:]),
        "log_offset": int(offset),
        "group_id": event["group"],
        "protocol": event["protocol"],
        "type": event["type"],
        "generation": event["generation"],
        "member_id": event.get("member", ""),
        "cause": event["cause"],
        "reason": event.get("reason", ""),
        "detail": json.dumps(event.get("detail", {})),
        "kind": event["kind"],
        "space": event["space"],
    }


def _lag_rows(sample: LagSample) -> list[dict[str, Any]]:
    time = datetime.fromtimestamp(sample.time_ms / 1000, UTC)
    columns = {"time": time, "date": time.date(), "group_id": sample.group}
    return [columns | msgspec.structs.asdict(line) for line in sample.lines]
