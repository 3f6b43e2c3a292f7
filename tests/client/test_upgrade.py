"""Seed 002: a group goes over to another assignment protocol without downtime, in two bounces."""

from typing import Any

from coordlib.client.groups.assignors import FunctionAssignor
from coordlib.core.groups.assignors import range_roundrobin as range_assignor
from coordlib.core.wire import api
from tests.client import cooperative
from tests.client.world import User, World, t

NEW_AND_OLD = (cooperative.assignor(), "range")
NEW = (cooperative.assignor(),)


def bounce(world: World, user: User, name: str, assignors: Any) -> User:
    """Restart one program with another configuration, while the others go on."""
    world.close(user)
    world.run(1_000)
    (made,) = world.join(name, assignors=assignors)
    assert sorted(each for user in world.users for each in user.owns) == list(t(*range(6)))
    assert [error for user in world.users for error in user.errors] == []
    return made


def protocol_of(world: World) -> set[str]:
    return {user.member._machine._me.protocol for user in world.users}


def test_from_range_to_cooperative_sticky_in_two_bounces() -> None:
    """Kafka's upgrade guide. After each restart everything is owned, and nobody was refused."""
    world = World({"t": 6})
    old = world.join("a", "b", "c")
    both = [bounce(world, user, f"{user.member.identity.client}2", NEW_AND_OLD) for user in old[:2]]
    assert protocol_of(world) == {"range"}

    both.append(bounce(world, old[2], "c2", NEW_AND_OLD))
    assert protocol_of(world) == {"cooperative-sticky"}
    assert not any(user.member._machine._me.keeps for user in both)

    new = [bounce(world, user, f"{user.member.identity.client}3", NEW) for user in both]
    assert protocol_of(world) == {"cooperative-sticky"}
    assert all(user.member._machine._me.keeps for user in new)

    told = {user.member.identity.client: len(user.told) for user in new}
    (d,) = world.join("d", assignors=NEW)
    assert len(d.owns) in (1, 2)
    for user in new:  # nobody stops any more for what stays
        lost = [some for what, some in user.told[told[user.member.identity.client] :] if some]
        assert sum(map(len, lost)) <= 1


def test_a_member_that_offers_both_runs_eagerly_whatever_the_group_chose() -> None:
    """The mode is what *all* of a member's assignors support, not what the vote yields."""
    world = World({"t": 6}, NEW_AND_OLD)
    (a,) = world.join("a")
    world.join("b")

    assert protocol_of(world) == {"cooperative-sticky"}
    assert a.told[1] == ("revoked", t(0, 1, 2, 3, 4, 5))
    joins = [each for each in world.requests if isinstance(each, api.JoinGroup)]
    assert [p.name for p in joins[0].protocols] == ["cooperative-sticky", "range"]


def test_the_vote_follows_the_order_of_preference() -> None:
    """Each member votes for the first of its list that all support."""
    world = World({"t": 4})
    mirrored = FunctionAssignor("mirrored", range_assignor.assign)
    world.join("a", "b", assignors=(mirrored, "range"))
    assert protocol_of(world) == {"mirrored"}

    world.join("c")
    assert protocol_of(world) == {"range"}
