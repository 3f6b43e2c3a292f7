"""Static members (KIP-345) in processes of their own, over a real broker and Spark job."""

from typing import Any, Final

import pytest

from tests.stack.crew import Crew, Place
from tests.stack.flow import Flow
from tests.stack.truths import (
    ends_are_committed,
    generations,
    holds,
    last_sign_of_life_ms,
    read_twice,
)
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack

TOLD: Final = ("assigned", "revoking", "revoked", "lost", "failed")
TILL: Final = {"group__instance__id": "till-1"}
OTHER: Final = {"group__instance__id": "till-2"}
#: Long enough for a process that is ready to connect, also on a machine that does much else.
SESSION_MS: Final = 8_000


class Shop:
    """Two static members, `till` and `other`, that read; and a twin that is ready to be let in."""

    def __init__(self, crew: Crew, flow: Flow, wire: Wire, group: str, session_ms: int) -> None:
        self.crew, self.wire, self.group = crew, wire, group
        timing = {"session__timeout__ms": session_ms, "partition__assignment__strategy": "range"}
        crew.start("till", **TILL, **timing)
        crew.start("other", **OTHER, **timing)
        crew.start("twin", waits=True, **TILL, **timing)
        flow.begin()
        crew.until_shared(flow.places, "till", "other")
        crew.until("both read", lambda: crew["till"].readings and crew["other"].readings)
        crew.until("the twin is ready", lambda: crew["twin"].told("ready"))
        self.shared: set[Place] = set(crew["till"].owned)
        self._mark, self._generations = crew["other"].mark(), len(generations(wire, group))

    def let_the_twin_in(self) -> None:
        self.crew["twin"].wait.unlink()

    def until_the_twin_has_it(self) -> Any:
        """Wait until it owns what `till` had; the event by which it was given."""
        twin = self.crew["twin"]
        self.crew.until("the twin owns", lambda: set(twin.owned) == self.shared)
        seen = len(twin.readings)
        self.crew.until("the twin reads", lambda: len(twin.readings) > seen)
        return self.wire.event(self.group, "AssignmentIssued", member=twin.member)

    def nobody_else_noticed(self) -> None:
        """The other process was told nothing, and there was no rebalance."""
        other, twin = self.crew["other"], self.crew["twin"]
        seen = len(other.readings)
        self.crew.until("the other one reads on", lambda: len(other.readings) > seen)
        assert not other.since(self._mark, *TOLD)
        assert len(generations(self.wire, self.group)) == self._generations
        assert twin.generation == other.generation
        assert [line["what"] for line in twin.since(0, *TOLD)] == ["assigned"]


def test_a_clean_restart_costs_no_rebalance(crew: Crew, flow: Flow, wire: Wire, group: str) -> None:
    """A rolling restart: each process says that it has stopped, and its next start takes its place
    and its partitions at once."""
    shop = Shop(crew, flow, wire, group, session_ms=60_000)
    crew.stop("till")
    shop.let_the_twin_in()

    given = shop.until_the_twin_has_it()

    assert not given["cause"].startswith("deadline"), "it need not wait for anybody's session"
    shop.nobody_else_noticed()
    holds(crew, flow, wire, group)
    assert not read_twice(crew)


@pytest.mark.chaos
def test_the_twin_of_one_that_was_killed_waits_until_that_one_must_have_stopped(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """A supervisor starts a killed process again at once. To the coordinator the old one may only
    be out of reach, and still at work."""
    shop = Shop(crew, flow, wire, group, SESSION_MS)
    crew.kill("till")
    shop.let_the_twin_in()

    given = shop.until_the_twin_has_it()

    killed = crew["till"].member
    assert given["cause"] == f"deadline:guard:{killed}"
    assert given["time_ms"] >= last_sign_of_life_ms(wire, group, killed) + SESSION_MS
    shop.nobody_else_noticed()
    holds(crew, flow, wire, group)
    assert {place for place, _ in read_twice(crew)} <= shop.shared


@pytest.mark.chaos
def test_one_that_was_suspended_finds_its_twin_at_work_and_stops(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """A virtual machine is suspended; an operator starts its replacement; then it wakes up, in the
    belief that no time has passed."""
    shop = Shop(crew, flow, wire, group, SESSION_MS)
    till = crew["till"]
    ends_are_committed(crew, flow, wire, group)
    crew.suspend("till")
    crew.read_on()
    mark, generation = till.mark(), till.generation
    shop.let_the_twin_in()
    flow.begin()
    given = shop.until_the_twin_has_it()
    assert given["cause"] == f"deadline:guard:{till.member}"
    assert given["time_ms"] >= last_sign_of_life_ms(wire, group, till.member) + SESSION_MS

    crew.resume("till")

    assert crew.ended("till") == 1
    assert [line["what"] for line in till.since(mark, "record", *TOLD)] == ["lost", "failed"]
    assert till.told("lost")[0]["partitions"] == [list(place) for place in sorted(shop.shared)]
    assert till.told("failed")[0]["code"] == "FENCED_INSTANCE_ID"
    assert [line["code"] for line in till.since(mark, "refused")] == ["FENCED_INSTANCE_ID"]
    by_hand = {"generation": generation, "member": till.member, "instance": "till-1"}
    row = {"topic": flow.topic, "partition": 0, "offset": 0}
    answer = wire.answer(wire.send("OffsetCommit", group, "till", **by_hand, offsets=[row]))
    assert answer["error"] == "FENCED_INSTANCE_ID"
    shop.nobody_else_noticed()
    holds(crew, flow, wire, group)
    assert not read_twice(crew)


@pytest.mark.chaos
def test_of_two_living_twins_the_newer_stays(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """A deployment starts the new process before it stops the old one. The old one hears of it,
    stops and says so, and the new one need not wait any longer."""
    shop = Shop(crew, flow, wire, group, session_ms=60_000)
    shop.let_the_twin_in()

    assert crew.ended("till") == 1

    till = crew["till"]
    assert [line["what"] for line in till.since(0, *TOLD)][-2:] == ["lost", "failed"]
    assert till.told("failed")[0]["code"] == "FENCED_INSTANCE_ID"
    given = shop.until_the_twin_has_it()
    assert not given["cause"].startswith("deadline")
    shop.nobody_else_noticed()
    holds(crew, flow, wire, group)
    assert {place for place, _ in read_twice(crew)} <= shop.shared
