"""What must hold of every assignment, whoever computed it: for cases without one expected answer.

Each function answers what is wrong, or None.
"""

from collections.abc import Mapping
from itertools import combinations

from coordlib.core.groups.assignors.model import Member
from tests.tools.assignor_group import Group, Held, Partition

Members = Mapping[str, Member]


def wrong_shares(members: Members, partitions: Mapping[str, int], given: Held) -> str | None:
    """Everybody wants what he gets, and every partition that somebody wants is given once."""
    wanted = {topic for member in members.values() for topic in member.topics}
    left = {(topic, n) for topic in wanted for n in range(partitions.get(topic, 0))}
    if list(given) != list(members):
        return "the answer names other members"
    for name, some in given.items():
        for each in sorted(some):
            if each[0] not in members[name].topics:
                return f"{name} does not want {each}"
            if each not in left:
                return f"{each} is given twice, or does not exist"
            left.remove(each)
    return f"nobody gets {sorted(left)[:5]}" if left else None


def imbalance(members: Members, given: Held) -> str | None:
    """No partition could go to a member with at least two fewer who wants it."""
    least: dict[str, tuple[int, str]] = {}
    for name, member in members.items():
        for topic in member.topics:
            own = len(given[name]), name
            least[topic] = min(least.get(topic, own), own)
    for name, some in given.items():
        for topic in sorted({each[0] for each in some}):
            load, other = least[topic]
            if load + 1 < len(some):
                return f"{name} has {len(some)} and {topic}, {other} has {load} and wants it too"
    return None


def needless_moves(members: Members, before: Held, given: Held) -> str | None:
    """With equal subscriptions: as much is kept as balance allows.

    Only for a `before` in which everything exists, is wanted, and belongs to one member.
    """
    total = sum(len(some) for some in given.values())
    each, extra = divmod(total, len(members))
    sizes = [len(before.get(name, ())) for name in members]
    most = sum(min(size, each) for size in sizes) + min(extra, sum(size > each for size in sizes))
    kept = sum(len(some & before.get(name, frozenset())) for name, some in given.items())
    return f"{kept} are kept, {most} could be" if kept < most else None


def swaps(before: Held, given: Held) -> str | None:
    """No two members exchange partitions of one topic: Kafka's `isSticky`."""
    was: dict[Partition, str] = {each: name for name, some in before.items() for each in some}
    ways: dict[str, set[tuple[str, str]]] = {}
    for name, some in given.items():
        for each in some:
            if was.get(each, name) != name:
                ways.setdefault(each[0], set()).add((was[each], name))
    for topic in sorted(ways):
        for way in sorted(ways[topic]):
            if way[::-1] in ways[topic]:
                return f"{way[0]} and {way[1]} exchange partitions of {topic}"
    return None


def are_equal(members: Members) -> bool:
    """Whether all want the same topics."""
    return len({frozenset(member.topics) for member in members.values()}) <= 1


def is_orderly(members: Members, partitions: Mapping[str, int], before: Held) -> bool:
    """Whether what members hold exists, is wanted, and belongs to one member."""
    exists = all(
        each[0] in members[name].topics and 0 <= each[1] < partitions.get(each[0], 0)
        for name, some in before.items()
        for each in some
    )
    return exists and all(one.isdisjoint(two) for one, two in combinations(before.values(), 2))


def judge(group: Group) -> dict[str, str | None]:
    """Rebalance a group, and again with nothing changed. Every check by name: what is wrong."""
    members, partitions = dict(group.members), group.cluster.partitions
    before = group.held
    given = group.rebalance()
    found = {"valid": wrong_shares(members, partitions, given)}
    if found["valid"] is not None:
        return found
    if "sticky" in group.assignor or (group.assignor == "uniform" and are_equal(members)):
        found["balanced"] = imbalance(members, given)
    if group.cluster.racks:
        return found
    if group.assignor in {"sticky", "cooperative-sticky", "uniform"}:
        again = group.rebalance()
        found["settled"] = (
            None if again == given else "a rebalance without a cause moves partitions"
        )
        if is_orderly(members, partitions, before):
            if are_equal(members):
                found["sticky"] = needless_moves(members, before, given)
            else:
                found["no swaps"] = swaps(before, given)
    return found
