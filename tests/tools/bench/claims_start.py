"""How soon a client of claims is ready, by where it begins to read; a broker and no job.

`from_start`: it reads the whole log, from offset 0 of each coordination partition. `late`: the log
was cut by retention, and it reads the last 8 heartbeat intervals. `from_snapshot`: it begins with
the snapshots of all claims, and reads what was written since. `read_s` is the time from Marshaler()
until all that it reads is read and it may act, `claimed_s` until it has claimed a topic of each
coordination partition. The log was written by other clients; intervals are 6 s.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition

from coordlib.client.claims import ConsumerOptions, Marshaler
from coordlib.client.claims.admin import Survey
from coordlib.client.claims.kafka import KafkaClaims
from coordlib.client.claims.transport import LogView
from coordlib.core.claims.snapshots import pages_of
from coordlib.core.engine.effects import Output, route
from coordlib.core.wire.topics import claims_prefix
from coordlib.errors import CannotReach
from coordlib.kafka import coordination
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin
from coordlib.kafka.cluster import create_topic
from coordlib.kafka.logs import Bounds, Place
from coordlib.local.progress import phase, to_stderr
from tests.tools.bench.claims_log import topics_of_all
from tests.tools.bench.claims_writer import Clients
from tests.tools.bench.figures import percentile, tell, tell_machine
from tests.tools.bench.stand import fresh_stack

BENCH: Final = "claims"
PREFIX: Final = "coord"
SHARDS: Final = coordination.PARTITIONS
WHOLE: Final = "__marshal.6s"
#: Names of coordination topics whose heartbeat interval is 6 s, too.
CUT: Final = "cut.6s"
KEPT: Final = "kept.6s"
#: 8 intervals, which a late reader reads.
WINDOW_S: Final = 48.0
#: Of the log before them, which is cut.
BEFORE_S: Final = 4.0
#: The engine writes a snapshot in each interval of 60 s, at 333 messages a second.
BEHIND_SNAPSHOT: Final = 20_000
PATIENCE_S: Final = 600.0
LOOK_EVERY_S: Final = 0.005
_OPTIONS: Final = ConsumerOptions(
    claim_entire_topic=True, greedy_claims=True, release_claims_if_behind=False
)


def run(*, messages: int, late: int, claims: int, repeats: int) -> int:
    """Measure the three, and tell them."""
    tell_machine(BENCH)
    with fresh_stack("bench-claims-start") as stack:
        stack.start_broker()
        options = {"bootstrap.servers": stack.bootstrap_servers, "log_level": "0"}
        for each in (WHOLE, CUT, KEPT):
            coordination.create_coordination(options, each, SHARDS, 1)
        wanted = topics_of_all(SHARDS, "free")
        for each in wanted:
            create_topic(options, each, 1)
        with phase(to_stderr, f"{messages:,} messages are written"):
            _written(options, WHOLE, claims, {"do": "burst", "messages": messages - claims})
        _tell("from_start", options, WHOLE, wanted, repeats, is_late=False, count=_length(options))
        seconds = WINDOW_S + BEFORE_S
        with phase(to_stderr, f"{late:,} messages are written in {WINDOW_S:.0f} s"):
            order = {"do": "beat", "seconds": seconds, "rate": late / WINDOW_S}
            _written(options, CUT, claims, order)
            _cut(options, CUT)
        _tell("late", options, CUT, wanted, repeats, is_late=True, count=_late_length(options))
        with phase(to_stderr, f"A snapshot of {claims:,} claims is written"):
            _written(options, KEPT, claims, {"do": "burst", "messages": BEHIND_SNAPSHOT}, _save)
        _tell("from_snapshot", options, KEPT, wanted, repeats, is_late=False, count=BEHIND_SNAPSHOT)
    return 0


def _tell(
    what: str,
    options: dict[str, str],
    topic: str,
    wanted: list[str],
    repeats: int,
    *,
    is_late: bool,
    count: int,
) -> None:
    starts = [started(options, topic, wanted, is_late) for _ in range(repeats)]
    read_s, claimed_s = ([each[place] for each in starts] for place in (0, 1))
    tell(
        BENCH,
        what,
        messages=count,
        times=repeats,
        read_s=round(percentile(read_s, 0.5), 2),
        claimed_s=round(percentile(claimed_s, 0.5), 2),
        most_s=round(max(claimed_s), 2),
        per_second=round(count / percentile(read_s, 0.5)),
    )


def started(
    options: dict[str, str], topic: str, wanted: list[str], is_late: bool
) -> tuple[float, float]:
    """Seconds until a client has read what it must, and until it has claimed all that it wants."""
    name = f"starts-{uuid4().hex[:8]}"
    config = {**options, "group.id": name, "client.id": name}
    began = time.perf_counter()
    transport = KafkaClaims(options, topic, client=name)
    with Marshaler(config, coordination_topic=topic, transport=transport) as marshaler:
        consumer = marshaler.consumer(wanted, _OPTIONS)
        views = [transport.view_of(each) for each in wanted]
        _until(lambda: all(view.may_act for view in views))
        read_s = time.perf_counter() - began
        while set(consumer.topic_claims()) != set(wanted):
            assert time.perf_counter() - began < PATIENCE_S, "nothing was claimed"
            consumer.poll(LOOK_EVERY_S)
        claimed_s = time.perf_counter() - began
        assert [view.world.is_late for view in views] == [is_late] * len(views)
        marshaler.close(release=True)
    transport.close()
    return read_s, claimed_s


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "the log was not read to its end"
        time.sleep(LOOK_EVERY_S)


# -- the logs -------------------------------------------------------------------------------------


def _written(
    options: dict[str, str],
    topic: str,
    claims: int,
    order: dict[str, Any],
    between: Callable[[dict[str, str], str], None] = lambda *_: None,
) -> None:
    """A log in which all is claimed, then what the order says."""
    clients = Clients(options["bootstrap.servers"], topic, claims)
    try:
        clients.do(do="claim")
        between(options, topic)
        clients.do(**order)
    finally:
        clients.close()


def _cut(options: dict[str, str], topic: str) -> None:
    """Remove the first record of each coordination partition: who begins now begins late."""
    places = [TopicPartition(topic, shard, 1) for shard in range(SHARDS)]
    admin = open_admin(options)
    for future in admin.delete_records(places).values():
        future.result(20)


def _save(options: dict[str, str], topic: str) -> None:
    """Write the snapshots of all coordination partitions, as the engine does."""
    coordination.create(options, PREFIX, topic, 1)
    survey = Survey(options, topic, PREFIX)
    views = survey.read(is_whole=True)
    producer = Producer(options)
    for shard, view in views.items():
        for output in _pages(view, survey.place.topic_id, shard):
            into = f"{claims_prefix(PREFIX)}.{output.topic}"
            producer.produce(into, output.value, output.key, partition=shard)
    if producer.flush(30):
        raise CannotReach("The snapshots are not written.", topic)
    assert all(survey.snapshot(shard) is not None for shard in views)
    survey.close()


def _pages(view: LogView, topic_id: str, shard: int) -> Iterable[Output]:
    world = view.world
    pages = pages_of(world.snapshot(), topic_id, SHARDS, world.offset, world.clock_ms)
    return [route(page, shard) for page in pages]


def _length(options: dict[str, str]) -> int:
    return sum(each.end - each.start for each in _bounds(options, WHOLE))


def _bounds(options: dict[str, str], topic: str) -> list[Bounds]:
    places = [Place(topic, shard) for shard in range(SHARDS)]
    found = log_bounds(open_admin(options), places)
    return [each for each in found.values() if each is not None]


def _late_length(options: dict[str, str]) -> int:
    """How many records a client that begins now has before it."""
    survey = Survey(options, CUT, PREFIX)
    try:
        first = [survey._begin(shard, False, None).position for shard in range(SHARDS)]
    finally:
        survey.close()
    return sum(each.end for each in _bounds(options, CUT)) - sum(first)
