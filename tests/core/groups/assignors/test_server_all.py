"""What every built-in strategy keeps, whatever the group."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given

from coordlib.core.groups.assignors.registry import BUILT_IN, check_total
from coordlib.core.groups.assignors.server_model import DEFAULT, Shares, Subscriber
from tests.core.groups.assignors.groups import FEW, Drawn, groups, holding, subscribers

NAMES = sorted(BUILT_IN)


def test_the_default_is_there() -> None:
    """A group whose members name no strategy is divided by it."""
    assert DEFAULT in BUILT_IN


@pytest.mark.parametrize("name", NAMES)
@given(drawn=groups())
@FEW
def test_shares_are_total_and_in_order(name: str, drawn: Drawn) -> None:
    """A partition that two get is read twice, and one that nobody gets is read by nobody."""
    shares = BUILT_IN[name](drawn.members, drawn.partitions)

    check_total(drawn.members, drawn.partitions, shares)
    assert list(shares) == list(drawn.members)
    for rows in shares.values():
        assert list(rows) == sorted(rows)
        assert all(some and list(some) == sorted(some) for some in rows.values())


@pytest.mark.parametrize("name", NAMES)
@given(drawn=groups())
@FEW
def test_nothing_moves_when_nothing_changed(name: str, drawn: Drawn) -> None:
    """A member subscribes once more with the same words: nobody has to stop for that."""
    shares = BUILT_IN[name](drawn.members, drawn.partitions)

    assert BUILT_IN[name](holding(drawn.members, shares), drawn.partitions) == shares


@pytest.mark.parametrize("name", NAMES)
@given(drawn=groups())
@FEW
def test_what_goes_in_is_left_alone(name: str, drawn: Drawn) -> None:
    """The shares that go in are the group's state; a step that fails must leave it as it was."""
    before = repr(drawn)

    BUILT_IN[name](drawn.members, drawn.partitions)

    assert repr(drawn) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_group_without_members_or_topics_gets_nothing(name: str) -> None:
    """The last member leaves, or none of the topics exists yet."""
    waiting = {"m": Subscriber(topics=()), "n": Subscriber(topics=("t",))}

    assert BUILT_IN[name]({}, {"t": 3}) == {}
    assert BUILT_IN[name]({"m": waiting["m"]}, {"t": 3}) == {"m": {}}
    assert BUILT_IN[name](waiting, {"t": 0}) == {"m": {}, "n": {}}


@pytest.mark.parametrize("name", NAMES)
def test_who_wants_nothing_yet_does_not_disturb_the_others(name: str) -> None:
    """A member whose pattern matches no topic yet joins a group that is balanced."""
    members = subscribers({"m": ("t",), "idle": (), "n": ("t",)})

    assert BUILT_IN[name](members, {"t": 5})["idle"] == {}
    sizes = [len(rows["t"]) for rows in BUILT_IN[name](members, {"t": 5}).values() if rows]
    assert sorted(sizes) == [2, 3]


@pytest.mark.parametrize("name", NAMES)
def test_capacities_weigh(name: str) -> None:
    """One machine has three times the cores of each of the others."""
    members = subscribers({"big": ("t",), "m": ("t",), "n": ("t",)}, {"big": 3})

    shares = BUILT_IN[name](members, {"t": 10})

    assert {who: len(rows["t"]) for who, rows in shares.items()} == {"big": 6, "m": 2, "n": 2}


def drawn_by_lot() -> Mapping[str, list[Shares]]:
    """A few divisions, one after the other, of groups that only a seed tells."""
    lot = random.Random(2026)
    answers: dict[str, list[Shares]] = {name: [] for name in NAMES}
    for _ in range(20):
        topics = {f"topic-{n}": lot.randrange(1, 30) for n in range(lot.randrange(1, 6))}
        is_equal = lot.random() < 0.5
        for name in NAMES:
            members = {
                f"member-{n}": Subscriber(
                    topics=tuple(sorted(t for t in topics if is_equal or lot.random() < 0.6)),
                    capacity=lot.choice((1, 1, 2, 5)),
                )
                for n in lot.sample(range(50), lot.randrange(2, 12))
            }
            shares = BUILT_IN[name](members, topics)
            members = holding(members, shares)
            del members[min(members)]
            members["newcomer"] = Subscriber(topics=tuple(sorted(topics)))
            answers[name] += [shares, BUILT_IN[name](members, topics)]
    return answers


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.core.groups.assignors.test_server_all import drawn_by_lot
print(json.dumps(drawn_by_lot()))
"""


def test_shares_do_not_depend_on_the_hash_seed() -> None:
    """INV-01: a batch that runs again runs in another process, which has another hash seed."""
    root = str(Path(__file__).parents[4])
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, root],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }

    assert answers == {json.dumps(drawn_by_lot()) + "\n"}
