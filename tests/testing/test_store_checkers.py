"""Checks of a replicated store's history: each finds what it is for, and an honest one passes."""

from pathlib import Path
from typing import Any

import pytest

from coordlib.demo.history import Happened, read, write
from tests.tools.checking import checkers, stores
from tests.tools.commands import main


def leads(t_ms: int, what: str, broker: int, epoch: int, **fields: Any) -> Happened:
    """What a leader did."""
    fields = {"fence": 10 * epoch, **fields}
    return Happened(
        t_ms, what, member=f"b{broker}", partitions=("t-0",), generation=epoch, **fields
    )


def says(t_ms: int, what: str, broker: int, epoch: int, offset: int, value: str) -> Happened:
    """A leader is about to answer."""
    return leads(t_ms, what, broker, epoch, offset=offset, key="k", value=value)


def put(began_ms: int, t_ms: int, offset: int, value: str, what: str = "put") -> Happened:
    return Happened(t_ms, what, member="w", began_ms=began_ms, key="k", offset=offset, value=value)


def got(began_ms: int, t_ms: int, offset: int, value: str) -> Happened:
    return Happened(t_ms, "got", member="r", began_ms=began_ms, key="k", offset=offset, value=value)


def row(leader: int, epoch: int, counted: int, isr: tuple[int, ...], **fields: Any) -> Happened:
    return Happened(
        100,
        "row",
        partitions=("t-0",),
        leader=leader,
        generation=epoch,
        partition_epoch=counted,
        isr=isr,
        **{"fence": 10 * epoch, "replicas": (1, 2, 3), **fields},
    )


HONEST = [
    leads(0, "led", 1, 0),
    row(1, 0, 0, (1, 2, 3)),
    got(1, 2, -1, ""),
    says(2, "answered", 1, 0, -1, ""),
    says(4, "acknowledged", 1, 0, 0, "a"),
    put(3, 5, 0, "a"),
    put(6, 30, -1, "b", "put_unknown"),
    row(2, 1, 1, (2, 3)),
    leads(40, "led", 2, 1),
    says(42, "answered", 2, 1, 1, "b"),
    got(41, 43, 1, "b"),
    says(45, "acknowledged", 2, 1, 2, "c"),
    put(44, 46, 2, "c"),
    leads(50, "resigned", 1, 0),
    says(52, "answered", 2, 1, 2, "c"),
    got(51, 53, 2, "c"),
]


def in_order(*history: Happened) -> list[Happened]:
    return sorted(history, key=lambda each: each.t_ms)


def test_an_honest_history_passes() -> None:
    """A leader dies with a put under way; its successor has it, and goes on behind it."""
    history = in_order(*HONEST)

    assert checkers.check(history) == []
    assert stores.unread_puts(history) == []


@pytest.mark.parametrize(
    ("promise", "history"),
    [
        # A suspended leader wakes, and acknowledges.
        ("INV-71", [*HONEST, says(60, "acknowledged", 1, 0, 1, "d")]),
        ("INV-71", [*HONEST, says(60, "answered", 1, 0, 0, "a")]),
        ("INV-72: leader epoch 1", [*HONEST, leads(60, "led", 3, 1)]),
        ("INV-72: leader epoch 2", [*HONEST, leads(60, "led", 3, 2, fence=10)]),
        # A put that was acknowledged is gone; an old value; a value that was read is gone.
        ("INV-78", [*HONEST, got(60, 61, -1, "")]),
        ("INV-78: r read k", [*HONEST, got(60, 61, 1, "b")]),
        ("INV-78: w put k", [*HONEST, put(60, 61, 2, "c")]),
        ("position 2 of k is 'd'", [*HONEST, put(49, 61, 2, "d")]),
        # Nobody has put it, or not yet.
        ("nobody has put", [*HONEST, got(60, 61, 3, "d")]),
        ("nobody has put", [got(60, 61, 3, "d"), put(62, 63, 3, "d")]),
        ("which no leader has said", [*HONEST, put(60, 61, 3, "d")]),
        ("INV-73", [row(3, 0, 0, (1, 2))]),
        ("INV-73", [row(1, 0, 0, (1, 4))]),
        ("INV-72", [row(1, 0, 0, (1, 2)), row(1, 0, 2, (1,))]),
        ("INV-72", [row(1, 0, 0, (1, 2)), row(2, 0, 1, (2,))]),
        ("INV-72", [row(1, 1, 0, (1, 2)), row(1, 1, 1, (1,), fence=5)]),
    ],
)
def test_what_breaks_a_promise_is_found(promise: str, history: list[Happened]) -> None:
    """Each forged line is named by the sentence that is meant for it."""
    assert any(promise in sentence for sentence in checkers.check(in_order(*history)))


def test_operations_at_one_time_may_be_seen_in_any_order() -> None:
    """A read beside a put finds it or not; then the next one must not go back."""
    puts = [put(0, 1, 0, "a"), put(2, 20, 1, "b")]
    reads = [got(3, 10, 0, "a"), got(4, 9, 1, "b")]

    assert checkers.check(in_order(*puts, *reads)) == []
    (told,) = checkers.check(in_order(*puts, *reads, got(11, 12, 0, "a")))
    assert "INV-78: r read k at 11 ms, position 0; r read position 1 until 9 ms" in told


def test_acts_of_one_millisecond_are_in_no_order() -> None:
    """Two files are put together by a clock of milliseconds."""
    history = [says(5, "acknowledged", 2, 1, 1, "b"), says(5, "acknowledged", 1, 0, 0, "a")]

    assert checkers.check(history) == []


def test_puts_that_nobody_has_read_are_told() -> None:
    """A run in which the reader had died shows nothing."""
    history = [put(0, 1, 0, "a"), got(2, 3, 0, "a"), put(4, 5, 1, "b")]

    assert [each.value for each in stores.unread_puts(history)] == ["b"]


def test_a_history_of_a_store_is_checked_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, over a file."""
    path = tmp_path / "history.jsonl"
    write(path, HONEST)

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == "16 lines, 2 puts and 3 reads answered: 0 broken promises\n"
    assert read(path) == in_order(*HONEST)
    write(path, [*HONEST, got(60, 61, 1, "b")])
    assert main(["check", str(path)]) == 1
    assert "INV-78: r read k at 60 ms" in capsys.readouterr().out
