"""Checks of a history of transactions: each anomaly is found, and an honest history passes."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.demo.history import Happened, read, write
from tests.tools.checking import atomicity, checkers
from tests.tools.commands import main


def of(t_ms: int, what: str, name: str, **fields: Any) -> Happened:
    """A line of a transaction; its writer is called as the first letter says."""
    return Happened(t_ms, what, member=name[0], transaction=name, **fields)


def sent(t_ms: int, name: str, value: str, partition: str, source: str = "") -> Happened:
    return of(t_ms, "sent", name, value=value, partitions=(partition,), key=source)


def offsets(t_ms: int, name: str, group: str = "g", **at: int) -> Happened:
    places = {place.replace("_", "-"): offset for place, offset in at.items()}
    return of(t_ms, "offsets", name, group=group, offsets=places)


def ended(t_ms: int, name: str, how: str, **fields: Any) -> Happened:
    return of(t_ms, "ended", name, detail=how, **fields)


def given(
    t_ms: int, value: str, partition: str, offset: int, reader: str = "r", **fields: Any
) -> Happened:
    fields = {"partitions": (partition,), "offset": offset, **fields}
    return Happened(t_ms, "read", member=reader, value=value, **fields)


def to_end(began_ms: int, *partitions: str, reader: str = "r") -> Happened:
    return Happened(
        began_ms + 5, "read_to_end", member=reader, partitions=partitions, began_ms=began_ms
    )


def fetched(began_ms: int, **at: int) -> Happened:
    places = {place.replace("_", "-"): offset for place, offset in at.items()}
    return Happened(
        began_ms + 5, "fetched", member="m", group="g", offsets=places, began_ms=began_ms
    )


#: By b1, after a2 had been aborted.
COPIED = sent(41, "b1", "v4", "x-0", "in-0@2")
#: a1 is committed, a2 aborted and done again by b1, b2's end unknown to its process, and b3 was
#: never to be committed.
HONEST = [
    fetched(0, in_0=-1),
    of(10, "begin", "a1"),
    sent(11, "a1", "v1", "x-0", "in-0@0"),
    sent(12, "a1", "v2", "y-0", "in-0@1"),
    offsets(13, "a1", in_0=2),
    ended(14, "a1", "unknown"),
    ended(20, "a1", "ok"),
    of(21, "begin", "a2"),
    sent(22, "a2", "v3", "x-0", "in-0@2"),
    offsets(23, "a2", in_0=3),
    given(24, "v1", "x-0", 0),
    ended(30, "a2", "aborted"),
    fetched(31, in_0=2),
    of(40, "begin", "b1"),
    COPIED,
    offsets(42, "b1", in_0=3),
    ended(43, "b1", "unknown"),
    ended(44, "b1", "ok"),
    of(50, "begin", "b2"),
    sent(51, "b2", "v5", "x-0", "in-0@3"),
    sent(52, "b2", "v6", "y-0", "in-0@4"),
    offsets(53, "b2", in_0=5),
    ended(54, "b2", "unknown"),
    of(60, "begin", "b3"),
    sent(61, "b3", "v7", "y-0", "in-0@5"),
    offsets(62, "b3", in_0=6),
    given(70, "v4", "x-0", 4),
    given(70, "v5", "x-0", 6),
    given(71, "v2", "y-0", 0),
    given(71, "v6", "y-0", 2),
    to_end(80, "x-0", "y-0"),
    fetched(90, in_0=5),
]


def without(*values: str) -> list[Happened]:
    """The honest history, in which nobody was given these."""
    return [line for line in HONEST if not (line.what == "read" and line.value in values)]


def but(*changes: tuple[Happened, Happened]) -> list[Happened]:
    """The honest history with other lines in the place of some."""
    assert all(before in HONEST for before, _ in changes)
    instead = {HONEST.index(before): after for before, after in changes}
    return [instead.get(number, line) for number, line in enumerate(HONEST)]


def with_line(line: Happened) -> list[Happened]:
    return sorted([*HONEST, line], key=lambda each: each.t_ms)


def test_an_honest_history_passes() -> None:
    """INV-91, INV-92, INV-93, INV-97: commits, an abort, an unknown end, and one that was none."""
    assert atomicity.check(HONEST) == []
    assert checkers.check(HONEST) == []


def test_an_unknown_end_may_be_either() -> None:
    """Nothing of b2 is read, and its offsets are not committed: it was aborted, all of it."""
    left = [line for line in without("v5", "v6") if line.what != "fetched"]

    assert atomicity.check([*left, fetched(90, in_0=3)]) == []


@pytest.mark.parametrize(
    ("history", "promise"),
    [
        pytest.param(with_line(given(75, "v3", "x-0", 7)), "INV-93: aborted read", id="aborted"),
        pytest.param(
            with_line(given(75, "v7", "y-0", 7)), "INV-93: aborted read", id="never committed"
        ),
        pytest.param(
            with_line(given(75, "v99", "y-0", 7)), "INV-93: r reads 'v99'", id="sent by nobody"
        ),
        pytest.param(without("v6"), "INV-91: torn", id="torn, end unknown"),
        pytest.param(without("v2"), "INV-91: torn", id="torn, end known"),
        pytest.param(without("v1", "v2"), "INV-92: lost write", id="lost"),
        pytest.param(
            with_line(given(75, "v1", "x-0", 8)), "INV-97: duplicate", id="one value twice"
        ),
        pytest.param(
            but(
                (given(71, "v2", "y-0", 0), given(71, "v6", "y-0", 2)),
                (given(71, "v6", "y-0", 2), given(71, "v2", "y-0", 0)),
            ),
            "INV-97: order turned round: r reads offset 0",
            id="a reader goes back",
        ),
        pytest.param(
            but(
                (given(70, "v4", "x-0", 4), given(70, "v5", "x-0", 4)),
                (given(70, "v5", "x-0", 6), given(70, "v4", "x-0", 6)),
            ),
            "INV-97: order turned round: b sent",
            id="a writer's order",
        ),
        pytest.param(
            with_line(given(75, "v4", "x-0", 0, reader="s")),
            "INV-97: order turned round: offset 0",
            id="two readers, two orders",
        ),
        pytest.param(
            with_line(to_end(100, "x-0", reader="b")), "INV-91: torn", id="seen by one reader only"
        ),
        pytest.param(
            [*without("v1", "v2"), to_end(100, "x-0", reader="a")],
            "INV-92: own write missing",
            id="own write",
        ),
        pytest.param(
            but((given(24, "v1", "x-0", 0), given(13, "v1", "x-0", 0))),
            "INV-93: read before decided",
            id="read early",
        ),
        pytest.param(
            with_line(fetched(24, in_0=3)), "INV-93: m fetches 3", id="offsets before decided"
        ),
        pytest.param(
            with_line(fetched(95, in_0=6)), "INV-93: m fetches 6", id="offsets that were aborted"
        ),
        pytest.param(
            but((fetched(90, in_0=5), fetched(90, in_0=3))),
            "INV-91: torn: g has committed 3",
            id="offsets that are missing",
        ),
        pytest.param(
            but((COPIED, sent(41, "b1", "v4", "x-0", "in-0@1"))),
            "INV-97: g has in-0@1 in its committed output 2 times",
            id="input twice",
        ),
        pytest.param(
            but((COPIED, sent(41, "b1", "v4", "x-0"))),
            "INV-97: in-0@2 is not in the committed output",
            id="input missing",
        ),
    ],
)
def test_an_anomaly_is_found(history: list[Happened], promise: str) -> None:
    """One forged history for each."""
    found = atomicity.check(history)

    assert any(sentence.startswith(promise) for sentence in found), found


def test_what_nobody_read_to_the_end_is_not_lost() -> None:
    """A reader that stands before the newest records says nothing about them."""
    lines = [line for line in without("v1", "v2") if line.what != "read_to_end"]

    assert atomicity.check(lines) == []


# -- transactions of several groups -----------------------------------------------------------


def pair(t_ms: int, name: str, source: str, *groups: str) -> list[Happened]:
    """One record of one input, and the offsets of two groups; `in` is that of `g`."""
    places = {"g": {"in_0": int(name[1:])}, "h": {"other_0": 0}}
    return [
        sent(t_ms, name, f"v-{name}", "x-0", source),
        *(offsets(t_ms + 1, name, group, **places[group]) for group in groups),
        ended(t_ms + 2, name, "ok"),
    ]


def test_an_input_belongs_to_the_group_that_commits_its_partition() -> None:
    """INV-97: the first offsets that were told may be those of another group."""
    lines = [
        *pair(10, "a1", "in-0@0", "h", "g"),
        *pair(20, "a2", "in-0@1", "g", "h"),
        given(30, "v-a1", "x-0", 0),
        given(30, "v-a2", "x-0", 2),
        to_end(40, "x-0"),
    ]

    assert atomicity.check(lines) == []


def test_an_input_that_is_there_twice_is_found_among_several_groups() -> None:
    """INV-97."""
    lines = [*pair(10, "a1", "in-0@0", "h", "g"), *pair(20, "b1", "in-0@0", "g")]

    (found,) = atomicity.check(lines)

    assert found == "INV-97: g has in-0@0 in its committed output 2 times: a1, b1"


# -- commits that end late --------------------------------------------------------------------


def late(*more: Happened) -> list[Happened]:
    """c1 was called to commit at 14, and the lists are read to their ends from 20 on."""
    return sorted(
        [
            of(10, "begin", "c1"),
            sent(11, "c1", "w", "x-0", "in-0@0"),
            offsets(13, "c1", in_0=1),
            ended(14, "c1", "unknown"),
            to_end(20, "x-0"),
            fetched(60, in_0=1),
            *more,
        ],
        key=lambda each: each.t_ms,
    )


def test_a_reading_during_the_commit_does_not_say_that_it_was_none() -> None:
    """Its process was at work on it; nobody reads again, and the offsets are committed."""
    assert atomicity.check(late()) == []
    assert atomicity.check(late(Happened(30, "ended", member="c", detail="killed"))) == []


def test_the_input_of_a_commit_that_ends_late_is_not_missing() -> None:
    """INV-97: its output may be there by now."""
    before = [sent(1, "a1", "v", "x-0", "in-0@0"), offsets(2, "a1", in_0=1), ended(3, "a1", "ok")]
    lines = [
        *before,
        given(5, "v", "x-0", 0),
        of(10, "begin", "c1"),
        sent(11, "c1", "w", "x-0", "in-0@1"),
        offsets(12, "c1", in_0=2),
        ended(14, "c1", "unknown"),
        to_end(20, "x-0"),
        fetched(60, in_0=2),
    ]

    assert atomicity.check(lines) == []


def test_a_reading_after_the_end_of_its_process_does() -> None:
    """INV-93: nothing of it came by then, so nothing of it comes."""
    dead = Happened(15, "ended", member="c", detail="killed")

    (found, *_) = atomicity.check(late(dead))

    assert found.startswith("INV-93: m fetches 1 of in-0")


# -- long histories ---------------------------------------------------------------------------


def copied(transactions: int) -> Iterator[Happened]:
    """One list of so many transactions of one record each; a fetch after every one."""
    for n in range(transactions):
        name, value = f"a{n}", f"v{n}"
        yield sent(n, name, value, "x-0", f"in-0@{n}")
        yield offsets(n, name, in_0=n + 1)
        yield ended(n, name, "ok")
        yield given(n, value, "x-0", n)
        yield fetched(n, in_0=n + 1)
    yield to_end(transactions, "x-0")


def steps(call: Callable[[], object]) -> int:
    """Lines of Python that it takes, turns of loops among them."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_the_work_grows_with_the_length_of_a_history_and_no_faster() -> None:
    """An hour of load is a hundred thousand records."""
    short, long = list(copied(100)), list(copied(400))
    assert atomicity.check(long) == []

    assert steps(lambda: atomicity.check(long)) < 5 * steps(lambda: atomicity.check(short))


def test_lines_of_members_beside_transactions_are_checked_as_before() -> None:
    """`ended` of a process is not that of a transaction."""
    acts = [
        Happened(
            t, "act", member=m, group="h", partitions=("t-0",), offset=o, generation=1, fence=f
        )
        for t, m, o, f in [(1, "p", 0, 5), (2, "q", 1, 6), (3, "p", 2, 5)]
    ]
    lines = [*HONEST, *acts, Happened(99, "ended", member="p", group="h", detail="closed")]

    found = checkers.check(sorted(lines, key=lambda each: each.t_ms))

    assert [sentence.split(":")[0] for sentence in found] == ["INV-57", "INV-20", "INV-58"]


def test_a_file_of_transactions_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tests.tools check`: it counts transactions, and its exit code says that one is torn."""
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    write(good, HONEST)
    write(bad, without("v6"))
    assert read(good) == sorted(HONEST, key=lambda line: line.t_ms)

    assert main(["check", str(good)]) == 0
    assert capsys.readouterr().out == "32 lines, 5 transactions: 0 broken promises\n"
    assert main(["check", str(bad)]) == 1
    assert "INV-91: torn" in capsys.readouterr().out
