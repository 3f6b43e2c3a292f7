"""Which offsets are followed where one client invents more than there is room for."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.job.background import committed_log
from coordlib.job.background.committed_log import CommittedOffsets, Exists, shares
from coordlib.kafka.logs import Place


def _bound(monkeypatch: pytest.MonkeyPatch, followed: int, over: int = 0) -> None:
    monkeypatch.setattr(committed_log, "OFFSETS_MAX", followed)
    monkeypatch.setattr(committed_log, "OFFSETS_OVER_MAX", over)


def _exists() -> Exists:
    return lambda place: not place.topic.startswith("invented")


def _of(groups: dict[str, int], topic: str = "t") -> list[tuple[str, Place]]:
    """That many offsets of each group."""
    return [(name, Place(topic, n)) for name, count in groups.items() for n in range(count)]


def _followed(offsets: CommittedOffsets) -> dict[str, list[Place]]:
    return {group: sorted(mine) for group, mine in sorted(offsets.groups.items())}


@pytest.mark.parametrize(
    ("counts", "room", "found"),
    [
        ({"a": 5, "b": 1, "c": 9}, 9, {"a": 4, "b": 1, "c": 4}),
        ({"a": 2, "b": 4, "c": 4}, 9, {"a": 2, "b": 4, "c": 3}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1, "c": 0}),
        ({"a": 5, "b": 5}, 100, {"a": 5, "b": 5}),
        ({"a": 5}, 0, {"a": 0}),
        ({}, 3, {}),
    ],
)
def test_who_has_little_has_all_of_it(
    counts: dict[str, int], room: int, found: dict[str, int]
) -> None:
    assert shares(counts, room) == found


def test_a_hostile_group_takes_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits all that a group may have, of partitions that there are, before the others begin:
    those that come later were without lag and mirror."""
    _bound(monkeypatch, 100, over=10)
    offsets = CommittedOffsets()

    for group, place in [*_of({"hostile": 500}), *_of({"billing": 30, "orders": 20})]:
        offsets.put(group, place, 7)
    offsets.trim()

    assert {name: len(mine) for name, mine in offsets.groups.items()} == {
        "hostile": 50, "billing": 30, "orders": 20,
    }  # fmt: skip
    assert offsets.left_out == 450


def test_invented_topics_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand groups with an invented offset each are as many shares; what exists has all of its
    room, and of the rest some are shown without numbers, as those of deleted topics are."""
    _bound(monkeypatch, 100, over=10)
    offsets = CommittedOffsets(exists=_exists)
    hostile = {f"hostile-{number}": 1 for number in range(1_000)}

    for group, place in [*_of(hostile, "invented"), *_of({"billing": 60}), *_of({"orders": 35})]:
        offsets.put(group, place, 7)
    offsets.trim()

    sizes = {name: len(mine) for name, mine in offsets.groups.items()}
    assert (sizes["billing"], sizes["orders"]) == (60, 35)
    assert sum(sizes.values()) == 100


COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=1)


@given(COUNTS, COUNTS, st.integers(1, 30), st.integers(0, 9), st.integers(0, 9))
def test_the_same_are_followed_after_a_restart(
    here: dict[str, int], absent: dict[str, int], room: int, over: int, seed: int
) -> None:
    """A restart reads the topic in another order, as compaction and other shards leave it: nobody
    gains or loses lag by it, and nobody is there twice."""
    records = [*_of(here), *_of(absent, "invented")]
    found = []
    for number in (0, 1 + seed):
        random.Random(number).shuffle(records)
        with pytest.MonkeyPatch.context() as patch:
            _bound(patch, room, over)
            offsets = CommittedOffsets(exists=_exists)
            for group, place in records + records:
                offsets.put(group, place, 7)
            offsets.trim()
            found.append((_followed(offsets), offsets.left_out))

    assert found[0] == found[1]
    assert sum(map(len, found[0][0].values())) == min(room, len(records))
    assert found[0][1] == max(0, len(records) - room)


def test_memory_stays_within_the_bound_between_two_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile client commits ever new offsets faster than rounds come."""
    _bound(monkeypatch, 100, over=10)
    offsets, most = CommittedOffsets(), 0
    for number in range(1_000):
        offsets.put(f"g{number % 7}", Place("t", number), 1)
        most = max(most, sum(map(len, offsets.groups.values())))

    assert most < 110


def test_what_is_left_out_is_counted_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their lag is missing everywhere: an operator must learn that it is not zero. Who commits
    again and again counts once, and neither who was deleted nor who found room since."""
    _bound(monkeypatch, 2)
    offsets = CommittedOffsets()
    for _ in range(3):
        for partition in range(14):
            offsets.put("g", Place("t", partition), 1)
    offsets.trim()

    assert offsets.left_out == 12
    told = capsys.readouterr().out
    assert told.count("offsets have no lag") == 2, "at the first and at the tenth"
    offsets.put("g", Place("t", 0), None)
    offsets.put("g", Place("t", 13), None)
    assert offsets.left_out == 11
    offsets.put("g", Place("t", 5), 1)
    assert offsets.left_out == 10
    assert offsets.groups == {"g": {Place("t", 1): 1, Place("t", 5): 1}}


def test_counting_what_is_left_out_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile client with ever-new groups must not fill the driver's memory in this way."""
    _bound(monkeypatch, 0)
    monkeypatch.setattr(committed_log, "LEFT_OUT_MAX", 5)
    offsets = CommittedOffsets()
    for number in range(9):
        offsets.put(f"g{number}", Place("t", 0), 1)
    offsets.trim()

    assert (offsets.left_out, offsets.groups) == (5, {})
    assert not offsets.is_known_whole("another"), "nobody knows any more"


def test_topics_are_asked_for_only_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    _bound(monkeypatch, 3)
    asked: list[Callable[[Place], bool]] = []

    def ask() -> Exists:
        asked.append(lambda _: True)
        return asked[-1]

    offsets = CommittedOffsets(exists=ask)
    for partition in range(3):
        offsets.put("g", Place("t", partition), 1)
    offsets.trim()
    assert asked == []
    offsets.put("g", Place("t", 3), 1)

    offsets.trim()

    assert len(asked) == 1
    assert not offsets.is_known_whole("g")
    assert offsets.is_known_whole("h")
