"""New groups by the second: whom it refuses, whom it lets through, and that a replay agrees."""

import json
from typing import Any

import pytest

from coordlib.core.engine.effects import RESPONSES
from coordlib.core.engine.time import BURST_MS, Rate
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.errors import ErrorCode
from tests.tools.assigned_groups import subscribe
from tests.tools.core import fold
from tests.tools.driving import Conversation, commit, join, settings

START_MS = 1_700_000_000_000
RATE = 2
BURST = RATE * BURST_MS // 1_000


def outcome(lines: list[str]) -> str:
    return "THROTTLED" if "THROTTLING_QUOTA_EXCEEDED" in lines[0] else "NONE"


def flood(talk: Conversation, first: int, count: int, after_ms: int = 0) -> list[str]:
    """Joins of groups that nobody knows, at one moment or so far apart."""
    names = range(first, first + count)
    return [outcome(talk.send(join("x", group=f"new-{n}"), after_ms)) for n in names]


@pytest.mark.parametrize("per_second", [1, 3, 100, 7_000])
def test_five_seconds_worth_come_at_once_and_then_so_many_per_second(per_second: int) -> None:
    """A fleet starts on a new cluster: it waits for seconds, not for ever."""
    new, made = Rate(0, per_second), []
    for second in (0, 1, 2, 3, 60):
        count = 0
        clock_ms = START_MS + second * 1_000
        while not new.wait_ms(clock_ms) and count < 6 * per_second:
            new.book(clock_ms)
            count += 1
        made.append(count)

    assert made[0] == pytest.approx(5 * per_second, rel=0.01, abs=1)
    assert made[1:4] == pytest.approx([per_second] * 3, rel=0.01, abs=1)
    assert made[4] == pytest.approx(made[0], abs=1)


def test_whoever_would_make_one_group_more_is_told_to_wait() -> None:
    """KIP-599's error, which clients take for a reason to try again."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    assert flood(talk, 0, BURST + 2) == ["NONE"] * BURST + ["THROTTLED"] * 2
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED.retriable

    for request in (join("a", group="h"), subscribe("a", group="h"), commit("a", group="h")):
        assert "THROTTLING_QUOTA_EXCEEDED" in talk.send(request)[0]
    assert "raise new_groups_per_second_max" in talk.send(join("a", group="h"))[-1]

    assert "h" not in talk.shard.groups
    assert flood(talk, 100, 3, after_ms=1_000) == ["NONE"] * 3


@pytest.mark.parametrize("request_", [join, subscribe, commit], ids=lambda each: each.__name__)
@pytest.mark.parametrize("rate", [1, 3, 7])
def test_the_answer_says_how_long_to_wait_and_that_is_enough(rate: int, request_: Any) -> None:
    """Seed 004, ThrottleTimeMs: who asks a moment too early is refused once more, and so is a
    fleet that only guesses."""
    talk = Conversation(settings(new_groups_per_second_max=rate))
    flood(talk, 0, 5 * rate)
    talk.send(request_("a", group="h"))
    (refused,) = [
        json.loads(o.value or b"")
        for o in talk.outputs
        if b"THROTTL" in (o.value or b"") and o.topic == RESPONSES
    ]
    wait_ms = refused["throttle_time_ms"]

    assert 0 < wait_ms <= 1_000
    assert "THROTTLING" in talk.send(request_("a", group="h", id="early"), wait_ms - 1)[0]
    assert "THROTTLING" not in talk.send(request_("a", group="h", id="then"), 1)[0]


def test_groups_that_are_there_are_not_throttled() -> None:
    """A member joins beside others, and a group that only kept offsets has its first member."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.send(commit("tool", group="kept"))
    flood(talk, 0, BURST + 5)

    assert outcome(talk.send(join("b", group="new-0"))) == "NONE"
    assert outcome(talk.send(join("b", group="kept"))) == "NONE"
    assert outcome(talk.send(commit("tool", group="kept"))) == "NONE"


def test_a_group_that_was_deleted_pays_again_when_it_is_made() -> None:
    """Else whoever makes and deletes one in turn would have no bound."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    deletion = api.DeleteGroup(v=1, id="d", client="ops", group="g")
    made = []
    for _ in range(BURST + 1):
        made.append(outcome(talk.send(commit("tool", group="g"))))
        talk.send(deletion)

    assert made == ["NONE"] * BURST + ["THROTTLED"]


def test_a_cut_into_batches_refuses_the_same_ones() -> None:
    """INV-02: what was booked is state."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    flood(talk, 0, 40, after_ms=100)
    whole = fold(None, talk.log, talk.settings)

    blob, answers = None, []
    for record in talk.log:
        part = fold(blob, [record], talk.settings)
        blob = part.blob
        answers += [each.value for each in part.outputs if b'"id":"j1"' in each.value]

    assert blob == whole.blob
    assert answers == [each.value for each in whole.outputs if b'"id":"j1"' in each.value]
    assert any(b"THROTTLING" in each for each in answers)


def position(talk: Conversation, group: str, after_ms: int = 0) -> str:
    """The first position of a Spark query that is no member."""
    return outcome(talk.send(commit("spark", group=group), after_ms, topic=COMMITS))


def test_one_new_query_a_minute_is_never_too_many() -> None:
    """Nobody is a member in this shard, so nothing moves its clock but the driver's listing of
    topics, once in ten minutes. The 501st query was refused as one of too many "just now"."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.tick()

    made = [position(talk, f"run-{n}", after_ms=60_000) for n in range(4 * BURST)]

    assert made == ["NONE"] * (4 * BURST)
    assert talk.shard.clock_ms == talk.log[0].timestamp_ms


def test_a_flood_of_positions_under_invented_names_waits() -> None:
    """Each would make a group; the time of their own topic counts."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.tick()
    at_once = [position(talk, f"new-{n}") for n in range(BURST + 3)]
    later = [position(talk, f"later-{n}", after_ms=1_000 * (n == 0)) for n in range(RATE + 1)]

    assert at_once == ["NONE"] * BURST + ["THROTTLED"] * 3
    assert later == ["NONE"] * RATE + ["THROTTLED"]


def test_a_flood_of_positions_keeps_no_member_waiting() -> None:
    """INV-02: positions are judged at the end of a batch, wherever Spark cuts. What they have
    booked would refuse a JoinGroup in one cut and let it through in another."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.tick()
    for n in range(BURST + 3):
        position(talk, f"new-{n}")

    assert flood(talk, 100, BURST + 1) == ["NONE"] * BURST + ["THROTTLED"]
    assert position(talk, "one-more") == "THROTTLED"


def test_a_topic_whose_time_goes_back_makes_nobody_wait_for_an_hour() -> None:
    """Another broker leads the partition, and its clock is behind."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.tick()
    assert position(talk, "before") == "NONE"
    talk.now_ms -= 3_600_000

    made = [position(talk, f"after-{n}", after_ms=1_000) for n in range(8)]

    assert made[:1] == ["THROTTLED"]
    assert made[1:] == ["NONE"] * 7


def test_what_positions_have_booked_is_state() -> None:
    """A flood goes on through batches, and through restarts."""
    talk = Conversation(settings(new_groups_per_second_max=RATE))
    talk.tick()
    for n in range(BURST):
        assert position(talk, f"new-{n}") == "NONE"
        talk.end_batch()

    assert position(talk, "one-more") == "THROTTLED"
