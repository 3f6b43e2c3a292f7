"""Clusters of stores in simulated worlds: drawn apart, looked at while it happens and at rest."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from coordlib.client.controller.requests import Leadership
from coordlib.core.controller.states import BrokerState
from tests.simulation.as_they_were import drawn
from tests.tools import clusters as c
from tests.tools.simulation import drawing, plan, run, situations_beside, store_checks
from tests.tools.simulation.checks import evidence_of
from tests.tools.simulation.disks import Entry
from tests.tools.simulation.evidence import Asked
from tests.tools.simulation.fleet import Fleet
from tests.tools.simulation.kinds import STORE_KINDS
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.store import Lead, Store
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import World

#: As little as there can be beside the stores.
SMALL = {"members": 2, "partitions": 1, "messages": 5, "length_ms": 20_000, "group_size_max": 0}


@pytest.fixture(scope="module")
def at_rest() -> World:
    """A world in which nothing went wrong, at the time of peace."""
    drawn = drawing.draw(1, ("store-acks-lost",))
    world = World(replace(drawn, faults=(), **SMALL))  # type: ignore[arg-type]
    with quiet_logs():
        run._begin(world)
        world.scheduler.run(SMALL["length_ms"], world.check)
        world.heal_all()
        world.scheduler.run(SMALL["length_ms"] + run.peace_ms(world), world.check)
    store_checks.check_peace(world)
    return world


def fleet_of(world: World) -> Fleet:
    assert world.fleet is not None
    return world.fleet


def assert_breaks(promise: str, check: Callable[[], None]) -> None:
    with pytest.raises(Violation, match=promise):
        check()


def leader_of(world: World) -> tuple[Store, tuple[str, int]]:
    stores = fleet_of(world).living
    return next((each, place) for each in stores for place in sorted(each.leads))


# -- worlds ----------------------------------------------------------------------------------------


def test_a_fifth_of_the_seeds_has_stores_and_the_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs of groups are found by the seeds that their headers name. Couriers alone keep away
    from stores, with luck of their own."""
    monkeypatch.setattr(drawing, "_with_couriers", lambda drawn: drawn)
    named = [drawing.draw(seed, kind=plan.CLASSIC) for seed in range(400)]
    with_them = drawn(monkeypatch, "_with_stores", STORE_KINDS, brokers=0)

    assert 0.12 < sum(each.brokers > 0 for each in with_them) / 400 < 0.28
    assert not any(each.brokers for each in named)


def test_faults_of_stores_bring_stores() -> None:
    """`--fault store-killed` draws from that kind only."""
    drawn = drawing.draw(5, ("store-killed", "store-killed"))

    assert drawn.brokers in (3, 4)
    assert {fault.kind for fault in drawn.faults} == {"store-killed"}


@pytest.mark.parametrize("seed", range(2))
def test_stores_come_through(seed: int) -> None:
    """INV-71, INV-72, INV-73, INV-74, INV-75, INV-77, INV-78, INV-79, INV-80, INV-81, INV-82.

    A campaign plays more.
    """
    kinds = ("store-killed", "store-paused", "store-stops", "store-words-again")
    small: dict[str, Any] = {**SMALL, "length_ms": 60_000}
    world = World(replace(drawing.draw(seed, kinds), **small))
    with quiet_logs():
        outcome = run.run_in(world)

    assert outcome.violation is None
    assert outcome.sometimes["store led"] > 1
    assert outcome.sometimes["value committed"] > 10
    assert set(situations_beside.OF_STORES.keys()) <= outcome.sometimes.keys()


# -- checks that find nothing may be blind ---------------------------------------------------------


def test_two_that_act_are_seen(at_rest: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-71: another process was told to lead, and its machine lets it."""
    store, place = leader_of(at_rest)
    other = next(each for each in fleet_of(at_rest).living if each is not store)
    fleet_of(at_rest).check()
    monkeypatch.setitem(other.leads, place, Lead(99, 99, 0, 0))
    fleet_of(at_rest).check()  # its machine does not let it
    monkeypatch.setattr(other.life, "may_lead", lambda *_: True)

    assert_breaks("INV-71", fleet_of(at_rest).check)


def test_a_leader_that_lacks_what_was_committed_is_seen(
    at_rest: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-78."""
    store, place = leader_of(at_rest)
    lead = store.leads[place]
    given = Leadership(
        *place, epoch=lead.epoch, fence=lead.fence, isr=(), replicas=(), topic_id=lead.topic_id
    )
    fleet_of(at_rest)._begins(store, given)
    log = [*store.log(place)]
    assert log
    replica = (*place, store.topic_id(place))
    monkeypatch.setitem(store.disk.logs, replica, [Entry(0, -1), *log[1:]])

    assert_breaks("INV-78", lambda: fleet_of(at_rest)._begins(store, given))
    assert_breaks("INV-78", lambda: store_checks.check_peace(at_rest))


def rows_with(world: World, **fields: Any) -> Callable[[], Any]:
    """What `coord.metadata` would say with other fields of one row."""
    rows = fleet_of(world).rows()
    place = next(iter(rows))
    changed = {**rows, place: msgspec.structs.replace(rows[place], **fields)}
    return lambda: changed


@pytest.mark.parametrize(
    ("fields", "promise"),
    [
        ({"guard": 7}, "INV-80"),
        ({"deleting": {1: 4}}, "INV-80"),
        ({"adding": (1,)}, "INV-80"),
        ({"leader": -1}, "INV-81"),
        ({"leader": 9}, "INV-81"),
        ({"partition_epoch": 99}, "INV-79"),
    ],
)
def test_a_row_that_is_not_at_rest_is_seen(
    at_rest: World, fields: dict[str, Any], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is waited for, nobody leads, or brokers believe something else."""
    monkeypatch.setattr(fleet_of(at_rest), "rows", rows_with(at_rest, **fields))

    assert_breaks(promise, lambda: store_checks.check_peace(at_rest))


def test_a_broker_that_is_not_back_is_seen(at_rest: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-81: it lives, and nothing holds it up."""
    head = fleet_of(at_rest).head()
    assert head is not None
    number, broker = next(iter(head.brokers.items()))
    out = msgspec.structs.replace(broker, state=BrokerState.INACTIVE)
    other = msgspec.structs.replace(head, brokers={**head.brokers, number: out})
    monkeypatch.setattr(fleet_of(at_rest), "head", lambda: other)

    assert_breaks("INV-81", lambda: store_checks.check_peace(at_rest))


def line(**fields: Any) -> dict[str, Any]:
    row = {"topic": "t", "partition": 0, "was": -1, "leader": 1, "leader_epoch": 0}
    more = {"partition_epoch": 0, "fence": 5, "replicas": (1, 2), "isr": (1, 2), "election": None}
    return {**row, **more, **fields}


@pytest.mark.parametrize(
    ("second", "promise"),
    [
        (line(partition_epoch=2), "INV-72"),
        (line(partition_epoch=1, leader=2), "INV-72"),
        (line(partition_epoch=1, leader=2, leader_epoch=1, fence=4), "INV-72"),
        (line(election="unclean"), "INV-77"),
    ],
)
def test_a_line_of_history_that_breaks_a_promise_is_seen(
    at_rest: World, second: dict[str, Any], promise: str
) -> None:
    """Epochs that jump, a fence that falls, an election that nobody allowed."""
    evidence = evidence_of(at_rest)
    told = next(each for each in evidence.told if each.type == "PartitionsChanged")
    before, after = (replace(told, detail={"partitions": [each]}) for each in (line(), second))
    store_checks._check_rows(fleet_of(at_rest), [before])

    def check() -> None:
        store_checks._check_history(fleet_of(at_rest), [before, after])
        store_checks._check_rows(fleet_of(at_rest), [before, after])

    assert_breaks(promise, check)


def test_a_replica_that_was_another_process_when_it_fetched_is_seen(at_rest: World) -> None:
    """INV-75, KIP-903: it had registered anew before its leader's change came."""
    evidence, shard = evidence_of(at_rest), fleet_of(at_rest).shard
    events = [each for each in evidence.told if each.type == "BrokerRegistered"]
    known = {each.detail["broker"]: each.detail["incarnation"] for each in events}

    def changes(*isr: tuple[int, int], error: str = "NONE") -> Callable[[], None]:
        change = Asked(shard, 10**6, 0, c.alter(1, known[1], {("ledger", 0): (0, 0, isr)}))
        row = {"topic": "ledger", "partition": 0, "error": error}
        evidence.__dict__["asked"] = [change]
        evidence.__dict__["answers"] = {change.coordinate: [{"results": [row]}]}
        return lambda: store_checks._check_entered(fleet_of(at_rest), events, evidence)

    changes((1, known[1]), (2, known[2]))()
    changes((1, known[1]), (2, known[2] - 1), error="INELIGIBLE_REPLICA")()
    assert_breaks("INV-75", changes((1, known[1]), (2, known[2] - 1)))
