"""ConsumerProtocol: the bytes that Kafka's own consumers exchange through a coordinator."""

import struct
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlib.core.wire import consumer_protocol as cp

TOPICS = st.text(max_size=8)
PARTITIONS = st.dictionaries(TOPICS, st.lists(st.integers(0, 2**31 - 1)).map(tuple), max_size=4)
USER_DATA = st.none() | st.binary(max_size=9)


def test_version_0_as_seed_002_describes_it() -> None:
    """The oldest consumers that are still about."""
    value = bytes.fromhex("0000 00000001 0001 74 00000002 abcd")

    subscription = cp.decode_subscription(value)

    assert subscription == cp.Subscription(version=0, topics=("t",), user_data=b"\xab\xcd")
    assert cp.encode_subscription(subscription) == value


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 3), st.lists(TOPICS, max_size=4).map(tuple), USER_DATA, PARTITIONS, st.text())
def test_subscriptions_read_as_written(
    version: int,
    topics: tuple[str, ...],
    user_data: bytes | None,
    owned: dict[str, tuple[int, ...]],
    rack: str,
) -> None:
    """Every version carries its own fields and no more."""
    subscription = cp.Subscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned=owned if version >= 1 else {},
        generation=7 if version >= 2 else -1,
        rack=rack if version >= 3 else None,
    )

    assert cp.decode_subscription(cp.encode_subscription(subscription)) == subscription


@settings(max_examples=60, deadline=None, derandomize=True)
@given(PARTITIONS, USER_DATA)
def test_assignments_read_as_written(
    partitions: dict[str, tuple[int, ...]], user_data: bytes | None
) -> None:
    """What the leader writes is what each member reads."""
    assignment = cp.Assignment(partitions=partitions, user_data=user_data)

    assert cp.decode_assignment(cp.encode_assignment(assignment)) == assignment


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_called_unreadable(value: bytes) -> None:
    """INV-40: the coordinator decodes assignments for its history, whoever wrote them."""
    for decode in (cp.decode_subscription, cp.decode_assignment):
        with suppress(cp.Unreadable):
            decode(value)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    """Versions only ever append fields."""
    newer = cp.encode_subscription(cp.Subscription(topics=("t",), rack="r"))
    newer = struct.pack(">h", 9) + newer[2:] + b"more"

    assert cp.decode_subscription(newer).topics == ("t",)


def test_no_bytes_at_all_are_an_empty_assignment() -> None:
    """The leader forgot the member: Kafka's client takes it so too."""
    assert cp.decode_assignment(b"") == cp.Assignment()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00",
    ],
)
def test_counts_and_lengths_that_cannot_be_are_unreadable(value: bytes) -> None:
    """An array of two thousand million elements must not be reserved."""
    with pytest.raises(cp.Unreadable):
        cp.decode_assignment(value)


def test_one_topic_named_70_000_times_costs_twice_as_much_as_35_000() -> None:
    """INV-43: it took the square, three seconds, in which all groups of the shard waited."""

    def cost_s(times: int) -> float:
        row = struct.pack(">hii", 0, 1, 7)
        value = struct.pack(">hi", 0, times) + row * times + struct.pack(">i", -1)
        began = time.process_time()
        assert len(cp.decode_assignment(value).partitions[""]) == times
        return time.process_time() - began

    half, whole = (min(cost_s(times) for _ in range(5)) for times in (35_000, 70_000))

    assert whole < 3 * half
