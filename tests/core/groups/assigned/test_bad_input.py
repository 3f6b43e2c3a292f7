"""What bad input gets in server-assigned groups: Kafka's error beside the seed's name for it, one
sentence of what to do, one line of history; and nobody else notices.

What members may not do in which state stands in `by_state`; here is what is wrong in every state.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from coordlib import limits
from coordlib.core.engine.effects import EVENTS, RESPONSES
from coordlib.core.groups.assigned.group import State
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.wire import api
from tests.core.engine.refusals import refused
from tests.tools import driving
from tests.tools.assigned_groups import (
    A,
    B,
    answer_demands,
    group_of,
    let_go,
    owned_in,
    stable,
    subscribe,
    told,
    topics,
    with_strategies,
)
from tests.tools.core import offsets_of
from tests.tools.driving import Conversation, commit, heartbeat, join, leave, settings


def turned_away(talk: Conversation, request: api.AnyRequest) -> dict[str, Any]:
    """The refusal of a request that must leave no trace but an answer and a line of history."""
    before, count = group_of(talk), len(talk.outputs)
    talk.send(request)
    assert group_of(talk) is before
    answer, event = (json.loads(output.value or b"{}") for output in talk.outputs[count:])
    assert [output.topic for output in talk.outputs[count:]] == [RESPONSES, EVENTS]
    assert (event["type"], event["reason"]) == ("RequestRejected", answer["message"])
    assert event["detail"]["error"] == answer["error"]
    return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("wish", "error", "design_error", "words"),
    [
        (
            {"strategy": "fair"},
            "UNSUPPORTED_ASSIGNOR",
            "UnknownPartitioningStrategy",
            "Name one of these strategies: range, roundrobin, sticky, uniform.",
        ),
        (
            {"strategy": "range"},
            "INCONSISTENT_GROUP_PROTOCOL",
            "InconsistentPartitioningStrategy",
            "This group divides by sticky: name that, or none.",
        ),
        (
            {"session_timeout_ms": 1_800_001},
            "INVALID_SESSION_TIMEOUT",
            "SessionTimeoutTooHigh",
            "session_timeout_ms must be 6000 to 1800000.",
        ),
        (
            {"session_timeout_ms": 5_999},
            "INVALID_SESSION_TIMEOUT",
            None,
            "session_timeout_ms must be 6000 to 1800000.",
        ),
        (
            {"rebalance_timeout_ms": 5_999},
            "INVALID_SESSION_TIMEOUT",
            None,
            "rebalance_timeout_ms must be 6000 to 86400000.",
        ),
        (
            {"pattern": "clicks-("},
            "INVALID_REGULAR_EXPRESSION",
            None,
            "RE2 refuses the expression: missing ): clicks-(.",
        ),
        (
            {"pattern": ".*", "exclude": r"(a)\1"},
            "INVALID_REGULAR_EXPRESSION",
            None,
            r"RE2 refuses the expression: invalid escape sequence: \1.",
        ),
        (
            {"pattern": r"[\pL\pN]{2,60}"},
            "INVALID_REGULAR_EXPRESSION",
            None,
            "The expression needs 80582 steps, 1100 are allowed.",
        ),
    ],
)
@pytest.mark.parametrize("who", ["newcomer", "member"])
def test_a_wish_that_cannot_be_met_is_refused(
    who: str, wish: dict[str, Any], error: str, design_error: str | None, words: str
) -> None:
    """The group, its members and what they own stay as they are."""
    known = {"member": A, "generation": 2} if who == "member" else {}

    answer = turned_away(stable(), subscribe("a", "new", **known, **wish))

    assert (answer["error"], answer.get("design_error")) == (error, design_error)
    assert answer["message"] == words
    assert answer["member"] == known.get("member", "")
    assert "partitions" not in answer


def test_a_catastrophic_expression_costs_no_time() -> None:
    """Python's own expressions would take 2^40 steps for this name, RE2's one per character."""
    talk = told(**{"a" * 40 + "b": 1})

    talk.send(subscribe("a", pattern="(a+)+"))

    assert group_of(talk).topics == {}


def test_the_last_member_may_change_the_strategy() -> None:
    """Nobody is there whom it would contradict; the others must name the new one, or none."""
    talk = stable()
    talk.send(leave("b", B))
    talk.send(subscribe("a", "new", member=A, generation=3, strategy="range"))

    assert group_of(talk).protocol == "range"
    assert turned_away(talk, subscribe("b", "back", strategy="sticky"))["error"] == (
        "INCONSISTENT_GROUP_PROTOCOL"
    )


def test_topics_that_do_not_exist_are_wishes() -> None:
    """Seed 000: consumers can register for topics before they are created."""
    talk = told(t=1)
    talk.send(subscribe("a", topics=("t", "later")))
    assert owned_in(talk) == {"a": {"t": (0,)}}

    talk.send(topics({"later": 2, "t": 1}))

    assert owned_in(talk) == {"a": {"later": (0, 1), "t": (0,)}}


def test_a_group_of_wishes_alone_is_stable() -> None:
    """Nothing to divide is nothing to wait for."""
    talk = Conversation()
    talk.send(subscribe("a", topics=("later",)))

    assert group_of(talk).state is State.STABLE
    assert owned_in(talk) == {"a": {}}


# -- bounds ---------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_and_loses_nobody() -> None:
    """The same first Subscribe once more is no newcomer."""
    talk = stable(settings(max_size=2))

    assert turned_away(talk, subscribe("c"))["error"] == "GROUP_MAX_SIZE_REACHED"
    assert talk.send(subscribe("a"))[0].startswith("answer a#j1 Subscribe generation=2")


def test_a_full_shard_takes_no_new_group() -> None:
    """A typo in a group name must not cost the blob its bound."""
    talk = stable(settings(groups_per_shard_max=1))

    lines = talk.send(subscribe("a", group="other"))

    assert lines[0] == "answer[other] a#j1 Subscribe GROUP_MAX_SIZE_REACHED"
    assert "other" not in talk.shard.groups


#: As many names as one record has room for.
MANY = tuple(f"{number:04}{'n' * 200}" for number in range(4_500))


def test_wishes_that_are_too_large_to_be_kept_are_refused() -> None:
    """INV-43: else the group's value could not be written, and the job would stop at it."""
    talk = stable()
    for client in "cde":
        talk.send(subscribe(client, topics=MANY))

    refusal = turned_away(talk, subscribe("f", topics=MANY))

    assert refusal["error"] == "GROUP_MAX_SIZE_REACHED"
    assert refusal["message"].startswith("Leave, or subscribe to less")
    more = subscribe("a", "j2", member=A, generation=5, topics=MANY)
    assert turned_away(talk, more)["member"] == A


def listed(talk: Conversation, counts: Mapping[str, int]) -> None:
    """Topics as the driver lists them, in records of bounded length."""
    names = sorted(counts)
    starts = range(0, len(names), 3_000)
    for start in starts:
        some = {name: counts[name] for name in names[start : start + 3_000]}
        after = names[start - 1] if start else None
        through = None if start == starts[-1] else max(some)
        talk.send(topics(some, after=after, through=through))


def test_topics_for_which_a_group_has_no_room_are_left_out_and_named() -> None:
    """INV-43: they come by themselves, so there is nobody to refuse; who had some keeps them."""
    talk = Conversation()
    listed(talk, {"zebra": 4})
    talk.send(subscribe("a", pattern=".*"))
    many = {f"{number:05}{'n' * 200}": 1 for number in range(12_000)}

    listed(talk, many | {"zebra": 4})

    group = group_of(talk)
    assert group.topics["zebra"] == 4
    assert 5_000 < len(group.topics) < 6_000
    assert talk.shard.topics.keys() == {*many, "zebra"}
    told_of = [json.loads(o.value or b"{}") for o in talk.outputs if o.topic == EVENTS]
    left_out = [event["detail"].get("left_out") for event in told_of]
    assert [names for names in left_out if names][-1][0] == f"{len(group.topics) - 1:05}{'n' * 200}"
    saved = [o for o in talk.end_batch_raw() if o.topic == "groups"]
    assert len(saved[0].value or b"") < limits.OUTPUT_BYTES_MAX // 2


def test_a_newcomers_expression_takes_nothing_from_those_who_were_there() -> None:
    """Whoever wants everything gets what is left of the room, not what others have."""
    many = {f"{number:05}{'n' * 200}": 1 for number in range(12_000)}
    talk = Conversation()
    listed(talk, many | {"zebra": 4})
    talk.send(subscribe("a", topics=("zebra",)))

    talk.send(subscribe("b", pattern=".*", exclude="zebra"))

    assert owned_in(talk)["a"] == {"zebra": (0, 1, 2, 3)}
    assert not any(member.demands for member in group_of(talk).members.values())


# -- one kind at a time ---------------------------------------------------------------------------


def test_a_group_of_the_other_kind_is_not_entered() -> None:
    """In both directions, as long as somebody is in it."""
    talk = driving.stable()
    reason = "This group is classic, not assigned: use another name, or stop its members first."
    answer = "answer x#j1 Subscribe INCONSISTENT_GROUP_PROTOCOL"
    here = f"r0-{talk.next_offset}"
    assert talk.send(subscribe("x")) == refused(answer, cause=here, reason=reason)

    talk = stable()
    reason = "This group is assigned, not classic: use another name, or stop its members first."
    answer = "answer x#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL"
    here = f"r0-{talk.next_offset}"
    assert talk.send(join("x")) == refused(answer, cause=here, reason=reason)


def test_a_group_whose_members_are_gone_becomes_what_the_next_one_asks_for() -> None:
    """Offsets and generation go on: consumers are changed over without losing their places."""
    talk = stable()
    talk.send(commit("a", 2, A, offset=41))
    talk.send_all(leave("a", A), leave("b", B))
    generation = group_of(talk).generation

    lines = talk.send(join("x"))

    assert lines[-1].startswith(f"event GroupKindChanged generation={generation} ")
    assert lines[-1].endswith('reason="was assigned and empty"')
    assert talk.group().generation == generation + 1
    member = f"x-t-0-{talk.next_offset - 1}"
    talk.send(leave("x", member))
    lines = talk.send(subscribe("a", "j7"))
    assert lines[-1].endswith('reason="was classic and empty"')
    assert group_of(talk).generation == generation + 3
    assert "offset=41" in talk.send(driving.fetch("a"))[0]


def test_a_refused_newcomer_changes_no_kind() -> None:
    """An empty group is not changed by somebody who does not come in."""
    talk = driving.empty()

    lines = talk.send(subscribe("a", strategy="fair"))

    assert lines[0].startswith("answer a#j1 Subscribe UNSUPPORTED_ASSIGNOR")
    assert talk.shard.groups["g"].stored.kind == "classic"


# -- what the driver alone should write -----------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":1,"type":"TopicMetadata"}',
        b'{"v":1,"type":"TopicMetadata","topics":[{"topic":"t","partitions":0}]}',
        b'{"v":1,"type":"TopicMetadata","topics":[{"topic":"t","partitions":100001}]}',
        b'{"v":1,"type":"TopicMetadata","topics":[{"topic":"","partitions":1}]}',
        b'{"v":1,"type":"TopicMetadata","topics":[{"topic":"u","partitions":1},'
        b'{"topic":"t","partitions":1}]}',
        b'{"v":1,"type":"TopicMetadata","topics":[{"topic":"t","partitions":1},'
        b'{"topic":"t","partitions":2}]}',
        b'{"v":1,"type":"TopicMetadata","after":"t","topics":[{"topic":"t","partitions":1}]}',
        b'{"v":1,"type":"TopicMetadata","through":"s","topics":[{"topic":"t","partitions":1}]}',
        b'{"v":1,"type":"TopicMetadata","group":"g","topics":[]}',
    ],
)
def test_a_listing_that_makes_no_sense_is_refused_whole(value: bytes) -> None:
    """Somebody other than the driver writes it; one line of history, and no group hears of it."""
    talk = stable()
    before, known = group_of(talk), dict(talk.shard.topics)

    (line,) = talk.send(value)

    assert line.startswith("event")
    assert " RequestRejected " in line
    assert group_of(talk) is before
    assert talk.shard.topics == known


def test_a_listing_of_an_empty_range_says_nothing() -> None:
    """Its end lies before its begin: no topic is in it."""
    talk = stable()

    assert talk.send(topics({}, after="t", through="a")) == []
    assert talk.shard.topics == {"t": 4}


# -- a user's strategy ----------------------------------------------------------------------------


def failing(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """Cannot divide among three."""
    if len(members) == 3:
        raise LookupError(f"no place for {min(members)}")
    return {name: ({"t": (0, 1, 2, 3)} if name == min(members) else {}) for name in members}


def test_a_strategy_that_fails_is_told_once_and_sticky_divides() -> None:
    """A user's defect is his group's matter: it is in history, and everybody has work."""
    talk = told(with_strategies(mine=failing))
    talk.send_all(subscribe("a", strategy="mine"), subscribe("b"))
    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3)}, "b": {}}

    lines = talk.send(subscribe("c"))

    fault = "sticky divided, since strategy 'mine' failed with LookupError: no place for a-t-0-1."
    (event,) = [line for line in lines if "StrategyFailed" in line]
    assert event == f'event StrategyFailed generation=3 cause=r0-3 reason="{fault}"'
    assert group_of(talk).strategy_fault == fault
    answer_demands(talk, group_of(talk).members["a-t-0-1"])
    assert sorted(len(owned["t"]) for owned in owned_in(talk).values()) == [1, 1, 2]

    # The same fault again is no news; and none, when it has divided again.
    assert not [line for line in talk.send(topics({"t": 5})) if "StrategyFailed" in line]
    talk.send(leave("c", "c-t-0-3"))
    assert group_of(talk).strategy_fault is not None  # it does not know the fifth partition
    talk.send(topics({"t": 4}))
    assert group_of(talk).strategy_fault is None


def test_a_strategy_that_the_job_has_no_more_is_a_fault() -> None:
    """The job was started without it: the group that chose it goes on all the same."""
    talk = told(with_strategies(mine=failing))
    talk.send(subscribe("a", strategy="mine"))
    talk.settings = driving.SETTINGS
    talk.end_batch()

    lines = talk.send(topics({"t": 5}))

    assert [line for line in lines if "is not known to this job" in line]
    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3, 4)}}


# -- signs of life --------------------------------------------------------------------------------


def test_a_heartbeat_that_names_an_instance_is_one_all_the_same() -> None:
    """There are no static members here; a client that names one is alive nevertheless."""
    talk = stable()
    talk.wait(9_000)

    assert talk.send(heartbeat("a", 2, A, instance="i")) == []
    talk.wait(4_000)

    assert list(group_of(talk).members) == [A]


@pytest.mark.parametrize("cause", [0, 5, 2**63 - 1])
def test_a_release_of_what_was_never_demanded_stores_nothing(cause: int) -> None:
    """Its rows could be a late duplicate's: positions must not go back (rule 12)."""
    talk = stable()
    talk.send(commit("a", 2, A, offset=41))
    rows = (api.CommittedOffset("t", 0, 7),)

    lines = talk.send(let_go("a", 2, A, cause=cause, offsets=rows))

    assert lines == [
        "answer a#r Release failed=[(topic=t error=PARTITION_NOT_OWNED)]",
        "event CommitRefused generation=2 member=a-t-0-1 cause=r0-7 reason=PARTITION_NOT_OWNED "
        "client=a request_generation=2 offsets=[(topic=t offset=7 error=PARTITION_NOT_OWNED)] "
        "request=Release",
    ]
    kept = offsets_of(talk.shard.groups["g"]).get("t", 0)
    assert kept is not None
    assert kept.offset == 41
