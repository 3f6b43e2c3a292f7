"""A small cooperative assignor for tests: everybody keeps up to a fair share, the rest is dealt."""

from collections.abc import Mapping

from coordlib.client.groups.assignors import BOTH, FunctionAssignor, GroupMemberView
from coordlib.client.kit.events import TopicPartition

NAME = "cooperative-sticky"
Given = dict[str, dict[str, tuple[int, ...]]]


def divide(members: Mapping[str, GroupMemberView], partitions: Mapping[str, int]) -> Given:
    """Nobody has more than a fair share and one; who owns something keeps it if that allows."""
    wanted = {member: set(view.topics) for member, view in members.items()}
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(set().union(*wanted.values()))
        for number in range(partitions.get(topic, 0))
    ]
    most = -(-len(everything) // len(members))
    given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    owner = {each: member for member in sorted(members) for each in members[member].owned}
    for each in everything:
        member = owner.get(each)
        if member is not None and each.topic in wanted[member] and len(given[member]) < most:
            given[member].append(each)
    kept = {each for some in given.values() for each in some}
    for each in everything:
        takers = [member for member in given if each.topic in wanted[member]]
        if each in kept or not takers:
            continue
        member = min(takers, key=lambda taker: len(given[taker]))
        given[member].append(each)
    _level(given, wanted)
    return {
        m: _rows([each for each in some if owner.get(each, m) == m]) for m, some in given.items()
    }


def _level(given: dict[str, list[TopicPartition]], wanted: Mapping[str, set[str]]) -> None:
    """Who has two more than somebody gives one away."""
    while True:
        few = min(given, key=lambda member: len(given[member]))
        many = max(given, key=lambda member: len(given[member]))
        movable = [each for each in given[many] if each.topic in wanted[few]]
        if len(given[many]) - len(given[few]) < 2 or not movable:
            return
        given[many].remove(movable[-1])
        given[few].append(movable[-1])


def _rows(some: list[TopicPartition]) -> dict[str, tuple[int, ...]]:
    rows: dict[str, list[int]] = {}
    for each in sorted(some):
        rows.setdefault(each.topic, []).append(each.partition)
    return {topic: tuple(numbers) for topic, numbers in rows.items()}


def assignor() -> FunctionAssignor:
    return FunctionAssignor(NAME, divide, modes=BOTH, is_sticky=True)
