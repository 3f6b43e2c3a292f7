"""INV-51: a claim is worked on for one interval after its newest proof, and never again."""

from coordlib.client.claims.claim import Fence, Stop


def test_the_produce_call_counts_and_not_the_acknowledgement() -> None:
    """The log may have taken the sign at any moment after the call."""
    fence = Fence(6_000, sign_ms=0)
    fence.acknowledged(1_000)

    assert fence.broken(6_999, read_ms=6_500) is None
    assert fence.broken(7_000, read_ms=6_500) is Stop.NO_SIGN


def test_an_older_sign_buys_no_time() -> None:
    fence = Fence(6_000, sign_ms=5_000)
    fence.acknowledged(1_000)

    assert fence.closes_ms(read_ms=8_000) == 11_000


def test_a_consumer_that_does_not_read_stops() -> None:
    """It may have lost the partition and cannot know."""
    fence = Fence(6_000, sign_ms=10_000)

    assert fence.broken(10_000, read_ms=None) is Stop.UNREAD
    assert fence.broken(10_000, read_ms=4_001) is None
    assert fence.broken(10_000, read_ms=4_000) is Stop.UNREAD
    assert fence.closes_ms(read_ms=4_500) == 10_500
