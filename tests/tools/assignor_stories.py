"""Cases that go on: what Kafka's tests do with a group after its first assignment.

A file can only describe such a case in words, so they are told here, by the name of Kafka's test.
Each story answers what is wrong, or None.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.tools.assignor_group import Group, Held, described
from tests.tools.assignor_properties import imbalance, swaps, wrong_shares

Story = Callable[[Group], str | None]


def _sizes(held: Held) -> list[int]:
    return sorted(len(some) for some in held.values())


def _every_member_has(count: int) -> Story:
    def story(group: Group) -> str | None:
        sizes = _sizes(group.rebalance())
        return None if set(sizes) == {count} else f"sizes are {sizes}, not {count} each"

    return story


def _all_in_all(count: int) -> Story:
    def story(group: Group) -> str | None:
        total = sum(_sizes(group.rebalance()))
        return None if total == count else f"{total} are given, not {count}"

    return story


def _topic_added_and_removed(group: Group) -> str | None:
    both = group.cluster
    first, second = sorted(both.partitions)
    group.cluster = replace(both, partitions={first: both.partitions[first]})
    one = group.rebalance()
    group.cluster = both
    two = group.round()
    group.hold(two)
    group.cluster = replace(both, partitions={second: both.partitions[second]})
    three = group.round()
    if (_sizes(one), _sizes(two), _sizes(three)) != ([1, 2], [3, 3], [1, 2]):
        return f"sizes are {_sizes(one)}, {_sizes(two)}, {_sizes(three)}"
    if not all(one[name] <= two[name] and three[name] <= two[name] for name in two):
        return "a member loses what it could have kept"
    return None


def _first_leaves(group: Group) -> str | None:
    before = group.rebalance()
    if max(_sizes(before)) > 1:
        return f"sizes are {_sizes(before)} before anybody left"
    del group.members[min(group.members)]
    after = group.rebalance()
    if _sizes(after) != [1, 1, 1]:
        return f"sizes are {_sizes(after)}"
    if not all(before[name] <= after[name] for name in after):
        return "a member loses what it could have kept"
    return None


def _plain_reassignment(group: Group) -> str | None:
    before = group.rebalance()
    after = group.rebalance()
    return swaps(before, after) or imbalance(group.members, after)


def _tenth_joins(group: Group) -> str | None:
    topics = next(iter(group.members.values())).topics
    before = group.rebalance()
    group.join("c10", topics)
    after = group.rebalance()
    if set(_sizes(after)) != {2}:
        return f"sizes are {_sizes(after)}"
    if not all(after[name] <= before[name] for name in before):
        return "partitions go to members that were there before"
    return wrong_shares(group.members, group.cluster.partitions, after)


def _generations(group: Group) -> str | None:
    """The third returns with what it had two generations ago, when the first is gone."""
    first, second, third = sorted(group.members)
    one = group.rebalance()
    returning = described(group.assignor, group.members[third], one[third], group.generation)
    del group.members[third]
    two = group.rebalance()
    del group.members[first]
    group.members[third] = returning
    three = group.rebalance()
    if (_sizes(one), _sizes(two), _sizes(three)) != ([4, 4, 4], [6, 6], [6, 6]):
        return f"sizes are {_sizes(one)}, {_sizes(two)}, {_sizes(three)}"
    if not (one[first] <= two[first] and one[second] <= two[second]):
        return "a member loses what it could have kept"
    return wrong_shares(group.members, group.cluster.partitions, three)


STORIES: Final[dict[str, Story]] = {
    "testPoorRoundRobinAssignmentScenario": _every_member_has(2),
    "testAddRemoveTopicTwoConsumers": _topic_added_and_removed,
    "testStickiness": _first_leaves,
    "testAssignmentUpdatedForDeletedTopic": _all_in_all(101),
    "testReassignmentAfterOneConsumerLeaves": _plain_reassignment,
    "testReassignmentAfterOneConsumerAdded": _tenth_joins,
    "testAssignmentWithMultipleGenerations1": _generations,
}
