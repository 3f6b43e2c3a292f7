"""The table of states and events, held against random logs and told stories."""

from collections.abc import Callable
from typing import Any

import pytest

from coordlib.core.engine.effects import REQUESTS, At, BrokenInvariant
from coordlib.core.groups.assigned.group import VALID_PREVIOUS_STATES, Group, State, Step
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.wire import codec
from tests.tools import assigned_logs as logs
from tests.tools import driving
from tests.tools.assigned_causes import CAUSES
from tests.tools.assigned_groups import (
    A,
    B,
    deserted,
    empty,
    guarded,
    halved,
    let_go,
    reconciling,
    stable,
    subscribe,
    told,
    topics,
)
from tests.tools.core import context
from tests.tools.driving import Conversation, heartbeat, leave

#: What all tests here look at is made once, and not in each process.
pytestmark = pytest.mark.xdist_group("causes of assigned groups")

LOGS, LENGTH = 60, 150
Change = tuple[State | None, State]


class Watch:
    """Every change of state from now on, with the event that it came from."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken: set[tuple[Change, str]] = set()
        self._sent = ""
        enter, create, send = Step.enter, Step.create, Conversation.send

        def entering(step: Step, state: State) -> None:
            before = step.live.state
            enter(step, state)
            if before is not state:
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
        logs.draw_log(seed, LENGTH)


def time_passes(talk: Conversation, duration_ms: int, *living: str) -> None:
    """These members heartbeat, the others are not heard."""
    talk.tick()
    for _ in range(duration_ms // 1_000):
        talk.tick(after_ms=1_000)
        for member in living:
            talk.send(heartbeat(member[0], 0, member))


def a_member_does_not_let_go() -> None:
    time_passes(reconciling(), 22_000, A, B, "c-t-0-6")


def the_last_one_does_not_let_go() -> None:
    """Its topic is deleted; it heartbeats on."""
    talk = told()
    talk.send(subscribe("a"))
    talk.send(topics({}))
    time_passes(talk, 22_000, A)


def one_who_owes_nothing_dies_while_another_divides() -> None:
    time_passes(halved(), 12_000, A)


def one_of_two_dies_and_what_it_had_is_given_to_a_heavier_one() -> None:
    """By `range` shares move between the living too."""
    talk = told(t=6)
    for client in "abc":
        talk.send(subscribe(client, strategy="range"))
    for _ in range(3):
        for member in list(talk.group().members.values()):
            for demand in member.demands:  # type: ignore[attr-defined]
                request = let_go(member.client, 3, member.member, demand.timer.cause)
                talk.send(request)
    time_passes(talk, 12_000, *list(talk.group().members)[:2])
    time_passes(talk, 12_000)


def the_former_owner_is_silent() -> None:
    time_passes(guarded(), 12_000, A)
    time_passes(deserted(), 12_000)


def the_last_ones_are_guarded_and_nobody_else_is_there() -> None:
    talk = stable()
    talk.send(leave("ops", A, B))
    time_passes(talk, 12_000)


def an_empty_group_is_forgotten() -> None:
    talk = empty(driving.settings(check_interval_ms=5_000))
    talk.wait(20_000)


STORIES: tuple[Callable[[], None], ...] = (
    a_member_does_not_let_go,
    the_last_one_does_not_let_go,
    one_who_owes_nothing_dies_while_another_divides,
    one_of_two_dies_and_what_it_had_is_given_to_a_heavier_one,
    the_former_owner_is_silent,
    the_last_ones_are_guarded_and_nobody_else_is_there,
    an_empty_group_is_forgotten,
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

    told_of = {(change, event) for change, events in CAUSES.items() for event in events}
    assert drawn | watch.taken == told_of


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("state", State)
def test_a_change_that_is_not_in_the_table_is_refused(before: State, state: State) -> None:
    """INV-12: the step is undone, instead of a group that nobody can lead out again."""
    at = At(0, 1, REQUESTS, 7, 1_000, 1_000, "t", 1, "r0-7")
    step = Step(ASSIGNED, "g", Group(group="g", state=before), at, context(driving.SETTINGS))

    if before is state or (before, state) in LEGAL:
        step.enter(state)
        assert step.live.state is state
    else:
        with pytest.raises(BrokenInvariant, match=f"g: {before.value} to {state.value}"):
            step.enter(state)
