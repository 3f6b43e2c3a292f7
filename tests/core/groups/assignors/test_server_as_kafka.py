"""With equal capacities: what Kafka's assignors give, here and in Kafka's own cases."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.groups.assignors.registry import BUILT_IN
from coordlib.core.groups.assignors.server_model import Subscriber, in_assignors_terms
from tests.core.groups.assignors.groups import FEW, Drawn, Members, groups
from tests.tools.assignor_cases import Case, read_cases
from tests.tools.assignor_group import ASSIGNORS, Cluster, pairs

VECTORS = Path(__file__).parent


def with_capacity(members: Members, capacity: int) -> Members:
    return {
        name: Subscriber(topics=member.topics, share=member.share, capacity=capacity)
        for name, member in members.items()
    }


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(drawn=groups(weighted=False), capacity=st.integers(1, 5))
@FEW
def test_equal_capacities_give_kafkas_division(name: str, drawn: Drawn, capacity: int) -> None:
    """A group moves here from a broker: nobody's share changes for it."""
    members = with_capacity(drawn.members, capacity)

    expected = ASSIGNORS[name](in_assignors_terms(members), Cluster(drawn.partitions))

    assert BUILT_IN[name](members, drawn.partitions) == expected


@given(drawn=groups(weighted=False, equal=True), capacity=st.integers(1, 5))
@FEW
def test_uniform_is_kafkas_if_all_want_the_same(drawn: Drawn, capacity: int) -> None:
    """A KIP-848 group moves here from a broker, with the target that it has."""
    members = with_capacity(drawn.members, capacity)

    expected = ASSIGNORS["uniform"](in_assignors_terms(members), Cluster(drawn.partitions))

    assert BUILT_IN["uniform"](members, drawn.partitions) == expected


def fits(case: Case) -> bool:
    """Whether a case is one of members that have neither instances nor racks, and an answer."""
    if case.assignor not in ("range", "range(server)", "roundrobin", "uniform"):
        return False
    if case.expected_assignment is None or case.check == "property" or case.scale is not None:
        return False
    group = case.group(case.assignor)
    members = list(group.members.values())
    if any(member.instance or member.rack for member in members):
        return False
    return case.assignor != "uniform" or (
        case.topic_iteration_order is None and len({member.topics for member in members}) == 1
    )


CASES = [
    case
    for file in ("kafka_vectors.json", "drawn_vectors.json")
    for case in read_cases(VECTORS / file)[1]
    if fits(case)
]


def test_there_are_cases_of_each() -> None:
    """A filter that lets nothing through would pass every test."""
    assert {case.assignor for case in CASES} >= {"range", "range(server)", "roundrobin"}
    assert len(CASES) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_divides_as_in_kafkas_tests(case: Case) -> None:
    """What Kafka's authors wrote down by hand, and not a second reading of their code."""
    group = case.group(case.assignor)
    counts = {topic: count for topic, count in group.cluster.partitions.items() if count}
    members = {
        name: Subscriber(
            topics=tuple(sorted({topic for topic in member.topics if topic in counts})),
            share={topic: tuple(sorted(some)) for topic, some in member.owned.items()},
        )
        for name, member in group.members.items()
    }

    shares = BUILT_IN[case.assignor.removesuffix("(server)")](members, counts)

    assert pairs(shares) == case.expected()
