"""The verdict on the act `brokers` finds what is wrong: a run that is right but for one thing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from coordlib.checking.history import Happened
from coordlib.demo.brokers_verdict import (
    BrokersFacts,
    BrokerState,
    Hit,
    InSync,
    Led,
    Row,
    every_acknowledged_put_is_read,
    in_sync_as_promised,
    judge,
    kafka_and_delta_agree,
    leaders_are_the_controllers,
    no_read_is_stale,
    one_leader_at_every_moment,
    the_dead_is_replaced,
    the_stopped_hands_over,
    the_suspended_says_nothing_more,
)
from coordlib.demo.verdict import Check

START = datetime(2026, 3, 1, tzinfo=UTC)
FENCES = {0: 10, 1: 200, 2: 300, 3: 400}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def happened(t_ms: int, what: str, member: str, epoch: int = -1, **fields: Any) -> Happened:
    return Happened(
        t_ms,
        what,
        member=member,
        partitions=("entries-0",),
        generation=epoch,
        fence=FENCES.get(epoch, -1),
        **fields,
    )


def put(t_ms: int, store: int, epoch: int, key: str, value: str, offset: int) -> list[Happened]:
    """A leader's word, and the client's, who had asked 10 ms before."""
    what = {"key": key, "value": value, "offset": offset}
    return [
        happened(t_ms, "acknowledged", f"store-{store}", epoch, **what),
        happened(t_ms + 1, "put", "writer", began_ms=t_ms - 10, **what),
    ]


def got(t_ms: int, store: int, epoch: int, key: str, value: str, offset: int) -> list[Happened]:
    what = {"key": key, "value": value, "offset": offset}
    return [
        happened(t_ms, "answered", f"store-{store}", epoch, **what),
        happened(t_ms + 1, "got", "reader", began_ms=t_ms - 10, **what),
    ]


def row(second: int, partition_epoch: int, epoch: int, leader: int, isr: Sequence[int]) -> Happened:
    return happened(
        1_000 * second,
        "row",
        "",
        epoch,
        leader=leader,
        partition_epoch=partition_epoch,
        isr=tuple(isr),
        replicas=(1, 2, 3),
    )


# 1 leads and is killed at 10 s; 2 leads from 17 s and is suspended from 30 s to 40 s, while 1 is
# back since 25 s; 3 leads from 37 s, and is shut down at 50 s; 1 leads from 51 s.
HISTORY = [
    row(1, 0, 0, 1, (1, 2, 3)),
    *put(5_000, 1, 0, "a", "a1", 0),
    *put(6_000, 1, 0, "b", "b1", 1),
    row(17, 1, 1, 2, (2, 3)),
    *got(18_000, 2, 1, "a", "a1", 0),
    *put(19_000, 2, 1, "a", "a2", 2),
    row(27, 2, 1, 2, (1, 2, 3)),
    row(37, 3, 2, 3, (1, 3)),
    *got(38_000, 3, 2, "a", "a2", 2),
    *put(39_000, 3, 2, "c", "c1", 4),
    happened(
        40_050,
        "put_unknown",
        "waiting",
        key="w",
        value="waits",
        began_ms=29_500,
        detail="REQUEST_TIMED_OUT",
    ),
    row(42, 4, 2, 3, (1, 2, 3)),
    row(51, 5, 3, 1, (1, 2)),
    *got(52_000, 1, 3, "w", "waits", 3),
    *got(52_100, 1, 3, "a", "a2", 2),
    *got(52_200, 1, 3, "b", "b1", 1),
    *got(52_300, 1, 3, "c", "c1", 4),
]
LEADERS = [
    Led(0, 1, 2, 0, 10, at(1), at(17), "first"),
    Led(0, 2, 3, 1, 200, at(17), at(37), "offline"),
    Led(0, 3, 4, 2, 300, at(37), at(51), "offline"),
    Led(0, 1, 220, 3, 400, at(51), None, "shutdown"),
]
IN_SYNC = [
    InSync(0, (1, 2, 3), at(1), at(17)),
    InSync(0, (2, 3), at(17), at(27)),
    InSync(0, (1, 2, 3), at(27), at(37)),
    InSync(0, (1, 3), at(37), at(42)),
    InSync(0, (1, 2, 3), at(42), at(51)),
    InSync(0, (1, 2), at(51), None),
]
STATES = [
    BrokerState(1, 2, "Active", at(0), at(17)),
    BrokerState(1, 2, "Inactive", at(17), at(25)),
    BrokerState(1, 220, "Active", at(25), None),
    BrokerState(2, 3, "Active", at(0), at(37)),
    BrokerState(2, 3, "Inactive", at(37), at(41)),
    BrokerState(2, 3, "Active", at(41), None),
    BrokerState(3, 4, "Active", at(0), at(50)),
    BrokerState(3, 4, "Stopping", at(50), at(51)),
    BrokerState(3, 4, "Inactive", at(51), None),
]
LAST = {0: Row(1, 3, 5, 400, (1, 2, 3), (1, 2))}


def facts(**different: Any) -> BrokersFacts:
    right = BrokersFacts(
        topic="entries",
        history=HISTORY,
        leaders=LEADERS,
        in_sync=IN_SYNC,
        states=STATES,
        in_kafka=LAST,
        in_delta=LAST,
        killed=Hit(1, 10_000, {0: 0}, 20_000),
        suspended=Hit(2, 30_000, {0: 1}, 40_000, "w"),
        stopped=Hit(3, 50_000, {0: 2}, 51_500),
    )
    return replace(right, **different)


def told(*more: Happened) -> list[Happened]:
    """The history, and more of it."""
    return sorted([*HISTORY, *more], key=lambda each: each.t_ms)


def without(what: str, key: str, since_ms: int = 0) -> list[Happened]:
    return [e for e in HISTORY if (e.what, e.key) != (what, key) or e.t_ms < since_ms]


def changed(rows: Sequence[Any], number: int, **fields: Any) -> list[Any]:
    return [replace(each, **fields) if index == number else each for index, each in enumerate(rows)]


def test_a_good_run_has_no_offence() -> None:
    checks = judge(facts())

    assert [check.offences for check in checks] == [()] * 9
    assert checks[0].numbers == (
        "4 puts; the outcome of 1 more was unknown to their clients, 1 of them were found"
    )
    assert checks[4].numbers == "1 partitions, without an answer for 12.0 s at most"
    assert checks[5].numbers.endswith("suspended for 10.0 s")


@pytest.mark.parametrize(
    ("check", "facts", "offence"),
    [
        (
            every_acknowledged_put_is_read,
            facts(history=without("got", "c")),
            "'c1' of c at position 4 was acknowledged, and not read afterwards",
        ),
        (
            every_acknowledged_put_is_read,
            facts(
                history=[*without("got", "a", 50_000), *got(53_000, 1, 3, "a", "a1", 0)],
            ),
            "'a2' of a at position 2 was acknowledged, and 'a1' of a at position 0 was read in "
            "the end",
        ),
        (every_acknowledged_put_is_read, facts(history=[]), "no put was acknowledged"),
        (
            no_read_is_stale,
            facts(history=told(*got(38_500, 3, 2, "a", "a1", 0))),
            "INV-78: reader read a at 38490 ms, position 0; writer put position 2 until 19001 ms",
        ),
        (
            no_read_is_stale,
            facts(history=told(*got(38_500, 3, 2, "z", "z1", 9))),
            "INV-78: reader reads 'z1' of z at 38501 ms, which nobody has put by then",
        ),
        (no_read_is_stale, facts(history=[]), "nothing was read"),
        (
            one_leader_at_every_moment,
            facts(history=told(*put(38_500, 2, 1, "d", "d1", 3))),
            "INV-71: store-2 acts on entries-0 at 38500 ms in leader epoch 1, after store-3 did "
            "in 2 at 38000 ms",
        ),
        (
            one_leader_at_every_moment,
            facts(history=told(*put(20_000, 3, 1, "d", "d1", 3))),
            "INV-72: leader epoch 1 of entries-0 is store-3's with fence 200 at 20000 ms, and was "
            "store-2's with 200 at 18000 ms",
        ),
        (
            one_leader_at_every_moment,
            facts(history=[e for e in HISTORY if e.key != "b" or e.what in ("put", "got")]),
            "INV-78: writer put b at 6001 ms, position 1, which no leader has said",
        ),
        (one_leader_at_every_moment, facts(history=[]), "nobody acted as leader"),
        (
            leaders_are_the_controllers,
            facts(leaders=changed(LEADERS, 1, leader=3)),
            "store-2 answered for partition 0 in leader epoch 1 with fence 200, and Delta has "
            "store-3 in leader epoch 1 with fence 200",
        ),
        (
            leaders_are_the_controllers,
            facts(leaders=LEADERS[:1]),
            "store-2 answered for partition 0 in leader epoch 1 with fence 200, and Delta has no "
            "leader",
        ),
        (
            leaders_are_the_controllers,
            facts(leaders=changed(LEADERS, 0, until=at(18))),
            "partition 0: store-2 in leader epoch 1 with fence 200 came after store-1 in leader "
            "epoch 0 with fence 10",
        ),
        (
            leaders_are_the_controllers,
            facts(leaders=[*LEADERS, LEADERS[0]]),
            "Delta has a leader epoch twice",
        ),
        (
            the_dead_is_replaced,
            facts(leaders=changed(LEADERS, 1, election="unclean")),
            "partition 0: after it came store-2 in leader epoch 1 with fence 200, not by offline",
        ),
        (
            the_dead_is_replaced,
            facts(history=told(*put(11_000, 1, 0, "d", "d1", 2))),
            "store-1 answered at 11000 ms, after it was killed",
        ),
        (the_dead_is_replaced, facts(killed=Hit(1, 10_000, {}, 20_000)), "store-1 led nothing"),
        (
            the_suspended_says_nothing_more,
            facts(history=told(*put(40_010, 2, 1, "d", "d1", 3))),
            "it answered for partition 0 at 40010 ms",
        ),
        (
            the_suspended_says_nothing_more,
            facts(
                history=told(
                    happened(
                        40_020, "put", "waiting", key="w", offset=3, value="w", began_ms=29_500
                    )
                )
            ),
            "'w' of w at position 3 waited at it, and was acknowledged",
        ),
        (
            the_suspended_says_nothing_more,
            facts(history=without("put_unknown", "w")),
            "no put waited in its log",
        ),
        (
            the_suspended_says_nothing_more,
            facts(
                history=[
                    *without("put_unknown", "w"),
                    happened(40_050, "put_unknown", "w", key="w", began_ms=1, detail="timed out"),
                ]
            ),
            "no put waited in its log",
        ),
        (
            the_suspended_says_nothing_more,
            facts(suspended=Hit(2, 30_000, {0: 1}, 40_100, "w")),
            "the put that waited at it was answered at 40050 ms, before it went on",
        ),
        (
            the_suspended_says_nothing_more,
            facts(suspended=Hit(2, 30_000, {0: 1}, 37_500, "w")),
            "it went on before it had a successor in partition 0",
        ),
        (
            the_suspended_says_nothing_more,
            facts(history=[each for each in HISTORY if each.generation < 2]),
            "partition 0: nobody answered after it",
        ),
        (
            the_stopped_hands_over,
            facts(leaders=changed(LEADERS, 3, election="offline")),
            "partition 0: after it came store-1 in leader epoch 3 with fence 400, not by shutdown",
        ),
        (
            the_stopped_hands_over,
            facts(leaders=LEADERS[:3]),
            "partition 0: after it came nobody, not by shutdown",
        ),
        (
            the_stopped_hands_over,
            facts(stopped=Hit(3, 50_000, {0: 2})),
            "it did not end by itself",
        ),
        (
            in_sync_as_promised,
            facts(history=told(row(45, 6, 2, 3, (3,)))),
            "INV-72: entries-0 at 45000 ms: the partition epoch rose by 2",
        ),
        (
            in_sync_as_promised,
            facts(history=[row(1, 0, 0, 1, (2, 3))]),
            "INV-73: entries-0 at 1000 ms: leader 1 is not in sync",
        ),
        (
            in_sync_as_promised,
            facts(states=changed(STATES, 2, since=at(28))),
            "1 entered the ISR of 0 and was not Active",
        ),
        (
            in_sync_as_promised,
            facts(states=changed(STATES, 4, since=at(36))),
            "broker 2 was Inactive, and led or was in sync in 0",
        ),
        (in_sync_as_promised, facts(in_sync=[]), "Delta has no changes"),
        (
            kafka_and_delta_agree,
            facts(in_delta={}),
            f"partition 0: {LAST[0]} in Kafka, None in Delta",
        ),
        (kafka_and_delta_agree, facts(in_kafka={}, in_delta={}), "Kafka has no partition"),
    ],
)
def test_what_is_wrong_is_told(
    check: Callable[[BrokersFacts], Check], facts: BrokersFacts, offence: str
) -> None:
    assert offence in check(facts).offences


def test_the_last_in_sync_may_be_inactive() -> None:
    """Nobody else has everything; it leads nothing."""
    alone = [*IN_SYNC[:5], InSync(0, (2,), at(51), None)]
    states = changed(STATES, 5, until=at(52))
    states.append(BrokerState(2, 3, "Inactive", at(52), None))
    assert in_sync_as_promised(facts(in_sync=alone, states=states)).is_ok

    told = msgspec.structs.replace(HISTORY[0], isr=(1, 2, 4))
    (offence,) = in_sync_as_promised(facts(history=[told])).offences
    assert offence == "INV-73: entries-0 at 1000 ms: (1, 2, 4) of (1, 2, 3)"
