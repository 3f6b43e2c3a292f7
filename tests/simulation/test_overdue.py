"""What may not go on for ever, and what may not come at once: each check can fail."""

from collections.abc import Sequence
from typing import Any

import pytest

from coordlib.core.wire import api
from tests.simulation.test_bystanders import Made, asked, record, told, world
from tests.simulation.test_checks import assert_breaks
from tests.tools.simulation import bystanders
from tests.tools.simulation.evidence import Told
from tests.tools.simulation.log_clock import LogClock, of_requests
from tests.tools.simulation.overdue import Retention
from tests.tools.simulation.strangers import ELSEWHERE
from tests.tools.simulation.world import PREFIX, World

SHORT = {"retention_ms": 8_000, "shards": 1}
STEP_MS = 1_000
ROWS = {"offsets": [{"topic": "orders", "partition": 0}]}
OTHERS = {"offsets": [{"topic": ELSEWHERE, "partition": 0}]}
CREATED = told("GroupCreated", "r0-1", reason="first commit")
COMMITTED = told("OffsetsCommitted", "r0-1", detail=ROWS)


def evidence(lines: Sequence[Told], *steps_ms: int) -> Made:
    """These lines, and a log of requests and one of positions with these steps of time."""
    made = Made([], list(lines))
    times_ms = [sum(steps_ms[:number]) for number in range(len(steps_ms) + 1)]
    for topic in ("requests", "offsets"):
        made.cluster.partitions[(f"{PREFIX}.{topic}", 0)].records = [
            record(each) for each in times_ms
        ]
    return made


def look(lines: Sequence[Told], last: int = 29) -> None:
    """Thirty records, a second apart, of which this is the newest that was judged."""
    mine = world(**SHORT)
    Retention(mine, evidence(lines, *[STEP_MS] * 29), 0).check(last)


# ---- the clock ----------------------------------------------------------------------------------


def test_the_clock_goes_between_two_bounds() -> None:
    """Rule 1: a long step counts as CAP at the least; time that goes back counts nothing."""
    clock = LogClock([record(each) for each in (0, 500, 20_500, 9_000, 9_100)], 2_000)

    assert (clock.least_ms(0, 2), clock.most_ms(0, 2)) == (2_500, 20_500)
    assert (clock.least_ms(2, 4), clock.most_ms(2, 4)) == (100, 100)
    assert clock.least_ms(3, 3) == clock.least_ms(4, 1) == clock.most_ms(4, 1) == 0


_ENVELOPE = {"v": 1, "id": "1", "client": "b", "group": "g", "reply": 0}


@pytest.mark.parametrize(
    "request_",
    [
        api.JoinGroup(
            **_ENVELOPE,
            member="",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=9_000,
            protocol_type="consumer",
            protocols=(),
        ),
        api.RegisterBroker(
            **_ENVELOPE,
            broker=1,
            endpoints=(),
            session_timeout_ms=9_000,
            release_timeout_ms=6_000,
            storage="disk",
        ),
        api.InitProducerId(v=1, id="1", client="b", group="g", reply=0, timeout_ms=6_000),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_step_of_the_clock_is_a_fifth_of_anybodys_timeout(request_: api.Request) -> None:
    """Rule 1, for all kinds of entities: a broker in a shard makes its clock go in short steps."""
    made = evidence([], 40_000)
    made.asked.append(asked(request_, "r0-0", 0))

    assert of_requests(made, 0).least_ms(0, 1) == 1_200


# ---- retention ----------------------------------------------------------------------------------


def test_an_offset_that_outlives_its_check_is_seen() -> None:
    """INV-26: due after eight seconds, and checks are one second apart."""
    look([CREATED, COMMITTED], last=9)
    assert_breaks("INV-26: orders-0", lambda: look([CREATED, COMMITTED], last=10))


@pytest.mark.parametrize("at", [9, 10, 11])
def test_an_offset_that_goes_too_late_is_seen(at: int) -> None:
    """INV-26: the record by which it goes is not the one at which it was there."""
    expired = told("OffsetsExpired", f"r0-{at}", detail=ROWS)
    lines = [CREATED, COMMITTED, expired, told("GroupDeleted", f"r0-{at}")]

    if at <= 10:
        look(lines)
    else:
        assert_breaks("INV-26", lambda: look(lines))


def test_time_begins_again_with_a_commit_and_with_the_last_member() -> None:
    """INV-26: each of them keeps the offset for the whole retention."""
    again = told("OffsetsCommitted", "r0-9", detail=ROWS)
    look([CREATED, COMMITTED, again], last=17)
    assert_breaks("INV-26", lambda: look([CREATED, COMMITTED, again], last=18))

    joined = [CREATED, COMMITTED, told("MemberJoined", "r0-5", member="a")]
    look(joined)
    look([*joined, told("GroupEmptied", "r0-20")], last=28)
    assert_breaks("INV-26", lambda: look([*joined, told("GroupEmptied", "r0-20")]))


def test_what_no_member_wants_goes_while_they_are_at_rest() -> None:
    """INV-26: and what they may want stays, as does everything while they are not at rest."""
    lines = [CREATED, told("OffsetsCommitted", "r0-1", detail=OTHERS)]
    lines += [told("MemberJoined", "r0-2", member="a"), told("AssignmentIssued", "r0-4")]

    look([*lines[:1], COMMITTED, *lines[2:]])
    look([*lines, told("RebalanceStarted", "r0-9")])
    assert_breaks("INV-26: elsewhere-0", lambda: look(lines))


def test_a_group_that_is_set_aside_keeps_everything() -> None:
    """INV-42: its time counts from its release."""
    aside = [CREATED, COMMITTED, told("GroupQuarantined", "r0-2")]

    look(aside)
    look([*aside, told("GroupReleased", "r0-20")], last=28)
    assert_breaks("INV-26", lambda: look([*aside, told("GroupReleased", "r0-20")]))


def test_an_empty_group_without_offsets_that_stays_is_seen() -> None:
    """INV-26: it goes at the next check."""
    bare = [CREATED, COMMITTED, told("OffsetsDeleted", "r0-2", detail=ROWS)]

    look(bare, last=3)
    assert_breaks("INV-26: it of group g", lambda: look(bare, last=4))


# ---- the rate of new groups ---------------------------------------------------------------------


def crowd(topic: str, places: Sequence[int], *steps_ms: int, **traits: Any) -> None:
    """Groups that were made by these records; of two each second."""
    mine: World = world(new_groups_per_second=2, shards=1)
    mine.checkpoints = traits.get("checkpoints", 1)
    lines = [told("GroupCreated", f"{topic}0-{each}", group=f"g{each}") for each in places]
    bystanders.check_rate(mine, evidence(lines, *steps_ms))


@pytest.mark.parametrize("topic", ["r", "o"])
def test_more_new_groups_than_the_rate_allows_are_seen(topic: str) -> None:
    """INV-31: ten at once are a burst; afterwards two each second, and no more."""
    crowd(topic, range(10), *[0] * 20)
    assert_breaks("INV-31", lambda: crowd(topic, range(11), *[0] * 20))

    some = [*range(10), *range(11, 19)]
    crowd(topic, some, *[0] * 9, *[500] * 20)
    assert_breaks("INV-31", lambda: crowd(topic, some, *[0] * 9, *[400] * 20))


def test_time_that_passed_unused_makes_no_larger_burst() -> None:
    """INV-31: an hour of silence, and then eleven."""
    crowd("r", range(1, 11), 3_600_000, *[0] * 20)
    assert_breaks("INV-31", lambda: crowd("r", range(1, 12), 3_600_000, *[0] * 20))


def test_a_rebuilt_shard_may_begin_with_a_burst() -> None:
    """What was booked is in no topic."""
    crowd("r", range(20), *[0] * 20, checkpoints=2)
    assert_breaks("INV-31", lambda: crowd("r", range(21), *[0] * 20, checkpoints=2))
