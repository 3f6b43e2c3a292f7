"""The table of states and events, held against what groups do in random logs and in told stories.

Most events come up by chance; those that are rare, or take minutes or megabytes, are told here.
"""

from collections.abc import Callable
from typing import Any

import pytest

from coordlib.core.engine.effects import REQUESTS, At, BrokenInvariant
from coordlib.core.groups.classic.group import VALID_PREVIOUS_STATES, Group, State, Step
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import codec
from tests.core.groups.test_properties import settings_of
from tests.tools import driving
from tests.tools import random_logs as logs
from tests.tools.classic_causes import CAUSES
from tests.tools.core import context
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    NEWCOMER,
    SHARES,
    Conversation,
    heartbeat,
    join,
    leave,
    settings,
    sync,
)

#: What all tests here look at is made once, and not in each process.
pytestmark = pytest.mark.xdist_group("causes of classic groups")

LOGS, LENGTH = 100, 150
Change = tuple[State | None, State]


class Watch:
    """Every change of state from now on, with the event that it came from."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken: set[tuple[Change, str]] = set()
        self._sent = ""
        enter, create, send = Step.enter, Step.create, Conversation.send

        def entering(step: Step, state: State, **fields: Any) -> None:
            before = step.live.state
            enter(step, state, **fields)
            self._take((before, state), step)

        def creating(step: Step, reason: str) -> None:
            create(step, reason)
            self._take((None, step.live.state), step)

        def sending(talk: Conversation, request: Any, *more: Any, **fields: Any) -> list[str]:
            read = codec.decode_request(request) if isinstance(request, bytes) else request
            self._sent = type(read).__name__
            return send(talk, request, *more, **fields)

        patch.setattr(Step, "enter", entering)
        patch.setattr(Step, "create", creating)
        patch.setattr(Conversation, "send", sending)

    def _take(self, change: Change, step: Step) -> None:
        is_deadline = step.cause.startswith("deadline:")
        deadline = ":".join(step.cause.split(":")[:2])
        self.taken.add((change, deadline if is_deadline else self._sent))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture(scope="module")
def drawn() -> set[tuple[Change, str]]:
    """All that random logs take."""
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(patch)
        draw_logs()
    return watch.taken


def draw_logs() -> None:
    for seed in range(LOGS):
        logs.draw_log(seed, LENGTH, settings_of(seed), positions=True)


def an_assignment_is_too_large() -> None:
    """Four members with 600 KiB of metadata each leave no room for 750 KiB of assignment."""
    talk = Conversation(settings(initial_rebalance_delay_ms=1_000))
    for number in range(4):
        talk.send(join(f"m{number}", protocols={"range": b"m" * 600 * 1024}))
    for _ in range(4):
        talk.tick(after_ms=2_000)
    leader = talk.group().leader or ""
    talk.send(sync("m0", 1, leader, assignments={leader: b"a" * 750 * 1024}))


def _heartbeat_for_a_while(talk: Conversation, generation: int, *members: str) -> None:
    """Longer than the rebalance timeout of 20 s, and never silent for a session of 10 s."""
    talk.tick()
    for _ in range(8):
        for member in members:
            talk.send(heartbeat(member[0], generation, member), after_ms=1_500)


def a_leader_never_brings_the_assignment() -> None:
    talk = Conversation()
    talk.send(join("a"))
    _heartbeat_for_a_while(talk, 1, LEADER, LEADER)


def a_follower_never_asks_for_the_assignment() -> None:
    talk = driving.completing()
    talk.send(sync("a", 2, LEADER, assignments=SHARES))
    _heartbeat_for_a_while(talk, 2, LEADER, FOLLOWER)


def nobody_joins_again_and_who_asked_for_it_leaves() -> None:
    talk = driving.preparing()
    talk.send(leave("c", NEWCOMER))
    _heartbeat_for_a_while(talk, 2, LEADER, FOLLOWER)


def an_announced_id_is_all_that_is_left() -> None:
    talk = Conversation(settings(requires_member_id=True))
    talk.send_all(join("a"), join("a", "j2", member=LEADER), sync("a", 1, LEADER))
    talk.send_all(join("b"), join("a", "j3", member=LEADER, generation=1), leave("a", LEADER))
    talk.tick()
    talk.wait(12_000)


def the_only_member_is_removed_by_an_operator() -> None:
    """What it had is guarded until it must have stopped."""
    talk = Conversation()
    talk.send_all(join("a"), sync("a", 1, LEADER))
    talk.tick()
    talk.send(leave("ops", LEADER))
    talk.tick()
    talk.wait(24_000)


def the_only_member_leaves_within_the_initial_delay() -> None:
    talk = Conversation(settings(initial_rebalance_delay_ms=3_000))
    talk.send_all(join("a"), leave("a", LEADER))
    talk.wait(4_000)


def a_newcomer_is_given_up_in_a_long_initial_delay() -> None:
    """After five minutes (KAFKA-7610)."""
    talk = Conversation(settings(initial_rebalance_delay_ms=900_000))
    talk.send(join("a"))
    talk.tick()
    talk.wait(302_000)


def one_of_two_newcomers_is_given_up_in_a_long_initial_delay() -> None:
    talk = Conversation(settings(initial_rebalance_delay_ms=900_000))
    talk.send(join("a"))
    talk.tick()
    talk.wait(60_000)
    talk.send(join("b"))
    talk.tick()
    talk.wait(242_000)


STORIES: tuple[Callable[[], None], ...] = (
    an_assignment_is_too_large,
    a_leader_never_brings_the_assignment,
    a_follower_never_asks_for_the_assignment,
    nobody_joins_again_and_who_asked_for_it_leaves,
    an_announced_id_is_all_that_is_left,
    the_only_member_is_removed_by_an_operator,
    the_only_member_leaves_within_the_initial_delay,
    a_newcomer_is_given_up_in_a_long_initial_delay,
    one_of_two_newcomers_is_given_up_in_a_long_initial_delay,
)


LEGAL = {(before, state) for state, some in VALID_PREVIOUS_STATES.items() for before in some}


def test_random_logs_take_all_changes_of_state_that_are_legal(
    drawn: set[tuple[Change, str]],
) -> None:
    """INV-12: a change that no group ever makes has no place in the table."""
    assert {change for change, _ in drawn} == LEGAL | {(None, State.EMPTY)}


def test_events_lead_where_the_table_says_and_nowhere_else(
    drawn: set[tuple[Change, str]], watch: Watch
) -> None:
    """The page about states is read when a group does what nobody understands: it must be true."""
    for story in STORIES:
        story()

    told = {(change, event) for change, events in CAUSES.items() for event in events}
    assert drawn | watch.taken == told


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("state", State)
def test_a_change_that_is_not_in_the_table_is_refused(before: State, state: State) -> None:
    """INV-12: the step is undone, instead of a group that nobody can lead out again."""
    at = At(0, 1, REQUESTS, 7, 1_000, 1_000, "t", 1, "r0-7")
    step = Step(CLASSIC, "g", Group(group="g", state=before), at, context(driving.SETTINGS))

    if (before, state) in LEGAL:
        step.enter(state)
        assert step.live.state is state
    else:
        with pytest.raises(BrokenInvariant, match=f"g: {before.value} to {state.value}"):
            step.enter(state)
