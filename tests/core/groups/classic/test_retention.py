"""Offsets expire only while nobody subscribes, on the log's clock, at fixed points of it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.groups import kind
from coordlib.core.groups.classic.group import State
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from tests.tools.core import Shard, ShardSettings, offsets_of, with_groups
from tests.tools.driving import (
    LEADER,
    SETTINGS,
    START_MS,
    Conversation,
    commit,
    completing,
    delete_offsets,
    empty,
    join,
    leave,
    preparing,
    settings,
    settled,
    stable,
    sync,
)

MINUTE_MS = 60_000
#: Checks at every full minute of the clock, which begins 40 s after one.
HOW = settings(offsets_retention_ms=10 * MINUTE_MS, check_interval_ms=MINUTE_MS)
#: Checks at every second of the clock.
OFTEN = settings(offsets_retention_ms=10 * MINUTE_MS, check_interval_ms=1_000)
TO_FIRST_CHECK_MS = MINUTE_MS - START_MS % MINUTE_MS


def expired(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith("gone") or "Expired" in line]


def test_offsets_without_members_expire_at_the_first_check_after_their_time() -> None:
    """testExpireGroupWithOffsetsOnly: a Spark query that was stopped for good."""
    talk = Conversation(HOW)
    talk.send(commit("tool"))
    talk.send(commit("tool", offsets=(api.CommittedOffset("u", 1, 5),)), after_ms=5 * MINUTE_MS)

    assert talk.tick(after_ms=5 * MINUTE_MS) == []  # due, but 20 s before the check
    first = talk.tick(after_ms=TO_FIRST_CHECK_MS)
    second = talk.tick(after_ms=5 * MINUTE_MS)

    assert first == [
        "commit t/0 gone",
        'event OffsetsExpired cause=deadline:retention reason="group empty" offsets=[(topic=t)]',
    ]
    assert second == [
        "commit u/1 gone",
        'event OffsetsExpired cause=deadline:retention reason="group empty" '
        "offsets=[(topic=u partition=1)]",
        'event GroupDeleted cause=deadline:retention reason="offsets expired"',
    ]
    assert talk.end_batch() == ["saved gone"]


def test_a_check_takes_as_many_offsets_as_one_line_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-68: all 100,000 of a group in one step were 150 MB."""
    monkeypatch.setattr(limits, "OFFSETS_PER_EVENT_MAX", 2)
    talk = Conversation(HOW)
    talk.send(commit("tool", offsets=tuple(api.CommittedOffset("t", n, 5) for n in range(5))))

    talk.tick(after_ms=5 * MINUTE_MS)
    talk.tick(after_ms=5 * MINUTE_MS)
    found = [expired(talk.tick(after_ms=TO_FIRST_CHECK_MS))]
    assert talk.tick(after_ms=MINUTE_MS - 1) == [], "the next check takes the next ones"
    found += [expired(talk.tick(after_ms=ms)) for ms in (1, MINUTE_MS)]
    gone = [[line for line in lines if line.startswith("commit")] for lines in found]
    assert gone == [
        ["commit t/0 gone", "commit t/1 gone"],
        ["commit t/2 gone", "commit t/3 gone"],
        ["commit t/4 gone"],
    ]
    assert talk.end_batch() == ["saved gone"]


def test_what_is_due_behind_the_newest_check_waits_for_the_next() -> None:
    """INV-02: somebody else's offset in the group decides when it is looked at, not what goes."""
    talk = Conversation(HOW)
    talk.send(commit("tool"))
    talk.send(commit("tool", offsets=(api.CommittedOffset("u", 1, 5),)), after_ms=30_000)
    talk.tick(after_ms=9 * MINUTE_MS)

    assert expired(talk.tick(after_ms=80_000))[0] == "commit t/0 gone"
    assert talk.shard.clock_ms == START_MS + 650_000 > START_MS + 30_000 + 10 * MINUTE_MS
    assert offsets_of(talk.shard.groups["g"]).count == 1
    assert expired(talk.tick(after_ms=30_000))[0] == "commit u/1 gone"


def test_offsets_of_a_group_that_was_left_count_from_the_last_member() -> None:
    """testOffsetExpirationSemantics: nobody commits while an application is idle, or is fixed."""
    talk = settled(HOW)
    talk.send(commit("a", 2, LEADER))
    for _ in range(11 * 60 // 2):
        talk.send(api.Heartbeat(v=1, id="h", client="a", group="g", generation=2, member=LEADER))
        talk.send(
            api.Heartbeat(v=1, id="h", client="b", group="g", generation=2, member="b-t-0-3"),
            after_ms=2_000,
        )
    assert talk.send_all(leave("b", "b-t-0-3"), leave("a", LEADER))[-1].endswith('"member left"')
    assert talk.group().state == "Empty"
    left_ms = talk.shard.clock_ms

    lines = []
    while not expired(lines):
        lines = talk.tick(after_ms=1_000)

    assert talk.shard.clock_ms == -(-(left_ms + 10 * MINUTE_MS) // MINUTE_MS) * MINUTE_MS
    assert "g" not in talk.shard.groups


def test_what_is_committed_to_an_empty_group_stays_as_long_as_anything() -> None:
    """Other than in Kafka, where a reset a minute before the end of a group's time is lost."""
    talk = empty(HOW)
    talk.send(commit("tool"))
    talk.tick(after_ms=9 * MINUTE_MS)
    talk.send(commit("tool", offsets=(api.CommittedOffset("u", 1, 5),)))

    assert expired(talk.tick(after_ms=3 * MINUTE_MS))[0] == "commit t/0 gone"
    assert [place[:2] for place in offsets_of(talk.shard.groups["g"])] == [("u", 1)]


def consumers(*topics: str, metadata: bytes | None = None) -> Conversation:
    """A stable consumer of these topics, whose group has offsets of t and u."""
    talk = Conversation(HOW)
    wanted = cp.encode_subscription(cp.Subscription(topics=topics))
    protocols = {"range": wanted if metadata is None else metadata}
    talk.send(join("a", protocol_type="consumer", protocols=protocols))
    talk.send(sync("a", 1, LEADER))
    talk.tick()
    rows = (api.CommittedOffset("t", 0, 5), api.CommittedOffset("u", 1, 5))
    talk.send(commit("a", 1, LEADER, offsets=rows))
    return talk


def live(talk: Conversation, duration_ms: int, generation: int = 1) -> list[str]:
    """Let a member heartbeat for a while."""
    beat = api.Heartbeat(v=1, id="h", client="a", group="g", generation=generation, member=LEADER)
    return [line for _ in range(duration_ms // 2_000) for line in talk.send(beat, 2_000)]


def test_only_topics_that_nobody_reads_expire_in_a_live_group() -> None:
    """INV-26, testOffsetExpirationOfActiveGroupSemantics: a consumer gave up one of two topics."""
    lines = live(consumers("t"), 12 * MINUTE_MS)

    assert lines == [
        "commit u/1 gone",
        "event OffsetsExpired generation=1 cause=deadline:retention "
        'reason="topic not subscribed" offsets=[(topic=u partition=1)]',
    ]


@pytest.mark.parametrize("metadata", [b"", b"unreadable"])
def test_nothing_expires_while_it_is_not_known_who_reads_what(metadata: bytes) -> None:
    """The members of a consumer group may write what they like."""
    assert live(consumers(metadata=metadata), 30 * MINUTE_MS) == []


def test_a_topic_that_is_given_up_late_expires_after_the_rebalance() -> None:
    """Its offset is old already; but not before the group has settled without it."""
    talk = consumers("t", "u")
    assert live(talk, 20 * MINUTE_MS) == []
    wanted = cp.encode_subscription(cp.Subscription(topics=("t",)))
    talk.send(join("a", "j2", member=LEADER, protocol_type="consumer", protocols={"range": wanted}))
    assert talk.group().state == "CompletingRebalance"
    talk.tick()
    assert live(talk, 18_000, 2) == []
    talk.send(sync("a", 2, LEADER))

    cell = talk.shard.groups["g"]
    first_ms = kind.first_expiry(talk.group(), offsets_of(cell), 10 * MINUTE_MS)
    assert cell.facts.next_maintenance_ms == first_ms == talk.shard.clock_ms
    assert expired(live(talk, 2 * MINUTE_MS, 2))[0] == "commit u/1 gone"


@pytest.mark.parametrize("make", [preparing, completing, stable])
def test_members_of_another_kind_keep_everything(make) -> None:  # type: ignore[no-untyped-def]
    """Connect and its like: what they subscribe to is written in their own bytes."""
    talk = make(HOW)
    group = msgspec.structs.replace(talk.group(), state_since_clock_ms=0)

    assert kind.expiry_bound(group, 3, 1) == 2**63 - 1


@pytest.mark.parametrize("make", [preparing, completing])
def test_consumers_keep_everything_while_they_rebalance(
    make: Callable[[ShardSettings], Conversation],
) -> None:
    """testOffsetRemovalDuringTransitionFromEmptyToNonEmpty, KAFKA-13636: who rejoins may want
    what nobody seems to subscribe to right now."""
    changed = {"protocol_type": "consumer", "state_since_clock_ms": 0}
    group = msgspec.structs.replace(make(HOW).group(), **changed)

    assert kind.expiry_bound(group, 3, 1) == 2**63 - 1
    settled_down = msgspec.structs.replace(group, state=State.STABLE)
    assert kind.expiry_bound(settled_down, 3, 1) == 0


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    """testGroupMetadataRemoval."""
    talk = empty(HOW)
    talk.end_batch()

    assert talk.tick(after_ms=TO_FIRST_CHECK_MS - 1) == []
    assert talk.tick(after_ms=1) == [
        'event GroupDeleted generation=2 cause=deadline:retention reason="empty without offsets"'
    ]
    assert talk.end_batch() == ["saved gone"]


def test_a_group_whose_first_member_was_told_its_id_lives_until_it_comes() -> None:
    """KIP-394 where checks come more often than a join takes: the id of a group that is gone is
    nobody's, so the member would ask for another one, for ever."""
    talk = Conversation(with_groups(OFTEN, requires_member_id=True))
    talk.send(join("x", "x1"))
    talk.end_batch()

    assert talk.tick(after_ms=MINUTE_MS // 12) == []
    assert "MemberJoined" in talk.send(join("x", "x2", member="x-t-0-0"))[0]


def test_a_group_whose_first_member_never_comes_goes_when_its_id_does() -> None:
    """A client that died between its two requests leaves nothing behind."""
    talk = Conversation(with_groups(OFTEN, requires_member_id=True))
    talk.send(join("x", "x1"))
    talk.end_batch()
    talk.tick()
    assert talk.wait(9_000) == []
    assert talk.group().pending

    assert talk.wait(3_000) == [
        'event GroupDeleted cause=deadline:retention reason="empty without offsets"'
    ]
    assert talk.end_batch() == ["saved gone"]


def test_offsets_live_while_a_member_is_about_to_join() -> None:
    """It will begin where they are."""
    talk = empty(with_groups(HOW, requires_member_id=True))
    talk.send(commit("tool"))
    talk.tick(after_ms=10 * MINUTE_MS)
    assert expired(talk.send(join("x", "x1"), after_ms=TO_FIRST_CHECK_MS - 1)) == []
    assert expired(talk.wait(2_000)) == []
    assert offsets_of(talk.shard.groups["g"]).count == 1


def test_an_empty_group_is_not_taken_by_an_early_look() -> None:
    """A shard that was rebuilt, or has another retention, looks at everything once."""
    talk = empty(HOW)
    talk.settings = settings(offsets_retention_ms=1, check_interval_ms=MINUTE_MS)
    talk.end_batch()

    assert talk.tick(after_ms=TO_FIRST_CHECK_MS - 1) == []
    assert "GroupDeleted" in talk.tick(after_ms=1)[0]


def test_a_group_whose_last_offset_was_deleted_goes_too() -> None:
    """An operator took the positions away one by one."""
    talk = empty(HOW)
    talk.send(commit("tool"))
    talk.tick(after_ms=2 * MINUTE_MS)
    talk.send(delete_offsets("ops", ("t", 0)))

    assert "GroupDeleted" in talk.tick(after_ms=MINUTE_MS)[0]


# -- time --------------------------------------------------------------------------------------


def test_a_clock_that_jumps_a_month_ahead_takes_no_offset() -> None:
    """A broker with a dead battery became leader of the requests topic, and was replaced."""
    talk = Conversation(settings())
    talk.send(commit("tool"))
    month_ms = 30 * 24 * 60 * MINUTE_MS

    assert talk.tick(after_ms=month_ms) == []
    assert talk.tick(after_ms=-month_ms) == []
    assert offsets_of(talk.shard.groups["g"]).count == 1
    assert talk.shard.clock_ms - START_MS == 10 * MINUTE_MS


def test_a_position_that_came_before_the_first_request_is_not_old() -> None:
    """A new prefix: a Spark query commits while the job starts, then the first tick is written,
    and sets a clock that stood at zero."""
    talk = Conversation(HOW)
    talk.send(commit("tool"), topic="o")

    for _ in range(5):
        assert talk.tick(after_ms=10 * MINUTE_MS) == []
    talk.send(commit("tool"), topic="o")
    assert expired(talk.tick(after_ms=10 * MINUTE_MS)) == []
    assert expired(talk.tick(after_ms=MINUTE_MS))[0] == "commit t/0 gone"


def test_offsets_alone_make_no_ticks() -> None:
    """A shard that only keeps positions would be ticked every five minutes for ever."""
    talk = Conversation(HOW)
    talk.send(commit("tool"))

    assert talk.shard.status().has_deadline is False
    assert talk.shard.groups["g"].facts.next_maintenance_ms == START_MS + 10 * MINUTE_MS


def test_another_retention_counts_at_once() -> None:
    """An operator shortens it because the topic of offsets is full."""
    talk = Conversation()
    talk.send(commit("tool"))
    talk.tick(after_ms=10 * MINUTE_MS)
    talk.settings = HOW
    talk.end_batch()

    assert expired(talk.tick(after_ms=2 * MINUTE_MS))[0] == "commit t/0 gone"


def test_a_longer_retention_counts_at_once() -> None:
    """Before the offsets of a fortnight's holidays are gone."""
    talk = Conversation(HOW)
    talk.send(commit("tool"))
    talk.settings = SETTINGS
    talk.end_batch()

    assert talk.tick(after_ms=10 * MINUTE_MS) == []
    assert talk.tick(after_ms=10 * MINUTE_MS) == []


# -- what it costs -----------------------------------------------------------------------------


def test_offsets_are_read_for_retention_once_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither every batch nor every check decodes every group."""
    looks = []
    look = CLASSIC.maintain

    def counted(step: Any, checked_ms: int) -> None:
        looks.append(step.name)
        look(step, checked_ms)

    monkeypatch.setattr(CLASSIC, "maintain", counted)
    talk = Conversation(HOW)
    for _ in range(60):
        talk.send(commit("tool"), after_ms=MINUTE_MS)
        talk.end_batch()

    assert len(looks) <= 6
    assert not any(cell._entries for cell in talk.shard.groups.values())


def test_a_defect_in_retention_quarantines_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-42: it would meet every later record of the shard."""

    def broken(*_: object) -> int:
        raise ZeroDivisionError("first_expiry")

    talk = Conversation(HOW)
    talk.send(commit("tool"))
    talk.send(commit("tool", offsets=(api.CommittedOffset("u", 0, 1),)), after_ms=5 * MINUTE_MS)
    monkeypatch.setattr(kind, "first_expiry", broken)

    lines = [line for _ in range(2) for line in talk.tick(after_ms=3 * MINUTE_MS)]

    at = talk.next_offset - 1
    assert expired(lines)[0] == "commit t/0 gone"
    assert lines[-1] == f"event GroupQuarantined cause=r0-{at} reason=ZeroDivisionError"
    assert talk.tick(after_ms=9 * MINUTE_MS) == []
    assert "OffsetsCommitted" in talk.send(commit("tool", group="h"))[-1]


def test_a_quarantined_group_keeps_everything() -> None:
    """An operator looks into it; its empty state may be the defect itself."""
    group = msgspec.structs.replace(empty(HOW).group(), is_quarantined=True)

    assert kind.expiry_bound(group, 0, 1) == kind.expiry_bound(group, 5, 1) == 2**63 - 1


def test_bounds_are_found_when_a_shard_is_loaded() -> None:
    """The agenda is an index over rows, and nothing is kept beside them."""
    talk = Conversation(HOW)
    talk.send(commit("tool"))
    loaded = Shard(talk.shard.encode(), HOW)

    assert loaded._agenda.looks == talk.shard._agenda.looks
