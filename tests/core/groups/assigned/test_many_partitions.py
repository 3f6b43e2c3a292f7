"""A member has 50,000 partitions of a topic, and commits 10,000 of them in one request."""

from coordlib.core.groups.assigned.group import Grant, Member, includes


class Counting(int):
    """A partition that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        Counting.compared += 1
        return int(self) < other

    __hash__ = int.__hash__


def test_the_grant_of_a_partition_is_found_without_a_look_at_all() -> None:
    """A commit of the last 10,000 rows held the shard up for more than three seconds."""
    many = tuple(map(Counting, range(1_024)))
    grant = Grant(fence=7, generation=1, partitions={"t": many})
    member = Member(
        member="a-t-0-1",
        client="a",
        reply=0,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        topics=("t",),
        grants=(grant,),
        first_id="j1",
        subscribed_generation=1,
        joined_ms=0,
    )
    Counting.compared = 0

    assert member.grant_of("t", 1_023) is grant
    assert Counting.compared <= 12


def test_only_partitions_that_are_there_are_found() -> None:
    """A commit that names another one must not pass for one of a neighbour."""
    some = {"t": (1, 3, 4), "u": (0,)}

    assert [number for number in range(-1, 7) if includes(some, "t", number)] == [1, 3, 4]
    assert not includes(some, "v", 0)
    assert not includes({}, "t", 0)
