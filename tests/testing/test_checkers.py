"""Checks of histories: each finds what it is for, and lets an honest history pass."""

import pytest

from coordlib.demo.history import Happened
from tests.tools.checking import checkers


def told(t_ms: int, what: str, member: str = "a", **fields: object) -> Happened:
    fields.setdefault("partitions", ("t-0",))
    return msg(t_ms, what, member, fields)


def msg(t_ms: int, what: str, member: str, fields: dict) -> Happened:
    return Happened(t_ms, what, member=member, group="g", **fields)


def act(t_ms: int, offset: int, member: str = "a", fence: int = 1, generation: int = 1) -> Happened:
    return told(t_ms, "act", member, offset=offset, fence=fence, generation=generation)


HONEST = [
    told(0, "started"),
    told(1, "assigned"),
    act(2, 0),
    act(3, 1),
    told(4, "commit", offsets={"t-0": 2}),
    told(5, "committed", offsets={"t-0": 2}),
    told(6, "revoked"),
    told(7, "assigned", "b"),
    act(8, 2, "b", 5, 2),
]


def test_an_honest_history_passes() -> None:
    """Commit, let go, and the next one goes on behind it."""
    assert checkers.check(HONEST) == []


@pytest.mark.parametrize(
    ("promise", "history"),
    [
        ("INV-57", [act(1, 0), act(2, 1, "b", 5, 2), act(3, 2)]),
        ("INV-20", [act(1, 0, "a", 9), act(2, 1, "b", 5, 2)]),
        ("INV-58", [told(0, "assigned"), act(1, 0), act(2, 2)]),
        ("INV-58", [told(0, "assigned"), act(1, 1), act(2, 0)]),
        ("INV-59", [act(1, 1), told(2, "committed", offsets={"t-0": 2})]),
        ("INV-25", [act(1, 0), told(2, "commit", offsets={"t-0": 5})]),
        ("INV-60", [*HONEST, act(9, 1, "b", 5, 2)]),
        ("went back to generation", [act(1, 0, generation=4), act(2, 1, generation=3)]),
    ],
)
def test_what_breaks_a_promise_is_found(promise: str, history: list[Happened]) -> None:
    """Two owners, an old token, a skip, a step back, a commit of nothing, a duplicate."""
    assert any(promise in sentence for sentence in checkers.check(history))


def test_who_gets_a_partition_again_may_commit_where_it_begins() -> None:
    """INV-25: meanwhile another one has processed five records of it."""
    history = [
        *(act(1, 0), told(2, "revoked"), *(act(2, at, "b") for at in range(1, 6))),
        *(told(3, "committed", "b", offsets={"t-0": 6}), told(4, "commit", offsets={"t-0": 6})),
    ]

    assert [each for each in checkers.check(history) if "INV-25" in each] == []


@pytest.mark.parametrize("reason", ["lost", "ended", "commit_failed"])
def test_a_duplicate_with_a_reason_is_no_violation(reason: str) -> None:
    """At least once: whoever lost a partition uncommitted, its work is done again."""
    history = [*HONEST[:4], told(6, reason), told(7, "assigned", "b"), act(8, 0, "b", 5, 2)]

    assert checkers.check(history) == []


def once(*lines: Happened) -> list[Happened]:
    """A history of a group that consumes at most once."""
    return [told(0, "started", delivery="at-most-once"), *lines]


def given(t_ms: int, offset: int, member: str = "a") -> Happened:
    return told(t_ms, "handed_out", member, offset=offset)


def test_at_most_once_records_may_be_skipped_and_are_given_once() -> None:
    """INV-63. Who died after its announcement has taken what it announced along."""
    history = once(
        given(1, 0),
        act(1, 0),
        told(2, "committed", offsets={"t-0": 4}),
        told(3, "ended"),
        given(4, 4, "b"),
        act(4, 4, "b", 9),
    )

    assert checkers.check(history) == []
    assert checkers.never_handed_out(history) == 3
    assert checkers.never_handed_out(HONEST) is None


@pytest.mark.parametrize(
    "again",
    [[given(1, 0), given(2, 0, "b")], [act(1, 0), act(2, 0, "b", 5)], [given(1, 0), given(2, 0)]],
)
def test_what_is_given_twice_is_found_at_most_once(again: list[Happened]) -> None:
    """INV-63: whether the first one has lost the partition since excuses nothing."""
    lost = [again[0], told(1, "lost"), again[1]]

    for history in (once(*again), once(*lost)):
        assert any("INV-63" in sentence for sentence in checkers.check(history))


def test_positions_that_are_set_back_give_records_again() -> None:
    """INV-63: an administrator wants them once more; what is before them is not meant."""
    back = told(3, "rewound", "", offset=1)
    honest = once(given(1, 0), given(2, 1), back, given(4, 1, "b"))
    wrong = once(given(1, 0), given(2, 1), back, given(4, 0, "b"))

    assert checkers.check(honest) == []
    assert len(checkers.check(wrong)) == 1
