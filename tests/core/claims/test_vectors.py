"""Marshal's own unit tests as vectors (V1 to V9, V19), by its own messages.

V10 to V18 are about a consumer's health, commits and options: tests of the client.
"""

from coordlib.core.claims.slots import Slot, Verdict
from coordlib.core.claims.world import World
from coordlib.core.wire import claims
from tests.tools.claims.driving import record

KEY = ("gr", "test1", 0)


class Topic:
    """`__marshal` with one partition; a message's second is the broker's, unless said otherwise."""

    def __init__(self) -> None:
        self.world = World("__marshal", 0, 1)

    def say(self, text: str, at_s: int | None = None) -> Verdict:
        kind, _, time_s, *_ = text.split("/")
        del kind
        second = int(time_s) if at_s is None else at_s
        made = record(self.world.offset + 1, second * 1_000, text.encode())
        return self.world.judge(made).verdict

    def at(self, second: int) -> "Topic":
        """Time passes in steps that the clock does not clip, by records that mean nothing."""
        while self.world.previous_ms < second * 1_000:
            step_ms = min(second * 1_000 - self.world.previous_ms, self.world.cap_ms)
            now_ms = self.world.previous_ms + step_ms
            self.world.judge(record(self.world.offset + 1, now_ms, b"ClaimingMessages/1"))
        return self

    def owner(self, group: str = "gr", partition: int = 0) -> str | None:
        slot = self.world.owner((group, "test1", partition))
        return slot.client if slot else None

    def slot(self, partition: int = 0) -> Slot:
        return self.world.slots[("gr", "test1", partition)]


def heartbeat(second: int, client: str, offset: int, group: str = "gr", partition: int = 0) -> str:
    return f"Heartbeat/4/{second}/ii/{client}/{group}/test1/{partition}/{offset}"


def claim(second: int, client: str, partition: int = 0) -> str:
    return f"ClaimingPartition/4/{second}/ii/{client}/gr/test1/{partition}"


def release(second: int, client: str, offset: int) -> str:
    return f"ReleasingPartition/4/{second}/ii/{client}/gr/test1/0/{offset}"


def test_v1_a_claim_lives_for_two_heartbeat_intervals_and_no_longer() -> None:
    """TestClaimed. INV-48, B5: two intervals exactly are live by the seed, stale by the code."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))

    assert [topic.at(second).owner() for second in (1, 62, 120)] == ["cl"] * 3
    assert topic.at(121).owner() is None


def test_v1_to_the_millisecond() -> None:
    """The boundary is where the clock is, not where a second is."""
    world = World("__marshal.6s", 0, 1)
    world.judge(record(0, 0, b"ClaimingPartition/4/2/ii/cl/gr/test1/0"))
    for offset, now_ms in enumerate((2_400, 4_800, 7_200, 9_600, 11_999), 1):
        world.judge(record(offset, now_ms, None))

    assert world.owner(KEY)
    world.judge(record(6, 12_000, None))
    assert world.owner(KEY) is None


def test_v2_groups_are_apart() -> None:
    """TestClaimNotOurs."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0, group="grother"))

    assert topic.owner("gr") is None
    assert topic.owner("grother") == "cl"


def test_v3_an_attempt_on_a_free_slot_wins() -> None:
    """TestClaimPartition: handled at 30, though its sender's clock says 1."""
    topic = Topic()

    assert topic.say(claim(1, "cl"), at_s=30) == Verdict.WON
    assert topic.owner() == "cl"


def test_v4_the_first_attempt_wins() -> None:
    """TestReclaimPartition. INV-46."""
    topic = Topic()
    verdicts = [topic.say(claim(s, c), at_s=30) for s, c in ((1, "cl"), (2, "clother"), (3, "cl"))]

    assert verdicts == [Verdict.WON, Verdict.IGNORED, Verdict.IGNORED]
    assert topic.owner() == "cl"


def test_v5_only_the_exact_owner_releases() -> None:
    """TestReleaseClaim. INV-47."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))

    assert topic.say(release(20, "cl-bad", 5)) == Verdict.REFUSED
    assert topic.at(25).owner() == "cl"
    assert topic.say(release(30, "cl", 10)) == Verdict.RELEASED
    assert topic.at(31).owner() is None
    assert (topic.slot().client, topic.slot().position) == ("cl", 10)


def test_v6_a_heartbeat_of_marshals_takes_over() -> None:
    """TestClaimHandoff: its readers believe every heartbeat, so ours do of its senders."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))

    assert topic.say(heartbeat(10, "cl2", 10)) == Verdict.TAKEN_OVER
    assert topic.at(25).owner() == "cl2"
    assert topic.owner("gr2") is None


def test_v7_slots_have_any_number() -> None:
    """TestPartitionExtend; Marshal makes the slots between, too, which nobody can see (B6)."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))
    topic.say(heartbeat(2, "cl2", 0, partition=4))

    assert (topic.owner(), topic.owner(partition=4)) == ("cl", "cl2")
    assert sorted(topic.world.slots) == [KEY, ("gr", "test1", 4)]


def test_v8_the_life_of_a_claim() -> None:
    """TestPartitionLifecycleIntegration: what was read last stays with who read it."""
    topic = Topic()
    topic.say(claim(1, "cl"))
    assert (topic.owner(), topic.slot().position) == ("cl", None)
    topic.say(heartbeat(2, "cl", 10))
    assert topic.slot().position == 10
    topic.say(release(3, "cl", 20))
    assert topic.owner() is None
    assert (topic.slot().client, topic.slot().instance, topic.slot().position) == ("cl", "ii", 20)


def test_v9_a_second_attempt_changes_nothing() -> None:
    """TestClaimPartitionIntegration: the same client, another, another partition."""
    topic = Topic()

    assert topic.say(claim(1, "cl")) == Verdict.WON
    assert topic.say(claim(50, "cl")) == Verdict.IGNORED
    assert topic.say(claim(51, "cl2")) == Verdict.IGNORED
    assert topic.say(claim(51, "cl2", partition=1)) == Verdict.WON
    assert topic.slot().heard_ms == 0, "an attempt of its owner renews nothing"


def test_v19_what_cannot_be_decoded_moves_the_time_alone() -> None:
    """TestMessageDecode: one unreadable record must not stop a reader, nor its clock."""
    world = World("__marshal", 0, 1)
    world.judge(record(0, 0, claim(1, "cl").encode()))
    judgement = world.judge(record(1, 7_000, b"banana"))

    assert (judgement.verdict, judgement.error) == (Verdict.REJECTED, "UNKNOWN_TYPE")
    assert isinstance(claims.read(b"banana"), claims.Rejected)
    assert (world.clock_ms, list(world.slots)) == (7_000, [KEY])
