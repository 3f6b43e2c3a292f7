"""What a shard knows of the cluster's topics, by the driver's listings."""

import pytest

from coordlib import limits
from coordlib.core.groups.group import learn_topics as learn
from coordlib.core.wire import api
from tests.tools.assigned_groups import owned_in, subscribe
from tests.tools.driving import Conversation, join


def listing(
    topics: dict[str, int], after: str | None = None, through: str | None = None
) -> api.TopicMetadata:
    rows = tuple(api.Topic(name, count) for name, count in sorted(topics.items()))
    return api.TopicMetadata(v=1, after=after, through=through, topics=rows)


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


def test_of_too_many_topics_the_first_by_name_are_known() -> None:
    """A new job in a cluster of more topics than a shard can keep in mind."""
    names = [f"t-{number:05}" for number in range(limits.TOPICS_MAX + 1)]

    topics, changed = learn({}, listing(dict.fromkeys(names, 1)))

    assert list(topics) == names[:-1]
    assert changed == tuple(names[:-1])


def test_a_new_topic_takes_the_place_of_none_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shard is full; somebody makes a topic whose name sorts before those that are read."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)

    assert learn({"b": 1, "c": 1}, listing({"a": 1}, through="a")) == ({"b": 1, "c": 1}, ())
    assert learn({"b": 1, "c": 1}, listing({"a": 1, "b": 3, "c": 1})) == (
        {"b": 3, "c": 1},
        ("b",),
    )


def test_what_goes_makes_room_in_the_same_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was deleted, two were made: the first by name comes in."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)

    assert learn({"b": 1, "d": 1}, listing({"a": 1, "c": 1, "d": 1})) == (
        {"a": 1, "d": 1},
        ("a", "b"),
    )


def test_more_topics_than_are_known_by_now_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Newer code, or a rebuild from many groups, knows more than this code would learn."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 1)
    known = {"b": 1, "c": 1}

    assert learn(known, listing({"a": 1, "b": 1, "c": 1})) == (known, ())


def test_nobody_loses_partitions_to_a_topic_that_there_is_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member reads everything. One topic more would have been taken for the last one's place."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    talk = Conversation()
    talk.send(listing({"b": 1, "c": 1}))
    talk.send(subscribe("a", pattern=".*"))
    owned = owned_in(talk)

    assert talk.send(listing({"a": 1, "b": 1, "c": 1})) == []
    assert owned_in(talk) == owned == {"a": {"b": (0,), "c": (0,)}}


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
