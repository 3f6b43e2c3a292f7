"""A static member comes back for other topics: its share was cut for those of before."""

import pytest

from coordlib.core.groups.classic.group import State
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from tests.tools.core import offsets_of
from tests.tools.driving import LEADER, Conversation, commit, heartbeat, join, leave, settings, sync

MINUTE_MS = 60_000
HOW = settings(offsets_retention_ms=10 * MINUTE_MS, check_interval_ms=MINUTE_MS)
#: No layout of a subscription.
OPAQUE = b"unreadable"
T, U = (cp.encode_subscription(cp.Subscription(topics=(topic,))) for topic in "tu")


def returned(before: dict[str, bytes], after: dict[str, bytes]) -> Conversation:
    """A stable group of one; its process ended, and the next one has these protocols."""
    talk = Conversation(HOW)
    kind = {"protocol_type": "consumer", "instance": "i"}
    talk.send(join("a", protocols=before, **kind))
    talk.send(sync("a", 1, LEADER))
    talk.tick()
    rows = (api.CommittedOffset("t", 0, 5), api.CommittedOffset("u", 1, 5))
    talk.send(commit("a", 1, LEADER, offsets=rows))
    talk.send(join("b", protocols=after, **kind))
    return talk


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"range": T}, {"range": U}),
        ({"range": OPAQUE}, {"range": T}),
        ({"range": T}, {"range": OPAQUE}),
        # What is not chosen says nothing of what is read.
        ({"range": T, "own": OPAQUE}, {"range": U, "own": OPAQUE}),
        ({"range": T, "sticky": U}, {"range": U, "sticky": T}),
    ],
)
def test_other_topics_begin_a_rebalance(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Else no member reads them: the share that it gets was cut for those of before."""
    assert returned(before, after).group().state is State.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"range": T}, {"range": T}),
        ({"range": OPAQUE}, {"range": b"as unreadable"}),
        ({"range": T, "sticky": T}, {"range": T, "sticky": U}),
    ],
)
def test_the_same_topics_do_not(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """A restart of a process stops nobody else."""
    assert returned(before, after).group().state is State.STABLE


def test_what_was_kept_for_an_unreadable_subscription_expires_behind_a_readable_one() -> None:
    """INV-26: the offset of u stayed for ever, as no generation followed by which it was seen."""
    talk = returned({"range": OPAQUE}, {"range": OPAQUE})
    live(talk, 2 * MINUTE_MS)  # a look has found that nothing can expire
    talk.send(leave("b", *talk.group().members, remain=True))
    talk.send(join("c", protocols={"range": T}, protocol_type="consumer", instance="i"))
    (member,) = talk.group().members
    talk.send(sync("c", talk.group().generation, member))
    live(talk, 12 * MINUTE_MS)

    assert [place[:2] for place in offsets_of(talk.shard.groups["g"])] == [("t", 0)]


def live(talk: Conversation, duration_ms: int) -> None:
    """Let its member heartbeat for a while, and read all that it is told."""
    (member,) = talk.group().members.values()
    for _ in range(duration_ms // 2_000):
        talk.tick()
        talk.send(heartbeat(member.client, talk.group().generation, member.member), 2_000)
