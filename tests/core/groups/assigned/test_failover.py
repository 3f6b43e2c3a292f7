"""A coordinator that fails in the middle of a rebalance: the next one goes on as if nothing was.

Seed 000 names five phases and says for each how the new co-ordinator finds out what is due. Here
the state and what was said are one transaction, so there is nothing to find out.
"""

import re

import pytest

from coordlib.core.groups.assigned.group import State
from tests.tools.assigned_groups import group_of, subscribe
from tests.tools.transcript import Session

#: The seed's phases, in records: what begins a rebalance, what members are told and answer to it,
#: and what they say in the new generation.
PHASES = (
    "topics t=4",
    "a subscribe",
    "tick",
    "b subscribe topics=t,u",
    "+500 a heartbeat",
    "c subscribe",
    "tick",
    "topics t=5 u=2",
    "a lets-go t/2=7",
    "tick published=4",
    "+900 b heartbeat",
    "d subscribe pattern=.* exclude=u",
    "ops leave member=c-t-0-5",
    "c heartbeat",
    "c leave",
    "a commit t/0=3",
    "b commit u/0=4 t/1=1",
    "tick",
    "b leave",
    "topics t=5",
    "tick",
    "b fetch",
    "a describe",
)
ONCE_PER_BATCH = ("saved", "progress")
#: From when somebody wants the topics: those that nobody wants are told again by the driver.
PLACES = range(1, len(PHASES))
#: Sessions begin anew when a shard is rebuilt (rule 4).
_OF_SESSIONS = re.compile(r" wait_ms=\d+")


def said(failure: str, places: set[int]) -> list[str]:
    """All that is said when the coordinator fails behind these records."""
    session = Session()
    lines = []
    for number, command in enumerate(PHASES):
        lines += session.run(command)
        if number in places:
            lines += session.run(failure)
    return [_OF_SESSIONS.sub("", line) for line in lines if not line.startswith(ONCE_PER_BATCH)]


@pytest.mark.parametrize("failure", ["batch", "rebuild"])
@pytest.mark.parametrize("place", PLACES)
def test_a_failure_behind_any_record_shows_nowhere(failure: str, place: int) -> None:
    """`batch`: the state is read from the checkpoint; `rebuild`: from the compacted topics."""
    assert said(failure, {place}) == said(failure, set())


@pytest.mark.parametrize("failure", ["batch", "rebuild"])
def test_a_coordinator_that_fails_behind_every_record_shows_nowhere(failure: str) -> None:
    """It comes up, judges one record, and is lost again."""
    assert said(failure, set(PLACES)) == said(failure, set())


def test_the_story_goes_through_all_phases() -> None:
    """A story in which nothing moves would prove nothing."""
    told = "\n".join(said("batch", set()))

    for event in ("ReleaseDemanded", "GroupSettled", "HandOverDelayed", "topics changed"):
        assert event in told
    assert "Quarantined" not in told


def test_a_topic_that_only_the_lost_checkpoint_knew_comes_back_with_the_driver() -> None:
    """The compacted topics tell what groups divide; the driver tells of the other topics again."""
    session = Session()
    for command in ("topics t=1 u=1", "a subscribe", "rebuild", "a resubscribe topics=t,u"):
        session.run(command)
    assert group_of(session.talk).topics == {"t": 1}

    session.run("topics t=1 u=1")

    assert group_of(session.talk).topics == {"t": 1, "u": 1}
    assert group_of(session.talk).state is State.STABLE


def test_a_deadline_that_runs_is_kept_and_sessions_begin_anew() -> None:
    """Rule 4: nobody knows any more who was heard when; what somebody owes is written down."""
    session = Session()
    session.talk.send(subscribe("a", "x", group="h"))
    for command in ("topics t=2", "a subscribe", "tick", "b subscribe", "tick"):
        session.run(command)
    for _ in range(9):
        session.run("+2000 a heartbeat")
        session.run("+0 b heartbeat")
    session.run("rebuild")

    lines = session.run("+2000 a heartbeat")

    assert [line for line in lines if "did not let go in time" in line]
    assert not [line for line in lines if "session expired" in line]
