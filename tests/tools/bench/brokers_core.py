"""The pure core with a large cluster: bytes of requests in, effects as bytes out, one core.

Each figure is a whole batch as the job judges it, from what Spark keeps to what it keeps next, in
a worker that judged the batch before and has kept its pages; `idle` is what the state alone costs,
in a batch with one heartbeat. Times are the processor's: work beside this one counts little.
"""

from collections.abc import Sequence
from typing import Any, Final

from coordlib import limits
from coordlib.core.controller.states import PARTITIONS, Partition
from coordlib.core.engine.effects import EVENTS, REQUESTS, RESPONSES
from coordlib.core.engine.pages import Kept, PagesFold, StoredPages, fold_pages, whole
from coordlib.core.engine.tables import Place
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from tests.tools.bench.core_state import PACKING
from tests.tools.bench.figures import Took, percentile, summary, tell, tell_machine, timed
from tests.tools.core import InputRecord, Shard, ShardSettings

BENCH: Final = "brokers"
NAME: Final = "shop"
INCARNATION: Final = "bench000"
SESSION_MS, RELEASE_MS = 9_000, 18_000
#: Rule 1: a shard's clock moves by so much with one record, at most.
CAP_MS: Final = SESSION_MS // 5
SETTINGS: Final = ShardSettings(
    shard=0, shards=1, reply_partitions=4, incarnation=INCARNATION, families={}
)
START_MS: Final = 1_700_000_000_000
PARTITIONS_PER_TOPIC: Final = 1_000
#: How many partitions one request makes, in whole topics.
ROWS_PER_REQUEST: Final = limits.ROWS_PER_REQUEST_MAX // PARTITIONS_PER_TOPIC * PARTITIONS_PER_TOPIC
LEADERS: Final = 300
HEARTBEATS: Final = 20_000
#: Batches of heartbeats for each repeat of the other figures.
HEARTBEAT_TURNS: Final = 5
#: Registrations of a client that has gone mad, in one batch.
FLOOD: Final = 1_000


def judged(
    before: StoredPages | None, records: Sequence[InputRecord], kept: Kept | None = None
) -> PagesFold:
    """A batch; `kept` by the worker that judged the one before, or by none."""
    return fold_pages(before, records, SETTINGS, REGISTRY, PACKING, {} if kept is None else kept)


def repeated(
    before: StoredPages, records: Sequence[InputRecord], repeats: int
) -> tuple[PagesFold, list[Took]]:
    """The outcome of a batch that is judged so often, each time from the same state."""
    took = []
    for _ in range(repeats):
        kept = judged(before, []).kept
        outcome, spent = timed(lambda kept=kept: judged(before, records, kept))  # type: ignore[misc]
        took.append(spent)
    return outcome, took


class Fleet:
    """A cluster at rest in memory: its log, and its shard's state."""

    def __init__(self, brokers: int, partitions: int, replicas: int) -> None:
        self.next_offset, self.now_ms = 0, START_MS
        self.brokers = range(brokers)
        self.members = [f"b{n}-{INCARNATION}-0-{n}" for n in self.brokers]
        begun = judged(None, self._register())
        self.stored, self._kept = begun.stored, begun.kept
        for first in range(0, partitions, ROWS_PER_REQUEST):
            count = min(ROWS_PER_REQUEST, partitions - first)
            self.fold([self._create(first, count, replicas), self.tick()])

    def write(self, request: api.AnyRequest) -> InputRecord:
        record = InputRecord(REQUESTS, self.next_offset, self.now_ms, codec.encode(request))
        self.next_offset += 1
        return record

    def fold(self, records: Sequence[InputRecord]) -> PagesFold:
        """Judge a batch, and go on from what it leaves."""
        outcome = judged(self.stored, records, self._kept)
        self.stored, self._kept = outcome.stored, outcome.kept
        return outcome

    def go_back(self, stored: StoredPages) -> None:
        """To a state of before."""
        self.stored, self._kept = stored, {}

    @property
    def blob(self) -> bytes:
        """Its state in one piece."""
        return whole(self.stored, REGISTRY, PACKING)

    def tick(self) -> InputRecord:
        return self.write(api.Tick(v=1, published=self.next_offset - 1))

    def heartbeat(self, broker: int) -> InputRecord:
        return self.write(
            api.Heartbeat(
                **self._envelope(broker),
                generation=0,
                member=self.members[broker],
                space="cluster",
            )
        )

    def alter(self, place: Place, row: Partition) -> InputRecord:
        """The leader of a partition asks for an ISR without its last member."""
        isr = row.isr[:-1] if row.isr[-1] != row.leader else row.isr[1:]
        wanted = api.AlteredPartition(
            partition=place[1],
            leader_epoch=row.leader_epoch,
            partition_epoch=row.partition_epoch,
            isr=tuple(api.InSyncReplica(each, each) for each in isr),
        )
        return self.write(
            api.AlterPartition(
                **self._envelope(row.leader),
                broker=row.leader,
                incarnation=row.leader,
                topics=(api.AlteredTopic(place[0], (wanted,)),),
            )
        )

    def rows(self) -> dict[Place, Partition]:
        """All partitions."""
        shard = Shard(self.blob, SETTINGS)
        entries = shard.row(NAME, "cluster").entries(PARTITIONS)
        return {(topic, number): row for topic, number, row in entries}

    def register(self, broker: int) -> InputRecord:
        """A process of this broker, under a correlation id of its own."""
        return self.write(
            api.RegisterBroker(
                **self._envelope(broker),
                broker=broker,
                endpoints=(api.Endpoint("in", f"host-{broker}", 9092),),
                session_timeout_ms=SESSION_MS,
                release_timeout_ms=RELEASE_MS,
                storage=f"disk-{broker}",
            )
        )

    def silence(self, dead: range) -> list[InputRecord]:
        """Time passes until the sessions of these are over but for one tick, which is returned."""
        steps = SESSION_MS // CAP_MS
        for step in range(steps):
            self.now_ms += CAP_MS
            alive = [each for each in self.brokers if each not in dead]
            if step == steps - 1:
                return [self.tick()]
            self.fold([self.heartbeat(each) for each in alive])
        raise AssertionError("a session is longer than CAP")

    def _register(self) -> list[InputRecord]:
        register = [self.register(number) for number in self.brokers]
        register.append(self.tick())
        targets = [
            self.write(
                api.BrokerHeartbeat(
                    **self._envelope(number),
                    broker=number,
                    incarnation=number,
                    since=number,
                    target_state="Active",
                )
            )
            for number in self.brokers
        ]
        return [*register, *targets, self.tick()]

    def _create(self, first: int, count: int, replicas: int) -> InputRecord:
        topics = tuple(
            api.NewTopic(
                topic=f"topic-{(first + done) // PARTITIONS_PER_TOPIC:04}",
                partitions=min(PARTITIONS_PER_TOPIC, count - done),
                replication_factor=replicas,
            )
            for done in range(0, count, PARTITIONS_PER_TOPIC)
        )
        return self.write(api.CreateTopics(**self._envelope(0), topics=topics))

    def _envelope(self, broker: int) -> dict[str, Any]:
        request = f"0123456789abcdef-{self.next_offset}"
        return {"v": 1, "id": request, "client": f"b{broker}", "group": NAME, "reply": broker % 4}


def run(brokers: int, partitions: int, replicas: int, repeats: int) -> int:
    """All figures of the core, as JSON lines."""
    tell_machine(BENCH)
    size: dict[str, Any] = {"brokers": brokers, "partitions": partitions, "replicas": replicas}
    fleet = Fleet(brokers, partitions, replicas)
    tell(BENCH, "blob", **size, bytes=len(fleet.blob))
    tell(BENCH, "idle", **size, **_idle(fleet, repeats))
    for dead in (1, min(LEADERS, brokers // 3)):
        tell(BENCH, "deaths", **size, dead=dead, **_deaths(fleet, dead, repeats))
    tell(BENCH, "alter partition", **size, **_alter(fleet, min(LEADERS, brokers), repeats))
    for what, ids in (("one id", 1), ("new ids", FLOOD)):
        tell(BENCH, f"registrations of {what}", **size, **flooded(fleet, ids, FLOOD, repeats))
    bare = Fleet(brokers, 0, replicas)
    tell(BENCH, "heartbeats per s", **size, batch=HEARTBEATS, **_heartbeats(fleet, bare, repeats))
    return 0


def _idle(fleet: Fleet, repeats: int) -> dict[str, float]:
    took = []
    for _ in range(repeats):
        record = fleet.heartbeat(0)
        took.append(timed(lambda record=record: fleet.fold([record]))[1])  # type: ignore[misc]
    return summary(took)


def _deaths(fleet: Fleet, dead: int, repeats: int) -> dict[str, float]:
    """Each time from the same blob: `dead` brokers are silent at once."""
    stored, *where = fleet.stored, fleet.next_offset, fleet.now_ms
    records = fleet.silence(range(dead))
    outcome, took = repeated(fleet.stored, records, repeats)
    changed = sum(b'"partition"' in each.key for each in outcome.outputs)
    values = [each.value or b"" for each in outcome.outputs]
    notices = sum(len(each) for each in values if b'"MetadataChanged"' in each)
    assert changed > 0, "nobody died"
    fleet.go_back(stored)
    fleet.next_offset, fleet.now_ms = where
    return {**summary(took), "rows": changed, "notice_bytes": notices}


def _alter(fleet: Fleet, leaders: int, repeats: int) -> dict[str, float]:
    """One row of each of so many leaders, in one batch."""
    by_leader = {row.leader: (place, row) for place, row in fleet.rows().items()}
    chosen = [by_leader[each] for each in sorted(by_leader)[:leaders]]
    records = [fleet.alter(place, row) for place, row in chosen]
    outcome, took = repeated(fleet.stored, records, repeats)
    accepted = sum(b'"error":"NONE"' in (each.value or b"") for each in outcome.outputs)
    assert accepted >= len(records), f"{accepted} of {len(records)} were accepted"
    rates = [round(len(records) / each.cpu_ms * 1_000) for each in took]
    rate = percentile(rates, 0.5)
    return {**summary(took), "rows": len(records), "rows_per_s": rate, "best_per_s": max(rates)}


def flooded(fleet: Fleet, ids: int, count: int, repeats: int) -> dict[str, float]:
    """So many registrations in one batch, under the first or under ever new broker ids."""
    offset = fleet.next_offset
    first = 0 if ids == 1 else len(fleet.brokers)
    records = [fleet.register(first + number % ids) for number in range(count)]
    outcome, took = repeated(fleet.stored, records, repeats)
    said = sum(len(each.value or b"") for each in outcome.outputs)
    lines = sum(each.topic == EVENTS for each in outcome.outputs)
    refused = sum(
        each.topic == RESPONSES
        and b'"error":"NONE"' not in (each.value or b"")
        and b'"RegisterBroker"' in (each.value or b"")
        for each in outcome.outputs
    )
    fleet.next_offset = offset
    rate = round(count / percentile([each.cpu_ms for each in took], 0.5) * 1_000)
    after = whole(outcome.stored, REGISTRY, PACKING)
    sizes = {"blob_bytes_before": len(fleet.blob), "blob_bytes": len(after)}
    told = {"refused": refused, "history_lines": lines, "output_bytes": said}
    return {**summary(took), "registrations": count, "per_s": rate, **told, **sizes}


def _heartbeats(fleet: Fleet, bare: Fleet, repeats: int) -> dict[str, float]:
    """Heartbeats of brokers with the rows and without, by turns.

    The collector of Python walks all kept rows about once in several batches, which takes longer
    than the heartbeats of one batch. So many turns are taken, and the total of each side counts:
    it contains the walks, wherever they fall.
    """
    spent_ms: dict[str, list[float]] = {"with_rows": [], "without": []}
    for _ in range(repeats * HEARTBEAT_TURNS):
        for name, each in (("with_rows", fleet), ("without", bare)):
            each.now_ms += 300
            count = len(each.brokers)
            records = [each.heartbeat(number % count) for number in range(HEARTBEATS)]
            took = timed(lambda each=each, records=records: each.fold(records))[1]  # type: ignore[misc]
            spent_ms[name].append(took.cpu_ms)
    rates = {
        name: round(HEARTBEATS * len(spent) / sum(spent) * 1_000)
        for name, spent in spent_ms.items()
    }
    medians = [percentile(spent_ms[name], 0.5) for name in ("without", "with_rows")]
    return {
        **rates,
        "share": round(rates["with_rows"] / rates["without"], 2),
        "share_of_medians": round(medians[0] / medians[1], 2),
    }
