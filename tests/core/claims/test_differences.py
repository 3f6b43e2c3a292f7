"""A test for each row of differences-from-marshal.md."""

import re
from pathlib import Path
from typing import Any

import pytest

from coordlib import limits
from coordlib.client.claims.claim import CommitTracker
from coordlib.core.claims.slots import Judgement, Slot, Verdict
from coordlib.core.claims.world import World
from coordlib.core.wire import claims
from tests.tools.claims import driving
from tests.tools.claims.driving import START_MS, record

PAGE = Path(__file__).parents[3] / "docs/explanation/differences-from-marshal.md"
KEY = ("g", "t", 0)
A, B = "0123abcd", "89abcdef"


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    """A difference that nobody holds is a claim."""
    named = re.findall(r"\| `(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]

    assert len(named) == len(rows) - 1  # the head
    assert [name for name in named if name not in globals()] == []
    assert len(named) == len(set(named)) == 17


class Log:
    """A coordination partition that is written to by hand."""

    def __init__(self, topic: str = "__marshal", partition: int = 0, partitions: int = 1) -> None:
        self.world = World(topic, partition, partitions)
        self.now_ms = START_MS
        self.records: list[Any] = []

    def say(self, kind: str, after_ms: int = 0, **fields: Any) -> Judgement:
        self.now_ms += after_ms
        return self.put(claims.encode(driving.message(kind, self.now_ms, fields)))

    def put(self, value: bytes | None) -> Judgement:
        self.records.append(record(self.world.offset + 1, self.now_ms, value))
        return self.world.judge(self.records[-1])

    def wait(self, duration_ms: int) -> None:
        while duration_ms > 0:
            step_ms = min(duration_ms, self.world.cap_ms)
            self.now_ms, duration_ms = self.now_ms + step_ms, duration_ms - step_ms
            self.put(None)

    @property
    def slot(self) -> Slot:
        return self.world.slots[KEY]

    @property
    def client(self) -> str | None:
        owner = self.world.owner(KEY)
        return owner.client if owner else None


def test_time_is_in_the_log() -> None:
    """B1, B3: a replay of later is the same replay, and the senders' clocks decide nothing."""
    log = Log()
    log.say("Heartbeat", version=1, instance="i", client="a", offset=100, time_s=10**10)
    log.say("ClaimingPartition", 10_000, version=1, instance="j", client="b", time_s=0)
    log.say("ReleasingPartition", 10_000, version=1, instance="i", client="a", offset=500)
    later = World("__marshal", 0, 1)
    for each in log.records:
        later.judge(each)

    assert (log.client, log.slot.position) == (None, 500)
    assert later.snapshot() == log.world.snapshot()


def test_two_intervals_exactly_are_stale() -> None:
    """INV-48, B5."""
    log = Log("__marshal.6s")
    log.say("ClaimingPartition", client="a")
    log.wait(11_999)
    assert log.say("ClaimingPartition", client="b").verdict == Verdict.IGNORED
    assert log.say("ClaimingPartition", 1, client="b").verdict == Verdict.WON


def test_a_zombie_of_ours_takes_nothing_back() -> None:
    """INV-50, B2: whoever slept through the loss of its claim touches nothing afterwards."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    log.wait(120_000)
    won = log.say("ClaimingPartition", client="b", instance=B)
    signs = [
        log.say(kind, client="a", instance=f"{A}-0", offset=9)
        for kind in ("Heartbeat", "ReleasingPartition", "ClaimingMessages")
    ]

    assert [(each.verdict, each.error) for each in signs] == [(Verdict.REFUSED, "OTHER_EPOCH")] * 3
    assert log.slot == won.after
    marshals = log.say("Heartbeat", version=1, client="a", instance="i", offset=9)
    assert (marshals.verdict, log.client) == (Verdict.TAKEN_OVER, "a")


def test_a_late_heartbeat_undoes_no_release() -> None:
    """PR #85. INV-47."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    log.say("ReleasingPartition", client="a", instance=f"{A}-0", offset=10)
    late = log.say("Heartbeat", client="a", instance=f"{A}-0", offset=700)

    assert (late.verdict, late.error) == (Verdict.REFUSED, "RELEASED")
    assert (log.client, log.slot.position) == (None, 10)
    log.say("Heartbeat", version=1, client="a", instance=f"{A}-0", offset=700)
    assert log.client == "a", "of Marshal's: its own readers believe it"


def test_a_restart_takes_back_what_is_live() -> None:
    """Aging claims too; not what another has, nor what is stale: that takes an attempt."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    log.say("Heartbeat", client="a", instance=f"{A}-0", offset=7)
    log.wait(119_000)
    other = log.say("Heartbeat", client="b", instance=B)
    taken = log.say("Heartbeat", client="a", instance=B, offset=3)
    older = log.say("Heartbeat", client="a", instance=f"{A}-0", offset=8)
    log.wait(120_000)
    late = log.say("Heartbeat", client="a", instance=B)

    assert (other.verdict, other.error) == (Verdict.REFUSED, "OTHER_OWNER")
    assert taken.verdict == Verdict.RECLAIMED
    assert taken.after == Slot("a", B, taken.offset, log.slot.heard_ms, 7)
    assert (older.verdict, older.error) == (Verdict.REFUSED, "OTHER_EPOCH")
    assert (late.verdict, late.error) == (Verdict.REFUSED, "NOT_LIVE")


def test_the_hash_is_of_the_topic_alone() -> None:
    """All partitions of a topic have one order, so a key partition can stand for the topic."""
    home = claims.partition_of("t", 50)
    log = Log(partition=home, partitions=50)

    won = [log.say("ClaimingPartition", partition=n).verdict for n in range(10)]
    assert won == [Verdict.WON] * 10


def test_the_name_says_the_interval() -> None:
    """Two programs that read one topic cannot differ."""
    worlds = [World(name, 0, 1) for name in ("__marshal", "__marshal.6s")]

    assert [(w.interval_ms, w.lifetime_ms, w.cap_ms) for w in worlds] == [
        (60_000, 120_000, 24_000),
        (6_000, 12_000, 2_400),
    ]


def test_a_misplaced_message_is_none() -> None:
    """A client with another number of partitions in mind would own what another owns."""
    home = claims.partition_of("t", 4)
    log = Log(partition=(home + 1) % 4, partitions=4)

    judged = [log.say(kind) for kind in ("ClaimingPartition", "Heartbeat")]
    judged += [log.say("Heartbeat", version=1, instance="i", offset=5)]
    assert [(each.verdict, each.error) for each in judged] == [(Verdict.REJECTED, "MISPLACED")] * 3
    assert log.world.slots == {}
    assert log.say("ReleaseGroup", expire_s=log.now_ms).verdict == Verdict.PAUSED


def test_a_pause_binds() -> None:
    """INV-64: who has not read it yet wins nothing either; but for Marshal's, and the admin."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    sent_s = 5  # of a clock that is decades behind: both times are of it
    log.say("ReleaseGroup", client="admin", time_s=sent_s, expire_s=sent_s + 60)
    sign = log.say("Heartbeat", client="a", instance=f"{A}-0", offset=1)
    log.say("ReleasingPartition", client="a", instance=f"{A}-0", offset=2)

    refused = log.say("ClaimingPartition", client="b", instance=B)
    marshals = log.say("ClaimingPartition", version=1, client="b", instance="i", partition=1)
    admins = log.say("ClaimingPartition", client="admin", instance=B, partition=2)
    log.wait(60_000)
    again = log.say("ClaimingPartition", client="b", instance=B)

    assert sign.verdict == Verdict.SIGN
    assert (refused.verdict, refused.error) == (Verdict.REFUSED, "GROUP_PAUSED")
    assert [each.verdict for each in (marshals, admins, again)] == [Verdict.WON] * 3


@pytest.mark.parametrize(
    ("seconds", "until_ms"),
    [(60, 60_000), (300 * 365 * 86_400, limits.PAUSE_MAX_MS), (-1, None), (0, None)],
)
def test_a_pause_lasts_seven_days_at_most(seconds: int, until_ms: int | None) -> None:
    """A pause of 300 years, of minus one second."""
    log = Log()
    log.say("ReleaseGroup", client="admin", time_s=0, expire_s=seconds)

    expected = {} if until_ms is None else {"g": (until_ms, "admin")}
    assert log.world.pauses == expected


def test_claiming_messages_are_judged() -> None:
    """At most once: the end of a batch is known before it is processed. It is no sign of life."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    log.wait(60_000)
    proposed = log.say("ClaimingMessages", client="a", instance=f"{A}-0", offset=9)
    marshals = log.say("ClaimingMessages", version=1, client="a", instance=A, offset=99)

    assert (proposed.verdict, marshals.verdict) == (Verdict.PROPOSED, Verdict.IGNORED)
    assert (log.slot.proposed, log.slot.position, log.slot.heard_ms) == (9, None, 0)
    assert log.say("Heartbeat", client="a", instance=f"{A}-0", offset=9).verdict == Verdict.SIGN
    assert (log.slot.proposed, log.slot.position) == (None, 9)
    log.wait(120_000)
    late = log.say("ClaimingMessages", client="a", instance=f"{A}-0", offset=12)
    assert (late.verdict, late.error) == (Verdict.REFUSED, "NOT_LIVE")


def test_a_position_is_the_next_offset_to_read() -> None:
    """Five messages were processed, 0 to 4: the seed's message has 4."""
    done = CommitTracker(0)
    for offset in range(5):
        done.handed_out(offset)
        done.commit(offset)
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    log.say("Heartbeat", client="a", instance=f"{A}-0", offset=done.position)

    assert log.slot.position == 5


def test_zero_is_a_position() -> None:
    """A group that was set back to the beginning, and one that has never read."""
    log = Log()
    log.say("ClaimingPartition", client="a", instance=A)
    assert log.slot.position is None
    log.say("ReleasingPartition", client="a", instance=f"{A}-0", offset=0)
    assert log.slot.position == 0
    won = log.say("ClaimingPartition", client="b", instance=B)
    assert won.after is not None
    assert won.after.position == 0  # INV-49


@pytest.mark.parametrize(
    "value",
    [
        b"ClaimingPartition/2/1/0123abcd/a/g/t/-1",
        b"ClaimingPartition/2/1/0123abcd/a/g/t/2147483648",
        b"ClaimingPartition/2/1/0123abcd/a/g/\x1b[2J/0",
        b"ClaimingPartition/2/1/0123abcd/a/" + b"g" * 250 + b"/t/0",
        b"ClaimingPartition/2/1/0123abcd/a/g/" + b"t" * 2_100 + b"/0",
    ],
)
def test_names_and_numbers_have_bounds(value: bytes) -> None:
    """B6: one message must not end every reader, nor write to an operator's terminal."""
    log = Log()

    assert log.put(value).verdict == Verdict.REJECTED
    assert log.world.slots == {}


def test_a_slot_is_made_alone() -> None:
    """B6, V7."""
    log = Log()
    log.say("ClaimingPartition", partition=2_000_000_000)

    assert list(log.world.slots) == [("g", "t", 2_000_000_000)]


def test_the_longest_free_slot_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-43: names are for nothing, memory is not. test_room.py has more."""
    monkeypatch.setattr(limits, "SLOTS_MAX", 2)
    log = Log()
    log.say("ClaimingPartition", partition=0)
    log.say("ClaimingPartition", 1_000, partition=1)
    full = log.say("ClaimingPartition", partition=2)
    log.wait(119_000)
    won = log.say("ClaimingPartition", partition=2)

    assert (full.verdict, full.error) == (Verdict.REFUSED, "FULL")
    assert (won.verdict, won.dropped) == (Verdict.WON, KEY)


def test_a_late_reader_believes_signs() -> None:
    """INV-62: it knows nothing at first, and from four intervals on what everybody knows."""
    late = World("__marshal", 0, 1)
    now_ms, offset = START_MS, 1_000

    def judge(kind: str, **fields: Any) -> Judgement:
        nonlocal offset
        offset += 1
        return late.judge(record(offset, now_ms, driving.message(kind, now_ms, fields)))

    attempt = judge("ClaimingPartition", client="b", instance=B)
    sign = judge("Heartbeat", client="a", instance=f"{A}-7", offset=5)
    assert attempt.after is not None
    assert attempt.after.is_tentative
    assert sign.verdict == Verdict.LEARNT
    assert sign.after == Slot("a", f"{A}-7", 7, 0, 5)
    assert late.is_late
    assert not late.is_settled
    for _ in range(10):
        now_ms += 24_000
        judge("Heartbeat", client="a", instance=f"{A}-7", offset=6)
    assert late.is_settled
    older = judge("Heartbeat", client="c", instance=f"{B}-9", offset=6, partition=3)
    assert (older.verdict, older.error) == (Verdict.REFUSED, "NOT_CLAIMED")


def test_a_position_has_the_id_of_its_topic() -> None:
    """INV-146: whoever is next compares it with the topic that is there."""
    log, topic_id = Log(), "i" * 22
    epoch = log.say("ClaimingPartition", client="a", instance=A).offset
    log.say("Heartbeat", client="a", instance=f"{A}-{epoch}.{topic_id}", offset=5)
    assert log.slot.topic_id == topic_id
    log.say("ReleasingPartition", client="a", instance=f"{A}-{epoch}.{topic_id}", offset=6)
    won = log.say("ClaimingPartition", client="b", instance=B)

    assert won.verdict == Verdict.WON
    assert (log.slot.position, log.slot.topic_id) == (6, topic_id)
