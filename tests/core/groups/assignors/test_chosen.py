"""Dividing by the strategy that a group chose: what a user's own may do, and what stays whole."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordlib.core.groups.assignors import registry
from coordlib.core.groups.assignors import server_sticky as sticky
from coordlib.core.groups.assignors.registry import BUILT_IN, FAULT_LENGTH_MAX, StrategyBook, divide
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from tests.core.groups.assignors.groups import holding, subscribers

COUNTS = {"t": 4}
MEMBERS = holding(subscribers({"m": ("t",), "n": ("t",)}), {"m": {"t": (0, 1)}})
BY_STICKY = sticky.assign(MEMBERS, COUNTS)


def all_to_the_last(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Any:
    """A strategy as a user writes it: lists, in any order."""
    *others, last = members
    rows = {topic: list(reversed(range(partitions[topic]))) for topic in members[last].topics}
    return {last: rows} | {other: {"t": []} for other in others}


def chosen_by(strategy: Any) -> registry.Division:
    return divide(StrategyBook({"mine": strategy}), "mine", MEMBERS, COUNTS)


def test_the_book_has_the_built_in_ones_and_the_users() -> None:
    """Subscribe names a strategy: the coordinator has it, or refuses."""
    book = StrategyBook({"mine": all_to_the_last})

    assert book.names == ("mine", "range", "roundrobin", "sticky", "uniform")
    assert "mine" in book
    assert "sticky" in book
    assert "yours" not in book
    assert StrategyBook().names == tuple(sorted(BUILT_IN))


def test_nobody_takes_the_name_of_a_built_in_one() -> None:
    """Members that ask for sticky would get something else."""
    with pytest.raises(ValueError, match="'sticky' is the name of a built-in strategy"):
        StrategyBook({"sticky": all_to_the_last})


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_built_in_one_divides(name: str) -> None:
    """The usual case."""
    division = divide(StrategyBook(), name, MEMBERS, COUNTS)

    assert (division.shares, division.fault) == (BUILT_IN[name](MEMBERS, COUNTS), None)


def test_a_users_strategy_divides() -> None:
    """Its answer comes out as all shares do: every member, tuples, ascending."""
    division = chosen_by(all_to_the_last)

    assert (division.shares, division.fault) == ({"m": {}, "n": {"t": (0, 1, 2, 3)}}, None)


def raising(*_: object) -> Shares:
    raise ZeroDivisionError("nobody thought\nof \ud800 two")


class Silent(Exception):
    """Its own text is broken too."""

    def __str__(self) -> str:
        raise KeyError


def raising_silently(*_: object) -> Shares:
    raise Silent


def calling_itself(*arguments: Any) -> Shares:
    return calling_itself(*arguments)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (raising, "failed with ZeroDivisionError: nobody thought of   two."),
        (raising_silently, "failed with Silent."),
        (calling_itself, "failed with RecursionError: "),
        (lambda members: {}, "failed with TypeError: "),
        (lambda *_: None, "failed with ValidationError: Expected `object`, got `null`."),
        (lambda *_: {"m": {"t": ("0",)}}, "failed with ValidationError: Expected `int`"),
        (lambda *_: {"m": {"t": (True,)}}, "failed with ValidationError: Expected `int`"),
        (lambda *_: {"m": {"t": (0, 1, 2, 3)}}, "is not total: Member 'n' is left out."),
        (lambda *_: {"m": {}, "n": {}}, "is not total: Partition 0 of 't' is given to nobody."),
    ],
)
def test_a_users_fault_stays_its_groups_matter(strategy: Any, sentence: str) -> None:
    """INV-01: the batch goes on, the group is divided, and its history says by whom and why."""
    division = chosen_by(strategy)

    assert division.shares == BY_STICKY
    assert division.fault is not None
    assert division.fault.startswith(f"sticky divided, since strategy 'mine' {sentence}")
    assert division.fault.endswith(".")
    assert division.fault.isprintable()
    assert len(division.fault) <= FAULT_LENGTH_MAX


def test_a_fault_is_bounded() -> None:
    """An exception that carries a whole table must not fill the group's history."""

    def raise_much(*_: object) -> Shares:
        raise ValueError("x" * 100_000)

    fault = chosen_by(raise_much).fault

    assert fault is not None
    assert len(fault) == FAULT_LENGTH_MAX
    assert fault.endswith("x\u2026.")


def test_a_fault_is_the_same_when_the_batch_runs_again() -> None:
    """Objects stand elsewhere in another process; the sink compares digests of what was written."""

    def raise_an_object(*_: object) -> Shares:
        raise ValueError(object())

    fault = chosen_by(raise_an_object).fault

    assert fault is not None
    assert fault.endswith("ValueError: <object object at 0x>.")


@pytest.mark.parametrize(
    "change",
    [
        lambda members, _: members.clear(),
        lambda members, _: members["m"].share.clear(),
        lambda members, _: setattr(members["m"], "share", {}),
        lambda _, partitions: partitions.clear(),
    ],
    ids=["members", "a share", "a member", "partitions"],
)
def test_a_users_strategy_cannot_change_the_group(change: Any) -> None:
    """It uses up what it was given while it divides: what members had is the group's state."""
    division = chosen_by(change)

    assert division.fault is not None
    assert "AttributeError" in division.fault
    assert division.shares == BY_STICKY
    assert MEMBERS["m"].share == {"t": (0, 1)}


def test_a_strategy_that_the_job_has_no_more_is_a_fault() -> None:
    """The job was restarted without the package, or without its name in the settings."""
    division = divide(StrategyBook(), "mine", MEMBERS, COUNTS)

    assert division.shares == BY_STICKY
    assert division.fault == "sticky divided, since strategy 'mine' is not known to this job."


def test_a_defect_of_a_built_in_one_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swallowed, it would be found by nobody; the shard quarantines the group instead."""
    monkeypatch.setitem(registry.BUILT_IN, "range", raising)

    with pytest.raises(ZeroDivisionError):
        divide(StrategyBook(), "range", MEMBERS, COUNTS)
