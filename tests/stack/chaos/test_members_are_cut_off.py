"""A member that is suspended, or hears nothing any more: it stops by itself, others take over."""

from typing import Final

import pytest

from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, TOLD, Scene
from tests.stack.crew import Crew, Place
from tests.stack.flow import Flow
from tests.stack.truths import holds
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack

NAMES: Final = ("a", "b", "c")
VICTIM: Final = "a"
OTHERS: Final = ("b", "c")
REBALANCE_MS: Final = 10_000
NS_PER_MS: Final = 1_000_000


@pytest.mark.chaos
def test_who_wakes_up_in_the_middle_of_its_work_touches_nothing_any_more(
    crew: Crew, flow: Flow, wire: Wire, group: str, tell: Tell
) -> None:
    """A process is stopped for longer than its session, with a record in its hands (F-05). When it
    goes on, another one has worked on that record long since: it must find out by itself, before it
    acts, and nobody takes its commit.  # INV-21  # INV-57"""
    crew.start(*NAMES)
    flow.begin()
    crew.until_shared(flow.places, *NAMES)
    crew[VICTIM].work.touch()
    (working,) = crew.until("it is in the middle", lambda: crew[VICTIM].told("working"))
    place = working["topic"], working["partition"]
    victim, generation = crew[VICTIM].member, crew[VICTIM].generation
    mark = crew[VICTIM].mark()
    crew.suspend(VICTIM)
    crew.until_shared(flow.places, *OTHERS)
    _until_worked_on(crew, place, working["offset"])

    crew[VICTIM].work.unlink()
    crew.resume(VICTIM)
    crew.until("it gives up", lambda: crew[VICTIM].told("gave_up"))
    told = crew[VICTIM].since(mark, "record", "refused", "gave_up", *TOLD)
    assert [line["what"] for line in told[:3]] == ["refused", "lost", "gave_up"]
    assert told[0]["code"] == "ILLEGAL_GENERATION", "by its own fence, before it asks anybody"
    late = {"topic": place[0], "partition": place[1], "offset": working["offset"] + 1}
    request = {"member": victim, "generation": generation, "offsets": [late]}
    answer = wire.answer(wire.send("OffsetCommit", group, **request))
    assert answer["error"] == "UNKNOWN_MEMBER_ID", answer

    crew.until_shared(flow.places, *NAMES)
    (removed,) = wire.events(group, "MemberRemoved")
    assert (removed["member"], removed["reason"]) == (victim, "session expired")
    holds(crew, flow, wire, group)
    tell("refused by its own fence, lost, gave up, then rejoined; its late commit was refused")


def _until_worked_on(crew: Crew, place: Place, offset: int) -> None:
    def is_worked_on() -> bool:
        return any(
            (each.place, each.offset) == (place, offset)
            for name in OTHERS
            for each in crew[name].readings
        )

    crew.until("its record is worked on by another", is_worked_on)


@pytest.mark.fault
@pytest.mark.chaos
def test_who_hears_nothing_stops_itself_and_falls_silent(scene: Scene, tell: Tell) -> None:
    """A member's heartbeats are taken all along, but it cannot be told anything (rule 9). Others
    may have its partitions only when it has stopped, and must get them although it seems alive."""
    scene.start_job()
    timing = {"max__poll__interval__ms": REBALANCE_MS}
    scene.crew_works(*NAMES, may_be_deaf=True, **timing)
    victim = scene.crew[VICTIM]
    mark = victim.mark()
    scene.note("fault", f"{VICTIM} hears nothing")
    since_ns = scene.crew.faults[-1][0]
    victim.deaf.touch()
    scene.crew.until("it has lost all", lambda: victim.since(mark, "lost"))
    stopped_ns = victim.readings[-1].at_ns
    scene.crew.until_shared(scene.flow.places, *OTHERS)

    # By its own clock: a reading that ended when it went deaf was asked for before that. The margin
    # is for the moment between its looking at that clock and its writing down what it did.
    assert stopped_ns - since_ns <= REBALANCE_MS * NS_PER_MS
    assert scene.expelled(GROUP) == ["session expired"]
    victim.deaf.unlink()
    scene.note("healed", f"{VICTIM} hears again")
    scene.crew.until_shared(scene.flow.places, *NAMES)
    worked_s = (stopped_ns - since_ns) / 1e9
    tell(f"worked on for {worked_s:.1f} s, must not be over 10 s: {scene.ends_well()}")
