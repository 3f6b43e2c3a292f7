"""Couriers in simulated worlds: drawn apart, struck at every point, and held against the job."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from coordlib.core.wire.data_headers import Marker, Stamp, header_of
from tests.simulation.as_they_were import drawn
from tests.tools.simulation import drawing, plan, run
from tests.tools.simulation.kinds import COURIER_KINDS
from tests.tools.simulation.plan import Plan
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.scheduler import Gone, Process, Scheduler
from tests.tools.simulation.transactions.abroad import (
    ABROAD,
    WRITING,
    FarCluster,
    FarConsumer,
    FarProducer,
    FarRecord,
)
from tests.tools.simulation.transactions.courier_checks import check_handed_out
from tests.tools.simulation.transactions.couriers import Couriers, HandedOut
from tests.tools.simulation.transactions.traps import Struck, Traps
from tests.tools.simulation.transport import Network
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import World

#: As little as there can be beside the couriers.
SMALL: dict[str, Any] = {"members": 2, "partitions": 1, "messages": 5, "length_ms": 50_000}
I = "Simulat0"  # noqa: E741  # as the header has it


# -- worlds ----------------------------------------------------------------------------------------


def test_some_seeds_have_couriers_and_the_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs of groups, stores and copiers are found by the seeds that their headers name."""
    named = [drawing.draw(seed, kind=plan.CLASSIC) for seed in range(400)]
    with_them = drawn(monkeypatch, "_with_couriers", COURIER_KINDS, couriers=0)

    assert 0.03 < sum(each.couriers > 0 for each in with_them) / 400 < 0.12
    assert not any(each.couriers and (each.copiers or each.brokers) for each in with_them)
    assert not any(each.couriers for each in named)


def test_faults_of_couriers_bring_couriers() -> None:
    """`--fault courier-killed` draws from that kind only."""
    drawn = drawing.draw(5, ("courier-killed", "courier-killed"))

    assert drawn.couriers in (1, 2)
    assert {fault.kind for fault in drawn.faults} == {"courier-killed"}


SEEDS = (2, 9)
WORST = (
    *(
        "courier-dies-inside",
        "courier-stalls-inside",
        "courier-wakes-late",
        "courier-records-again",
    ),
    *("far-reader-killed", "other-cluster-away"),
)
#: What these faults must bring about, in one of the worlds at least.
MET = {
    *("courier's transaction committed", "courier's transaction ended by its successor"),
    *("marker written by a successor", "marker written twice", "reader abroad began anew"),
    *("courier's record behind its marker", "courier's record came again", "other cluster away"),
    "reader abroad asks the coordinator",
}


def small(seed: int) -> Plan:
    """The worst at all times of a small world."""
    drawn = drawing.draw(seed, WORST * 3)
    sooner = SMALL["length_ms"] / drawn.length_ms
    faults = tuple(each._replace(at_ms=int(each.at_ms * sooner)) for each in drawn.faults)
    return replace(drawn, **SMALL, shards=2, faults=faults)


def test_couriers_come_through() -> None:
    """INV-91, INV-93, INV-94, INV-96, INV-97. A campaign plays more."""
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(small(seed))
        with quiet_logs():
            outcome = run.run_in(world)

        assert outcome.violation is None
        met.update(outcome.sometimes)
        assert world.couriers is not None
        assert world.couriers.handed_out
        assert all(courier.fiber.is_over for courier in world.couriers.processes)
    assert [name for name in MET if not met[name]] == []


# -- the other cluster -----------------------------------------------------------------------------


class Writer(Struck):
    """A process that waits for nothing."""

    def __init__(self) -> None:
        super().__init__(Scheduler(Random(1)), "w")
        self.traps, self.network = Traps(), Network(lambda: 10)
        self.far = FarCluster(2)
        self.producer = FarProducer(self, self.far, self.network, 5_000)
        self.told: list[Any] = []

    def wait(self, for_ms: float, is_over: Any) -> bool:
        self.require_alive()
        return bool(is_over())

    def produce(self, value: str, partition: int = 0) -> None:
        self.producer.produce(
            ABROAD,
            value,
            None,
            partition,
            headers=(),
            timestamp=0,
            on_delivery=lambda error, _: self.told.append(error),
        )

    def run(self, until_ms: int) -> None:
        self.scheduler.run(until_ms, lambda: None)
        self.producer.poll(0)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [each.value for each in self.far.logs[partition]]


def test_records_are_written_once_and_in_order_however_often_acknowledgements_are_lost() -> None:
    """The producer is idempotent; it is told when somebody is there to tell it."""
    writer = Writer()
    writer.network.loses_acks = True
    for value in ("a", "b"):
        writer.produce(value)
    writer.run(1_000)
    assert (writer.values(), writer.told) == ([b"a", b"b"], [])
    writer.network.loses_acks = False
    writer.run(2_000)

    assert (writer.values(), writer.told) == ([b"a", b"b"], [None, None])


def test_what_the_cluster_does_not_take_in_time_is_given_up() -> None:
    """It is away for longer than `message.timeout.ms`, and takes what comes then."""
    writer = Writer()
    writer.far.is_up = False
    writer.produce("a")
    writer.run(6_000)
    assert [error.code() for error in writer.told] == [KafkaError._MSG_TIMED_OUT]
    writer.far.is_up = True
    writer.produce("b")
    writer.run(7_000)

    assert writer.values() == [b"b"]


def test_a_process_that_was_stopped_writes_late_and_a_dead_one_never() -> None:
    """A zombie's records are on their way when it stands still."""
    for is_dead, written in ((False, [b"a"]), (True, [])):
        writer = Writer()
        writer.traps.at[WRITING] = Writer.kill if is_dead else Writer.stop
        with pytest.raises(Gone) if is_dead else nullcontext():
            writer.produce("a")
        writer.run(1_000)
        assert writer.values() == []
        writer.resume()
        writer.run(2_000)

        assert writer.values() == written
        assert writer.traps.sprung == {WRITING: 1}


def test_a_consumer_reads_in_order_and_tells_of_the_end_once() -> None:
    """The end lets a reader know that no marker stands before it."""
    far = FarCluster(1)
    consumer = FarConsumer(Process(Scheduler(Random(1)), "r"), far)
    consumer.assign([TopicPartition(ABROAD, 0, 0)])
    far.append(0, FarRecord(b"a", ()))

    first, end, nothing = consumer.poll(0), consumer.poll(0), consumer.poll(0)
    far.append(0, FarRecord(b"b", ()))
    far.is_up = False
    unread = consumer.poll(0)
    far.is_up = True
    second = consumer.poll(0)

    assert first is not None
    assert end is not None
    assert second is not None
    assert (first.value(), end.error() is not None, second.value()) == (b"a", True, b"b")
    assert (nothing, unread) == (None, None)


# -- checks that find nothing may be blind ---------------------------------------------------------


def record(e: int, s: int, repeats: int = -1) -> FarRecord:
    stamp = Stamp(i=I, t="id", p=7, e=e, s=s)
    return FarRecord(f"{e}/{s}".encode(), (header_of(stamp),), repeats)


def marker(e: int) -> FarRecord:
    return FarRecord(None, (header_of(Marker(i=I, t="id", p=7, e=e, r="commit")),))


@pytest.fixture
def couriers() -> Couriers:
    """Of the epochs 0 to 2 the second was aborted; its late record stands in the third."""
    world = World(replace(drawing.draw(1, ("courier-killed",)), **SMALL))
    made = Couriers(world)
    made.far = FarCluster(1)
    made.kept = {0: 0}
    made.readers = [SimpleNamespace(began={0: 0})]  # type: ignore[list-item]  # as much as is used
    for each in (record(0, 0), record(0, 1), record(0, 0, 0), marker(0), record(1, 0), marker(1)):
        made.far.append(0, each)
    for each in (record(2, 0), record(1, 1), record(2, 1), marker(2)):
        made.far.append(0, each)
    return made


DECIDED = {"7-0": "commit", "7-1": "abort", "7-2": "commit"}


def test_what_was_committed_and_handed_out_once_passes(couriers: Couriers) -> None:
    """INV-93, INV-94, INV-97."""
    couriers.handed_out = [HandedOut(0, offset) for offset in (0, 1, 6, 8)]

    check_handed_out(couriers, DECIDED)


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((0, 1, 4, 6, 8), id="aborted"),
        pytest.param((0, 1, 6, 7, 8), id="late record of an older epoch"),
        pytest.param((0, 1, 2, 6, 8), id="copy of a record"),
        pytest.param((0, 0, 1, 6, 8), id="twice"),
        pytest.param((1, 0, 6, 8), id="order turned round"),
        pytest.param((0, 1, 6), id="lost at the end"),
        pytest.param((1, 6, 8), id="lost at the beginning"),
    ],
)
def test_what_was_handed_out_wrongly_is_seen(couriers: Couriers, offsets: tuple[int, ...]) -> None:
    """INV-93."""
    couriers.handed_out = [HandedOut(0, offset) for offset in offsets]

    with pytest.raises(Violation, match="INV-93"):
        check_handed_out(couriers, DECIDED)


def test_a_reader_begins_anew_only_where_limits_allow_it(couriers: Couriers) -> None:
    """Between a record and its copy it could not tell, and what it has not read is not copied."""
    allowed = []
    for position in range(4):
        couriers.kept = {0: position}
        allowed.append(couriers.may_begin_anew)
    assert allowed == [True, False, False, True]

    couriers.readers[-1].began[0] = 8
    for _ in range(30):
        couriers.record_again(Random(_))
    again = [each.repeats for each in couriers.far.logs[0] if each.repeats >= 0][1:]
    assert {couriers.far.logs[0][each].value is None for each in again} == {True, False}
    assert all(each >= 8 or couriers.far.logs[0][each].value is None for each in again)
