"""The verdict on the act `claims` finds what is wrong: runs that are right but for one thing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordlib.demo.verdict import Check
from coordlib.demo.witness import Consumed
from coordlib.history.views.groups import Tenure
from tests.stack.acts.claims_verdict import (
    Claimed,
    ClaimsFacts,
    history_is_complete,
    judge,
    last_positions,
    newer_twin_goes_on,
    read_on_from_the_log,
    set_back_by_the_operator,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
TOPIC = "payments"


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def read(client: str, partition: int, epoch: int, *offsets: int) -> list[Consumed]:
    return [
        Consumed(client, partition, each, 10 * partition + each, -1, 1_000 * epoch + each, epoch)
        for each in offsets
    ]


def tenure(each: Claimed) -> Tenure:
    return Tenure(TOPIC, each.partition, each.client, -1, each.epoch, each.since, each.until)


CLAIMS = [
    # a's second process takes partition 0 back, having signed 2 of 3; then it is set back to 4.
    Claimed(0, "a", 1, at(0), at(5), "claimed", "reclaimed", None, 2),
    Claimed(0, "a", 5, at(5), at(30), "reclaimed", "released", 2, 6),
    Claimed(0, "operator", 21, at(31), at(32), "claimed", "released", 6, 4),
    Claimed(0, "a", 33, at(33), at(40), "claimed", "released", 4, 10),
    # b is killed at 5 with 3 signed, and the job is down while c takes partition 1 over.
    Claimed(1, "b", 2, at(0), at(21), "claimed", "expired", 0, 3),
    Claimed(1, "c", 20, at(22), at(30), "claimed", "released", 3, 7),
    Claimed(1, "operator", 22, at(31), at(32), "claimed", "released", 7, 5),
    Claimed(1, "c", 34, at(33), at(40), "claimed", "released", 5, 10),
]


def facts_of(claims: list[Claimed], **different: Any) -> ClaimsFacts:
    facts = ClaimsFacts(
        records=20,
        placed={10 * p + offset: (p, offset) for p in (0, 1) for offset in range(10)},
        consumed=[
            *read("a", 0, 1, 0, 1, 2),
            *read("a", 0, 5, 2, 3, 4, 5),
            *read("a", 0, 33, 4, 5, 6, 7, 8, 9),
            *read("b", 1, 2, 0, 1, 2, 3, 4),
            *read("c", 1, 20, 3, 4, 5, 6),
            *read("c", 1, 34, 5, 6, 7, 8, 9),
        ],
        generations=(),
        owners=(),
        commits=(),
        committed={0: 10, 1: 10},
        committed_in_history={0: 10, 1: 10},
        log_ends={0: 10, 1: 10},
        killed="b",
        tenures=[tenure(each) for each in claims],
        claims=claims,
        won=frozenset((each.partition, each.epoch, each.client) for each in CLAIMS),
        twin="a",
        twin_claims=1,
        operator="operator",
        set_back={0: 4, 1: 5},
        down=(at(10), at(35)),
    )
    return replace(facts, **different)


def changed(number: int, **fields: Any) -> list[Claimed]:
    return [
        replace(each, **fields) if index == number else each for index, each in enumerate(CLAIMS)
    ]


def test_a_good_run_has_no_offence() -> None:
    checks = judge(facts_of(CLAIMS))

    assert [check.offences for check in checks] == [()] * 8
    assert last_positions(facts_of(CLAIMS)) == {1: 3}


@pytest.mark.parametrize(
    ("check", "facts", "offence"),
    [
        (
            read_on_from_the_log,
            facts_of(CLAIMS, consumed=read("c", 1, 20, 3, 5)),
            "the claim of c on partition 1 with epoch 20 did not read from 3 without a gap",
        ),
        (
            read_on_from_the_log,
            facts_of(CLAIMS, consumed=read("c", 1, 20, 4, 5, 6)),
            "the claim of c on partition 1 with epoch 20 did not read from 3 without a gap",
        ),
        (
            read_on_from_the_log,
            facts_of(changed(5, first=4)),
            "the claim of c on partition 1 with epoch 20 began at 4, and the claim of b on "
            "partition 1 with epoch 2 had ended at 3",
        ),
        (
            read_on_from_the_log,
            facts_of(changed(4, last=6)),
            "the claim of b on partition 1 with epoch 2 signed 6 after 5 records from 0",
        ),
        (
            newer_twin_goes_on,
            facts_of(changed(1, began="claimed")),
            "0 claims were taken back, not 1",
        ),
        (
            newer_twin_goes_on,
            facts_of(changed(1, client="c")),
            "the claim of c on partition 0 with epoch 5 was taken back, and it is not a's",
        ),
        (
            newer_twin_goes_on,
            facts_of(CLAIMS, twin_claims=2),
            "1 claims were taken back, not 2",
        ),
        (
            set_back_by_the_operator,
            facts_of(changed(1, ended="expired")),
            "the claim of a on partition 0 with epoch 5 was expired, not released",
        ),
        (
            set_back_by_the_operator,
            facts_of(changed(3, first=6)),
            "the claim of a on partition 0 with epoch 33 began at 6, and 4 was set",
        ),
        (
            set_back_by_the_operator,
            facts_of(changed(2, client="c")),
            "partition 0: 0 claims of operator",
        ),
        (set_back_by_the_operator, facts_of(CLAIMS, set_back={}), "nothing was set back"),
        (
            history_is_complete,
            facts_of(CLAIMS[:5] + CLAIMS[6:]),
            "Delta lacks the claim of c on partition 1 with epoch 20",
        ),
        (
            history_is_complete,
            facts_of(CLAIMS, won=frozenset({(0, 1, "a")})),
            "the log lacks the claim of a on partition 0 with epoch 5",
        ),
        (history_is_complete, facts_of([*CLAIMS, CLAIMS[0]]), "Delta has a claim twice"),
        (
            history_is_complete,
            facts_of(changed(7, until=None)),
            "the claim of c on partition 1 with epoch 34 has not ended",
        ),
        (
            history_is_complete,
            facts_of(CLAIMS, down=(at(22), at(35))),
            "0 of 1 claims of b moved while no job ran",
        ),
        (
            history_is_complete,
            facts_of(CLAIMS, down=(at(10), at(21))),
            "0 of 1 claims of b moved while no job ran",
        ),
        (
            history_is_complete,
            facts_of(changed(4, ended="released")),
            "0 of 0 claims of b moved while no job ran",
        ),
    ],
)
def test_what_is_wrong_is_told(
    check: Callable[[ClaimsFacts], Check], facts: ClaimsFacts, offence: str
) -> None:
    assert offence in check(facts).offences
