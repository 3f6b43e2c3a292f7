"""Sizes that follow from the members alone; within them everybody keeps what it had."""

from collections import Counter

from hypothesis import given

from coordlib.core.groups.assignors import server_sticky
from coordlib.core.groups.assignors.server_model import quotas
from tests.core.groups.assignors.groups import (
    FEW,
    Drawn,
    groups,
    had,
    holding,
    moved,
    owners,
    subscribers,
)


@given(drawn=groups(equal=True))
@FEW
def test_sizes_do_not_depend_on_what_members_had(drawn: Drawn) -> None:
    """Two groups with the same members look the same, however each came to be."""
    order = sorted(drawn.members)
    wanted = drawn.members[order[0]].topics
    total = sum(drawn.partitions[topic] for topic in wanted)
    due = quotas(total, [drawn.members[name].capacity for name in order])

    shares = server_sticky.assign_uniform(drawn.members, drawn.partitions)

    assert [sum(map(len, shares[name].values())) for name in order] == due


@given(drawn=groups(equal=True))
@FEW
def test_everybody_keeps_as_many_as_it_is_due(drawn: Drawn) -> None:
    """Stickiness comes second, and it comes."""
    members = holding(drawn.members, server_sticky.assign(drawn.members, drawn.partitions))

    after = owners(server_sticky.assign_uniform(members, drawn.partitions))

    before, due = Counter(had(members).values()), Counter(after.values())
    assert len(moved(had(members), after)) == sum((before - due).values())


def test_the_larger_share_goes_by_id_and_not_by_history() -> None:
    """What tells it from sticky: the later member had two, and loses one."""
    members = subscribers(dict.fromkeys("mn", ("t",)))
    members = holding(members, {"m": {"t": (0,)}, "n": {"t": (1, 2)}})

    assert server_sticky.assign_uniform(members, {"t": 3}) == {"m": {"t": (0, 2)}, "n": {"t": (1,)}}
    assert server_sticky.assign(members, {"t": 3}) == {"m": {"t": (0,)}, "n": {"t": (1, 2)}}
