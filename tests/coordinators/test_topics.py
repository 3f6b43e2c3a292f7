"""What a shard knows of the cluster's topics, by the driver's listings."""

import pytest

from coordlib import limits
from coordlib.coordinators.topics import learn
from coordlib.records import requests as rq
from coordlib.testing.driving import Conversation, join


def listing(
    topics: dict[str, int], after: str | None = None, through: str | None = None
) -> rq.TopicMetadata:
    rows = tuple(rq.Topic(name, count) for name, count in sorted(topics.items()))
    return rq.TopicMetadata(v=1, after=after, through=through, topics=rows)


def test_the_first_listing_is_all_that_is_known() -> None:
    """A new job: every topic is news."""
    assert learn({}, listing({"b": 2, "a": 1})) == ({"a": 1, "b": 2}, ("a", "b"))


def test_the_same_listing_again_changes_nothing() -> None:
    """A driver that starts anew writes what is in the log already."""
    assert learn({"a": 1, "b": 2}, listing({"a": 1, "b": 2})) == ({"a": 1, "b": 2}, ())


@pytest.mark.parametrize("count", [1, 3])
def test_another_count_is_a_change(count: int) -> None:
    """Partitions were added, or the topic was made anew with fewer."""
    assert learn({"a": 2, "b": 2}, listing({"a": count, "b": 2})) == ({"a": count, "b": 2}, ("a",))


def test_what_a_listing_does_not_name_is_gone() -> None:
    """Somebody deleted a topic; its listing cannot name it."""
    assert learn({"a": 1, "b": 2}, listing({"b": 2})) == ({"b": 2}, ("a",))
    assert learn({"a": 1, "b": 2}, listing({})) == ({}, ("a", "b"))


@pytest.mark.parametrize(
    ("after", "through", "kept"),
    [
        (None, None, ""),
        ("b", None, "ab"),
        (None, "b", "cd"),
        ("a", "c", "ad"),
        ("b", "b", "abcd"),
    ],
)
def test_a_listing_speaks_of_its_range_only(
    after: str | None, through: str | None, kept: str
) -> None:
    """Many topics are told in several records, and a batch may end between two of them.

    `after` is not in the range, `through` is.
    """
    known = dict.fromkeys("abcd", 1)

    topics, changed = learn(known, listing({}, after, through))

    assert list(topics) == list(kept)
    assert changed == tuple(name for name in "abcd" if name not in kept)


def test_names_are_in_order_wherever_they_came_from() -> None:
    """Equal states must be equal bytes, by whichever parts they were told."""
    topics, _ = learn({"b": 1}, listing({"c": 1}, after="b"))
    topics, changed = learn(topics, listing({"a": 1}, through="a"))

    assert list(topics) == ["a", "b", "c"]
    assert changed == ("a",)


def test_the_last_of_too_many_are_not_known() -> None:
    """A shard's memory has an end: it must not depend on which part came first."""
    name = "t-{:05}".format
    known = {name(n): 1 for n in range(1, limits.TOPICS_MAX + 1)}
    last = name(limits.TOPICS_MAX)

    full, first_changed = learn(known, listing({name(0): 1}, through=name(0)))
    again, beyond_changed = learn(full, listing({last: 1}, after=name(limits.TOPICS_MAX - 1)))

    assert len(full) == limits.TOPICS_MAX
    assert last not in full
    assert first_changed == (name(0), last)
    assert (again, beyond_changed) == (full, ())


def test_topics_are_part_of_the_shard() -> None:
    """INV-03: the next batch may be judged by another worker, which has heard of nothing."""
    talk = Conversation()

    assert talk.send(listing({"b": 2, "a": 1})) == []
    talk.end_batch()

    assert talk.shard.topics == {"a": 1, "b": 2}


def test_a_classic_group_is_told_nothing() -> None:
    """Its members look topics up themselves, and join again when they changed."""
    talk = Conversation()
    talk.send(join("a"))
    before = talk.group()

    assert talk.send(listing({"t": 2})) == []
    assert talk.group() is before
