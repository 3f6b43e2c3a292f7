"""What the archive reads next: in which order, how much, and what is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.errors import StartRefused
from coordlib.history.plan import (
    Commit,
    Hole,
    Positions,
    Range,
    Source,
    commit_in,
    merged,
    plan,
    unreported,
)
from coordlib.kafka.logs import Bounds, Lost, Place, Why

EVENTS, GROUPS = Place("events", 0), Place("groups", 0)
SHARDS = tuple(Place("events", shard) for shard in range(3))


def test_each_table_goes_on_where_it_stands() -> None:
    """Of a log that nobody has read yet it begins at 0."""
    found = plan({"events": {"0": 4}}, {EVENTS: Bounds(0, 9), GROUPS: Bounds(0, 2)}, 100, {})

    assert found.ranges == (Range("events", 0, 4, 9), Range("groups", 0, 0, 2))
    assert found.records == 7
    assert found.until == {"events": {"0": 9}, "groups": {"0": 2}}
    assert (found.left, found.cut, found.holes) == (0, (), ())


def test_nothing_new_is_no_batch() -> None:
    found = plan({"events": {"0": 9}}, {EVENTS: Bounds(0, 9)}, 100, {})

    assert (found.ranges, found.until) == ((), {"events": {"0": 9}})


def test_a_backlog_is_cut_in_proportion_and_the_rest_is_counted() -> None:
    """The archive was away for days: memory of one batch is bounded, and a small partition does
    not wait behind a large one."""
    bounds = {
        SHARDS[0]: Bounds(0, 900),
        SHARDS[1]: Bounds(0, 100),
        SHARDS[2]: Bounds(0, 1),
    }

    found = plan({}, bounds, 100, {})

    assert [each.end for each in found.ranges] == [89, 9, 1]
    assert (found.left, found.cut) == (902, SHARDS[:2])


def test_what_is_deleted_is_a_hole_and_the_rest_is_read() -> None:
    """Retention overtook the archive in one shard, and in another one wholly."""
    bounds = {SHARDS[0]: Bounds(7, 9), SHARDS[1]: Bounds(8, 8), SHARDS[2]: Bounds(0, 5)}

    found = plan({"events": {"0": 4, "2": 5}}, bounds, 100, {})

    assert found.ranges == (Range("events", 0, 7, 9),)
    assert found.holes == (Hole("events", 0, 4, 7), Hole("events", 1, 0, 8))
    assert found.until == {"events": {"0": 9, "1": 8, "2": 5}}


def test_a_hole_is_told_once_and_what_it_grew_by_later() -> None:
    """The commit with its line was made, and the one of the table that lacks the records was not;
    meanwhile retention has taken more."""
    holes = (Hole("lag", 0, 4, 9), Hole("lag", 1, 0, 8))

    assert unreported(holes, {}) == holes
    assert unreported(holes, {"lag": {"0": 7, "1": 8}}) == (Hole("lag", 0, 7, 9),)


def test_a_log_that_has_lost_its_end_goes_on_there_and_has_its_line() -> None:
    """Once that is accepted. Of one that has grown again, what stands at offsets that were read is
    left out.  # INV-152"""
    cut = [Lost(SHARDS[0], 4, 10, Why.SHORTER), Lost(SHARDS[1], 9, 10, Why.OTHER)]
    bounds = {SHARDS[0]: Bounds(0, 4), SHARDS[1]: Bounds(0, 12)}
    next_: Positions = {"events": {"0": 10, "1": 10}}

    found = plan(next_, bounds, 100, next_, cut)

    assert found.ranges == (Range("events", 1, 10, 12),)
    assert found.holes == (
        Hole("events", 0, 4, 10, Why.SHORTER),
        Hole("events", 1, 9, 10, Why.OTHER),
    )
    ends = Commit("a", 1, next_).following("a", found.until, 0, found.until, found.holes)
    assert ends.next == {"events": {"0": 4, "1": 12}}
    assert ends.reported == {}, "the next cut of this log has a line, too"
    assert unreported(found.holes, {"events": {"0": 10, "1": 10}}) == found.holes


def test_a_batch_that_not_all_tables_have_is_completed_first() -> None:
    """The driver died between two tables: the later one must not fall behind by more than that,
    however often it happens.  # INV-39"""
    bounds = {EVENTS: Bounds(0, 50), GROUPS: Bounds(0, 50)}

    found = plan({"events": {"0": 20}}, bounds, 100, {"events": {"0": 20}, "groups": {"0": 9}})

    assert found.ranges == (Range("groups", 0, 0, 9),)
    assert found.until == {"events": {"0": 20}, "groups": {"0": 9}}
    assert found.left == 30 + 41


def test_a_batch_of_another_log_is_not_waited_for() -> None:
    """An older commit says where a batch ended in a topic that was made anew since."""
    bounds = {EVENTS: Bounds(0, 50), Place("lag", 0): Bounds(0, 3)}

    found = plan({"lag": {"0": 3}}, bounds, 100, {"lag": {"0": 1_000}})

    assert found.ranges == (Range("events", 0, 0, 50),)


def test_partitions_without_a_leader_are_left_for_later() -> None:
    """The brokers do not tell their bounds: the others go on, their position stays."""
    next_: Positions = {"events": {"0": 4, "1": 3}}

    found = plan(next_, {SHARDS[0]: Bounds(0, 9)}, 100, {})

    assert found.ranges == (Range("events", 0, 4, 9),)
    assert merged(next_, found.until) == {"events": {"0": 9, "1": 3}}


LOGS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60)), max_size=4)


@given(LOGS, st.integers(1, 30))
def test_every_record_is_read_once_or_in_a_hole(
    logs: list[tuple[int, int, int]], records_max: int
) -> None:
    """Whatever was read before, deleted, and however it is cut: batch after batch to the end."""
    bounds = {
        Place("events", n): Bounds(start, start + size) for n, (start, size, _) in enumerate(logs)
    }
    next_: Positions = {
        "events": {str(n): min(at, start + size) for n, (start, size, at) in enumerate(logs)}
    }
    seen: dict[int, list[tuple[int, int]]] = {
        n: [(0, next_["events"][str(n)])] for n in range(len(logs))
    }
    told: Positions = {}
    for _ in range(200):
        found = plan(next_, bounds, records_max, {})
        for part in (*unreported(found.holes, told), *found.ranges):
            seen[part.partition].append((part.first, part.end))
        assert sum(each.end - each.first for each in found.ranges) <= records_max + len(logs)
        told = merged(told, {"events": {str(h.partition): h.end for h in found.holes}})
        next_ = merged(next_, found.until)
        if not found.left:
            break

    for place, log in bounds.items():
        parts = [part for part in seen[place.partition] if part[0] < part[1]]
        assert [first for first, _ in parts[1:]] == [end for _, end in parts[:-1]], (
            "no gap, no overlap"
        )
        assert not parts or (parts[0][0], parts[-1][1]) == (0, log.end)


def test_a_commit_is_read_back_as_it_was_written() -> None:
    ends, until = {"events": {"0": 9}}, {"lag": {"0": 7}}
    commit = Commit("a", 3, {"events": {"0": 4}}, 2).following(
        "b", ends, 1, until, (Hole("lag", 0, 2, 5),), read={"events": {"0": (8, 1_000, "d")}}
    )

    assert commit == Commit(
        *("b", 4, ends, 3, until, {"lag": {"0": 5}}), read={"events": {"0": (8, 1_000, "d")}}
    )
    assert Commit.from_json(commit.to_json(1)) == commit


SOURCE = Source("coord", {"events": "e1", "lag": "l1"})


def test_a_table_goes_on_with_the_topics_whose_records_it_has() -> None:
    """A topic that came later is one of them from then on; one that is hidden now stays known."""
    ends = {"events": {"0": 9}}
    commit = Commit.first(SOURCE).following("a", ends, 0, ends, ())

    later = commit.continued(Source("coord", {"events": "e1", "claims.events": "c1"}), "T")

    assert later.topic_ids == {"events": "e1", "lag": "l1", "claims.events": "c1"}
    assert (later.next, later.number) == (ends, 1)
    assert Commit.from_json(later.to_json(1)) == later


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source("other", {"events": "e1"}), "of another prefix"),
        (Source("coord", {"events": "e2"}), "created again"),
        (Source("coord", {"events": "e1", "groups": "g2"}), "created again"),
    ],
)
def test_a_table_of_other_topics_is_refused(source: Source, words: str) -> None:
    """Their positions are of another log: what is before them would be left out, and nobody told.
    The archive of a prefix with 43,237 events began at the 16 of another one."""
    topic_ids = {**SOURCE.topic_ids, "groups": "g1"}
    commit = Commit.first(Source("coord", topic_ids)).following("a", {}, 0, {}, ())

    with pytest.raises(StartRefused, match=words) as caught:
        commit.continued(source, "T/events")

    assert "T/events" in caught.value.where


@pytest.mark.parametrize("topic", ["lag", "claims.events", "claims.lag"])
def test_a_topic_that_may_be_made_anew_is_read_from_its_beginning(topic: str) -> None:
    """Also where the new one is longer already than the old one was. Those of claims are made anew
    on purpose, where their coordination topic was: the groups' history must not end with them."""
    ends = {topic: {"0": 7}, "events": {"0": 9}}
    holes = (Hole(topic, 0, 2, 5),)
    source = Source("coord", {"events": "e1", topic: "l1"})
    read = {topic: {"0": (6, 1_000, "d")}}
    commit = Commit.first(source).following("a", ends, 0, ends, holes, read=read)

    later = commit.continued(Source("coord", {"events": "e1", topic: "l2"}), "T")

    assert later.next == later.until == {"events": {"0": 9}}
    assert (later.reported, later.read, later.topic_ids[topic]) == ({}, {}, "l2")


@pytest.mark.parametrize(
    "text", [None, "", "{}", "[]", "7", '"x"', '{"coord_archive":"a"}', '{"number":', "OPTIMIZE"]
)
def test_metadata_of_others_is_no_commit_of_an_archive(text: str | None) -> None:
    assert Commit.from_json(text) is None


def test_a_log_file_without_commit_info_is_somebody_elses() -> None:
    assert commit_in('{"protocol":{}}\n{"add":{"path":"x"}}\n') is None
    assert commit_in('{"commitInfo":{"operation":"OPTIMIZE"}}\n') is None
