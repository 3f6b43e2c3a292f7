"""What history tells of a flood of refusals: its first, how many, and nothing of others is lost."""

import json
from typing import Any

from coordlib import limits
from coordlib.core.engine.effects import EVENTS, RESPONSES
from tests.tools import assigned_groups as assigned
from tests.tools.driving import Conversation, commit, heartbeat, join, settings, settled

FIRST, EVERY = limits.REFUSALS_REPORTED_MAX, limits.REFUSALS_REPORTED_EVERY


def flood(talk: Conversation, joins: int, group: str = "g", **fields: Any) -> None:
    for number in range(joins):
        talk.send(join(f"x{number}", group=group, **fields))


def lines(talk: Conversation, group: str = "g") -> list[dict[str, Any]]:
    """The refusals that history tells of."""
    events = [json.loads(o.value or b"") for o in talk.outputs if o.topic == EVENTS]
    refused = {"RequestRejected", "CommitRefused"}
    return [e for e in events if e["type"] in refused and e["group"] == group]


def accounted(told: list[dict[str, Any]]) -> int:
    return sum(1 + line["detail"].get("untold", 0) for line in told)


def full() -> Conversation:
    return settled(settings(max_size=2))


def test_of_a_flood_the_first_refusals_are_told_and_then_how_many() -> None:
    """A client in a crash loop: the archive must not grow as fast as it joins."""
    talk = full()
    flood(talk, 2 * EVERY + 7)

    told = lines(talk)
    assert len(told) == FIRST + 2
    assert ["untold" in line["detail"] for line in told] == [False] * FIRST + [True] * 2
    assert told[-1]["detail"]["untold"] == EVERY - 1
    assert accounted(told) == 2 * EVERY
    assert told[-1]["detail"]["client"] == f"x{2 * EVERY - 1}"


def test_every_request_of_a_flood_is_answered() -> None:
    """INV-17: thinner history is no thinner protocol."""
    talk = full()
    before = len(talk.outputs)
    flood(talk, FIRST + 50)

    answers = [o for o in talk.outputs[before:] if o.topic == RESPONSES]
    assert len(answers) == FIRST + 50


def test_a_later_window_tells_how_many_had_no_line() -> None:
    """Somebody looks the next day: the flood's end is accounted for by the next refusal."""
    talk = full()
    flood(talk, FIRST + 30)
    talk.wait(2 * limits.REFUSALS_WINDOW_MS)
    flood(talk, 2, session_timeout_ms=1)

    told = lines(talk)
    assert [line["detail"].get("untold") for line in told[FIRST:]] == [30, None]
    assert accounted(told) == FIRST + 32


def test_a_flood_hides_no_refusal_of_another_group() -> None:
    """Who was refused beside it is told in full."""
    talk = full()
    talk.send(join("b", group="h", protocols={"other": b""}))
    flood(talk, FIRST + 50)
    talk.send(join("c", group="h", protocols={"range": b""}))
    talk.send(commit("d", 9, "nobody", group="h"))

    assert [line["type"] for line in lines(talk, "h")] == ["RequestRejected", "CommitRefused"]


def test_groups_that_are_not_there_are_counted_together() -> None:
    """A full shard, and group ids by the million: a row for each of them would be no bound."""
    talk = Conversation(settings(groups_per_shard_max=1))
    talk.send(join("a"))
    for number in range(FIRST + 50):
        talk.send(join("x", f"{number}", group=f"new-{number}"))

    told = [o for o in talk.outputs if o.topic == EVENTS and b"RequestRejected" in (o.value or b"")]
    assert len(told) == FIRST
    assert list(talk.shard.groups) == ["g"]


def test_where_batches_end_changes_nothing_of_what_is_told() -> None:
    """INV-02."""
    whole, cut = full(), full()
    for number in range(FIRST + 40):
        for talk in (whole, cut):
            talk.send(join(f"x{number}"))
        if number % 7 == 0:
            cut.end_batch()
    for talk in (whole, cut):
        talk.wait(2 * limits.REFUSALS_WINDOW_MS)
        talk.send(join("last", session_timeout_ms=1))

    assert lines(cut) == lines(whole)
    assert accounted(lines(cut)) == FIRST + 41


def test_other_lines_of_history_are_never_left_out() -> None:
    """A thousand accepted commits are a thousand lines, also in one window."""
    talk = settled()
    for _ in range(FIRST + 20):
        talk.send(commit("tool", 2, "a-t-0-0"))

    events = [json.loads(o.value or b"") for o in talk.outputs if o.topic == EVENTS]
    assert sum(event["type"] == "OffsetsCommitted" for event in events) == FIRST + 20


def test_a_refused_request_leaves_the_group_alone_when_it_is_not_told() -> None:
    """INV-24: what is counted is no part of the group's hard state."""
    talk = full()
    flood(talk, FIRST + 5)
    talk.end_batch()
    before = talk.group()
    flood(talk, 5)

    assert talk.group() is not None
    assert talk.group() == before
    assert not talk.shard.groups["g"].changed
    assert talk.send(heartbeat("a", 2, "a-t-0-0")) == []


def test_a_flood_into_a_server_assigned_group_is_thinned_as_well() -> None:
    """Newcomers that a full group refuses, and members of the other kind that took its name."""
    talk = assigned.stable(settings(max_size=2))
    for number in range(FIRST + 30):
        talk.send(assigned.subscribe(f"x{number}"))
        talk.send(join(f"y{number}"))

    told = lines(talk)
    assert len(told) == FIRST
    assert {line["detail"]["request"] for line in told} == {"Subscribe", "JoinGroup"}
    talk.wait(2 * limits.REFUSALS_WINDOW_MS)
    talk.send(assigned.let_go("z", 2, "nobody", cause=3))
    assert accounted(lines(talk)) == 2 * (FIRST + 30) + 1
