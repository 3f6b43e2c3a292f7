"""User data of the sticky assignors: the bytes that Kafka's clients write and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.groups.assignors import sticky
from coordlib.core.groups.assignors.model import Member, member_of
from coordlib.core.groups.assignors.ownership import (
    Report,
    cooperative_report,
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
    sticky_report,
)
from coordlib.core.groups.assignors.racks import Loads
from coordlib.core.wire import consumer_protocol as cp

VERSION_0 = bytes.fromhex("00000001 0001 74 00000002 00000000 00000005")
VERSION_1 = VERSION_0 + bytes.fromhex("00000007")


def test_sticky_writes_what_kafka_writes() -> None:
    assert encode_sticky({"t": (0, 5)}, 7) == VERSION_1
    assert encode_sticky({"t": (0, 5)}, None) == VERSION_0
    assert encode_sticky({}) == bytes.fromhex("00000000 ffffffff")
    assert encode_sticky(None) is None


def test_sticky_reads_both_versions() -> None:
    assert decode_sticky(VERSION_1) == Report({"t": (0, 5)}, 7)
    assert decode_sticky(VERSION_0) == Report({"t": (0, 5)}, None)
    assert decode_sticky(VERSION_1 + b"later") == Report({"t": (0, 5)}, 7)


@pytest.mark.parametrize("value", [None, b""])
def test_no_user_data_says_nothing(value: bytes | None) -> None:
    """A member that joins for the first time."""
    assert decode_sticky(value) == Report({}, None)


@pytest.mark.parametrize("value", [b"\0", VERSION_0[:-1], b"\xff" * 8, b"\x7f\xff\xff\xff"])
def test_what_cannot_be_read_owned_nothing(value: bytes) -> None:
    """Another assignor's user data, under the same name: the member starts afresh."""
    assert decode_sticky(value) == Report({}, -1)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_somehow(value: bytes) -> None:
    decode_sticky(value)
    decode_cooperative(value)


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(-1, 9)).map(tuple), max_size=4),
    st.integers(-1, 2**31 - 1),
)
def test_what_is_written_is_read(owned: dict[str, tuple[int, ...]], generation: int) -> None:
    assert decode_sticky(encode_sticky(owned, generation)) == Report(owned, generation)


def test_cooperative_user_data_is_a_generation() -> None:
    assert encode_cooperative(7) == bytes.fromhex("00000007")
    assert decode_cooperative(encode_cooperative(7)) == 7
    assert decode_cooperative(None) is None
    assert decode_cooperative(b"\0\0") == -1


def test_sticky_reads_user_data_alone() -> None:
    """Kafka's testMemberDataWillHonorUserData: members let go of all before they join."""
    member = Member(("t",), {"t": (1,)}, 9, user_data=VERSION_1)

    assert sticky_report(member) == Report({"t": (0, 5)}, 7)


def test_cooperative_reads_the_subscription_first() -> None:
    """Kafka's testMemberDataFromSubscriptionWithInconsistentData: version 2 has a generation."""
    old = Member(("t",), {"t": (1,)}, user_data=encode_cooperative(7))
    new = Member(("t",), {"t": (1,)}, 9, user_data=encode_cooperative(7))

    assert cooperative_report(old) == Report({"t": (1,)}, 7)
    assert cooperative_report(new) == Report({"t": (1,)}, 9)


def test_a_subscription_becomes_a_member() -> None:
    subscription = cp.Subscription(
        topics=("t",), user_data=b"x", owned={"t": (1,)}, generation=3, rack="east"
    )
    read = cp.decode_subscription(cp.encode_subscription(subscription))

    assert member_of(read, "i") == Member(("t",), {"t": (1,)}, 3, "i", "east", b"x")


def test_a_partition_that_two_claim_in_one_generation_goes_to_a_third() -> None:
    """Kafka's testAllConsumersHaveOwnedPartitionInvalidated…: neither can be believed."""
    members = {
        name: Member(("t",), user_data=encode_sticky({"t": owned}, 1), generation=1)
        for name, owned in (("consumer1", (0, 1)), ("consumer2", (0, 2)), ("consumer3", ()))
    }

    given_ = sticky.assign(members, {"t": 4})

    assert given_ == {
        "consumer1": {"t": (1, 3)},
        "consumer2": {"t": (2,)},
        "consumer3": {"t": (0,)},
    }


def test_partitions_that_a_topic_lost_are_forgotten() -> None:
    """A topic was deleted and made anew with fewer; Kafka's own client gives some away twice."""
    members = {
        "a": Member(("s", "t"), {"s": (7,), "t": (0,)}, 1),
        "b": Member(("s", "t"), {"s": (0,)}, 1),
    }

    given_ = sticky.assign_cooperative(members, {"s": 2, "t": 2})

    assert given_ == {"a": {"s": (1,), "t": (0,)}, "b": {"s": (0,), "t": (1,)}}


def test_a_member_without_topics_gets_nothing() -> None:
    """Kafka takes such a group for one of equal subscriptions if it meets that member first."""
    members = {name: Member(topics) for name, topics in (("a", ()), ("b", ("t",)), ("c", ()))}

    assert sticky.assign(members, {"t": 3}) == {"a": {}, "b": {"t": (0, 1, 2)}, "c": {}}


def test_a_partition_does_not_return_to_who_does_not_want_its_topic_any_more() -> None:
    """Kafka gives it back to an owner of an earlier generation without asking for topics."""
    members = {
        "a": Member(("t",), {}, 2),
        "b": Member(("s",), {"t": (0, 1)}, 1),
        "c": Member(("s", "t"), {"t": (0, 1, 2, 3, 4, 5)}, 2),
    }

    given_ = sticky.assign(
        {
            name: Member(member.topics, user_data=encode_sticky(member.owned, member.generation))
            for name, member in members.items()
        },
        {"s": 1, "t": 6},
    )

    assert given_ == {"a": {"t": (0, 1, 2)}, "b": {"s": (0,)}, "c": {"t": (3, 4, 5)}}


def test_old_subscriptions_are_compared_by_what_they_do_not_say() -> None:
    """Kafka's rule for two claims takes the other's generation from its subscription alone.

    Before version 2 there is none, so the last one in the map keeps the partition, newer or not.
    """
    members = {
        "consumer1": Member(("t",), user_data=encode_sticky({"t": (0,)}, 3)),
        "consumer2": Member(("t",), user_data=encode_sticky({"t": (0,)}, 5)),
    }

    assert sticky.assign(members, {"t": 2}) == {"consumer1": {"t": (0,)}, "consumer2": {"t": (1,)}}


def test_racks_that_nobody_is_in_take_nothing_away() -> None:
    """All partitions are far from all members: then distance is no reason to let go."""
    racks = {"t": [["east"], ["north"], ["east"]]}
    members = {
        name: Member(("t",), owned, 1, rack="west")
        for name, owned in (("a", {"t": (2,)}), ("b", {"t": (0, 1)}))
    }

    assert sticky.assign_cooperative(members, {"t": 3}, racks) == {
        "a": {"t": (2,)},
        "b": {"t": (0, 1)},
    }


def test_members_without_a_rack_are_near_to_everything() -> None:
    loads = Loads([["t"], ["t"], ["t"]], ["east", None, "west"], [2, 1, 0])

    assert loads.least("t") == 2
    assert loads.least_near("t", frozenset({"east"})) == 1
    loads.add(1, 2)
    assert loads.least_near("t", frozenset({"east"})) == 0
    assert Loads([["t"]], ["east"], [0]).least_near("t", frozenset({"west"})) is None
