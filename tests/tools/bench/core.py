"""The pure core alone: bytes of requests in, effects as bytes out; no Kafka, no Spark, one core.

Heartbeats are judged as the job judges them: from a saved blob to the next one, so that reading
and writing the shard's state is part of the figure, and the size of a batch matters. A rebalance
is one more member for a group: its JoinGroup, everybody's rejoin, everybody's SyncGroup.
"""

import time
from collections.abc import Sequence
from typing import Any

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.wire import api, codec
from tests.tools.bench.figures import percentile, tell, tell_machine
from tests.tools.core import Fold, InputRecord, ShardSettings, fold, of_groups

INCARNATION = "bench000"
SETTINGS = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=4,
    incarnation=INCARNATION,
    # All groups are made at one moment of the log.
    families=of_groups(initial_rebalance_delay_ms=0, new_groups_per_second_max=1_000_000),
)
START_MS = 1_700_000_000_000
METADATA = bytes(40)
SHARE = bytes(30)

COMMITTERS, OFFSETS = 100, 10_000
#: Joins after which the stock group takes no more.
FULL, REFUSED = 1_100, 20_000


class Log:
    """A request log in memory: what is written gets the next offset and the time of the log."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.now_ms = START_MS

    def write(self, request: api.AnyRequest) -> InputRecord:
        record = InputRecord(REQUESTS, self.next_offset, self.now_ms, codec.encode(request))
        self.next_offset += 1
        return record


class Group:
    """Requests of a group's members, by their numbers; ids follow from where the joins stand."""

    def __init__(self, name: str, log: Log) -> None:
        self.name, self.log = name, log
        self.ids: list[str] = []

    def join(self, number: int, generation: int = -1) -> InputRecord:
        """The first JoinGroup of the next number, or a rejoin of a known one."""
        if number == len(self.ids):
            self.ids.append(f"c{number}-{INCARNATION}-0-{self.log.next_offset}")
            member = ""
        else:
            member = self.ids[number]
        return self.log.write(
            api.JoinGroup(
                **self._envelope(number),
                member=member,
                generation=generation,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=300_000,
                protocol_type="consumer",
                protocols=(api.Protocol(name="range", metadata=METADATA),),
            )
        )

    def sync(self, number: int, generation: int) -> InputRecord:
        """The leader is number 0, and gives everybody a share."""
        shares = [api.MemberAssignment(each, SHARE) for each in self.ids] if number == 0 else []
        return self.log.write(
            api.SyncGroup(
                **self._envelope(number),
                generation=generation,
                member=self.ids[number],
                assignments=tuple(shares),
            )
        )

    def heartbeat(self, number: int, generation: int) -> InputRecord:
        member = self.ids[number]
        return self.log.write(
            api.Heartbeat(**self._envelope(number), generation=generation, member=member)
        )

    def commit(self, number: int, generation: int, first: int, count: int) -> InputRecord:
        """Positions of `count` partitions from `first` on."""
        rows = (api.CommittedOffset("t", first + n, self.log.next_offset) for n in range(count))
        return self.log.write(
            api.OffsetCommit(
                **self._envelope(number),
                generation=generation,
                member=self.ids[number],
                offsets=tuple(rows),
            )
        )

    def grow(self, generation: int) -> list[InputRecord]:
        """One more member: its join, the others' rejoins, and everybody's syncs."""
        known = len(self.ids)
        joins = [self.join(known), *(self.join(n, generation) for n in range(known))]
        return joins + [self.sync(n, generation + 1) for n in range(known + 1)]

    def _envelope(self, number: int) -> dict[str, Any]:
        request = f"0123456789abcdef-{self.log.next_offset}"
        return {"v": 1, "id": request, "client": f"c{number}", "group": self.name, "reply": 0}


def settled(
    groups: int, members: int, how: ShardSettings = SETTINGS
) -> tuple[list[Group], Log, bytes]:
    """A shard whose groups all have their members in generation 2, and its blob."""
    log = Log()
    made = [Group(f"group-{number}", log) for number in range(groups)]
    records: list[InputRecord] = []
    for group in made:
        records += [group.join(0), group.sync(0, 1)]
        records += [group.join(n) for n in range(1, members)]
        records += [group.join(0, 1), *(group.sync(n, 2) for n in range(members))]
    records.append(log.write(api.Tick(v=1, published=log.next_offset - 1)))
    return made, log, fold(None, records, how).blob


def heartbeat_rate(groups: int, members: int, batch: int, repeats: int) -> dict[str, float]:
    """Heartbeats per second, in batches of this size, over a shard of this size."""
    made, log, blob = settled(groups, members)
    beating = [(group, number) for number in range(members) for group in made]
    rates, position = [], 0
    for _ in range(repeats):
        log.now_ms += 300
        records = []
        for _ in range(batch):
            group, number = beating[position % len(beating)]
            position += 1
            records.append(group.heartbeat(number, 2))
        took_s, outcome = _timed(blob, records)
        assert all(output.topic == "responses" and output.key == b"" for output in outcome.outputs)
        blob = outcome.blob
        rates.append(batch / took_s)
    return {
        "heartbeats_per_s": round(percentile(rates, 0.5)),
        "best_per_s": round(max(rates)),
        "blob_bytes": len(blob),
    }


def rebalance_time(members: int, repeats: int) -> dict[str, float]:
    """Milliseconds of one core for a whole rebalance that ends with this many members."""
    times = []
    for _ in range(repeats):
        log = Log()
        group = Group("group", log)
        records, generation = [group.join(0), group.sync(0, 1)], 1
        if members > 2:
            records += [group.join(n) for n in range(1, members - 1)]
            records += [group.join(0, 1), *(group.sync(n, 2) for n in range(members - 1))]
            generation = 2
        blob = fold(None, records, SETTINGS).blob
        took_s, outcome = _timed(blob, group.grow(generation))
        answered = sum(output.topic == "assignments" for output in outcome.outputs)
        assert answered == members, f"{answered} of {members} were given a share"
        times.append(took_s * 1000)
    return {"median_ms": round(percentile(times, 0.5), 2), "best_ms": round(min(times), 2)}


def commit_time(members: int, partitions: int, repeats: int) -> dict[str, float]:
    """Milliseconds of one core in a group that keeps so many offsets.

    For a round of commits by all its members, for a batch with one member's commit, and for a batch
    of everybody's heartbeats, which should not notice.
    """
    (group,), log, blob = settled(groups=1, members=members)
    share = partitions // members
    rounds, single = [], []
    for _ in range(repeats):
        records = [group.commit(n, 2, n * share, share) for n in range(members)]
        took_s, outcome = _timed(blob, records)
        written = sum(output.topic == "committed" for output in outcome.outputs)
        assert written == members * share, f"{written} of {partitions} were committed"
        rounds.append(took_s * 1000)
        blob = outcome.blob
        took_s, outcome = _timed(blob, [group.commit(0, 2, 0, share)])
        single.append(took_s * 1000)
        blob = outcome.blob
    log.now_ms += 300
    quiet_s, outcome = _timed(blob, [group.heartbeat(n, 2) for n in range(members)])
    return {
        "round_ms": round(percentile(rounds, 0.5), 2),
        "one_commit_ms": round(percentile(single, 0.5), 2),
        "heartbeats_of_all_ms": round(quiet_s * 1000, 2),
    }


def refusal_rate(batch: int, repeats: int) -> dict[str, float]:
    """JoinGroups of ever-new ids per second that a full group refuses, answers included."""
    log = Log()
    group, rates = Group("group", log), []
    blob = fold(None, [group.join(n) for n in range(FULL)], SETTINGS).blob
    for _ in range(repeats):
        log.now_ms += 300
        first = len(group.ids)
        took_s, outcome = _timed(blob, [group.join(first + n) for n in range(batch)])
        answered = sum(
            output.topic == "responses" and output.key != b"" for output in outcome.outputs
        )
        assert answered == batch, f"{answered} of {batch} were answered"
        blob = outcome.blob
        rates.append(batch / took_s)
    written = sum(len(output.key) + len(output.value or b"") for output in outcome.outputs)
    return {
        "refused_per_s": round(percentile(rates, 0.5)),
        "best_per_s": round(max(rates)),
        "outputs": len(outcome.outputs),
        "bytes_each": round(written / batch),
    }


def _timed(blob: bytes, records: Sequence[InputRecord]) -> tuple[float, Fold]:
    began = time.process_time()
    outcome = fold(blob, records, SETTINGS)
    return time.process_time() - began, outcome


def run(*, groups: int, members: int, batches: Sequence[int], rebalance: int, repeats: int) -> int:
    """All figures of the core, as JSON lines."""
    tell_machine("core")
    for batch in batches:
        found = heartbeat_rate(groups, members, batch, repeats)
        tell("core", "heartbeats", groups=groups, members=members, batch=batch, **found)
    tell("core", "refused joins", batch=REFUSED, **refusal_rate(REFUSED, repeats))
    tell("core", "rebalance", members=rebalance, **rebalance_time(rebalance, repeats))
    found = commit_time(COMMITTERS, OFFSETS, repeats)
    tell("core", "commits", members=COMMITTERS, partitions=OFFSETS, **found)
    return 0
