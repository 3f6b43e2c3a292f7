"""INV-42, held against what a run has left: a group that broke is set aside, all others go on.

Which groups were set aside, and from which record to which, is read from the history; the answers
in the log must fit to that, and so must all other lines of the history.
"""

from dataclasses import dataclass

from coordlib.core.engine.step import SHARD_IS_FULL, SHARD_IS_TOO_LARGE
from coordlib.core.groups.group import SHARD_IS_THROTTLED
from coordlib.core.wire import api
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import ErrorCode
from tests.tools.defects import Poison
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.rules import NOT_LET_GO, QUESTIONS, clock_steps_ms
from tests.tools.simulation.strangers import NEIGHBOUR
from tests.tools.simulation.world import Violation, World

QUARANTINED, RELEASED = "GroupQuarantined", "GroupReleased"
#: They are about bytes, whatever group these name.
REJECTED = "RequestRejected"
SESSION_EXPIRED = "session expired"
#: The shard's own words, which have the same error, or keep a neighbour out.
HAS_NO_ROOM = (SHARD_IS_FULL, SHARD_IS_TOO_LARGE, SHARD_IS_THROTTLED)
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE.name


@dataclass
class Quarantine:
    """A stretch of the log during which a group was set aside; `end`: the release."""

    shard: int
    group: str
    first: int
    generation: int
    end: int | None = None

    def holds(self, each: Asked) -> bool:
        return self.first <= each.offset and (self.end is None or each.offset < self.end)


def check(world: World, evidence: Evidence) -> None:
    """Everything here; the first that is broken is raised."""
    found = quarantines(evidence)
    check_answers(world, evidence, found)
    check_time_given(world, evidence)


def quarantines(evidence: Evidence) -> list[Quarantine]:
    """All of them, in order; raises Violation for a line about a group that is set aside."""
    found: list[Quarantine] = []
    open_: dict[str, Quarantine] = {}
    for event in evidence.told:
        aside = open_.get(event.group)
        if event.type == RELEASED:
            _end(open_, aside, event)
        elif aside is not None and event.type != REJECTED:
            raise Violation(
                f"INV-42: {event.type} of {event.group} at r{event.shard}-{event.offset}, and it "
                f"was set aside at {aside.first}"
            )
        # Of our own making: a step that broke by itself is a defect, whatever it is called.
        elif event.type == QUARANTINED and event.reason != Poison.__name__:
            raise Violation(f"INV-42: {event.group} broke: {event.detail['exception']}")
        # Generation -1: a first request broke, and there is no group to set aside.
        elif event.type == QUARANTINED and event.generation >= 0:
            made = Quarantine(event.shard, event.group, event.offset, event.generation)
            open_[event.group] = made
            found.append(made)
    return found


def _end(open_: dict[str, Quarantine], aside: Quarantine | None, event: Told) -> None:
    if aside is None:
        raise Violation(f"INV-42: {event.group} was released and had not been set aside")
    if aside.generation != event.generation:
        raise Violation(
            f"INV-42: {event.group} was set aside with generation {aside.generation} and released "
            f"with {event.generation}"
        )
    aside.end = event.offset
    del open_[event.group]


def check_answers(world: World, evidence: Evidence, found: list[Quarantine]) -> None:
    """Who asks a group that is set aside is told so, and nobody else is."""
    broke = {(e.shard, e.offset) for e in evidence.told if e.type == QUARANTINED}
    of_group: dict[str, list[Quarantine]] = {}
    for each in found:
        of_group.setdefault(each.group, []).append(each)
    for asked in evidence.asked:
        group = asked.request.group
        is_home = asked.shard == shard_of(group, world.plan.shards)
        if not is_home or isinstance(asked.request, api.ReleaseQuarantine):
            continue
        is_aside = any(quarantine.holds(asked) for quarantine in of_group.get(group, ()))
        answers = evidence.answers.get(asked.coordinate, ())
        errors = [answer["error"] for answer in answers]
        if not is_aside and any(answer.get("message") in HAS_NO_ROOM for answer in answers):
            continue
        if is_aside and errors != [UNAVAILABLE]:
            raise Violation(
                f"INV-42: {asked.coordinate} was answered {errors or 'by silence'}, and "
                f"{group} was set aside"
            )
        # A first request that breaks has made no group that could be set aside.
        if not is_aside and (asked.shard, asked.offset) in broke:
            continue
        if UNAVAILABLE in errors and not is_aside:
            raise Violation(
                f"INV-42: {asked.coordinate} was told that {group} is set aside, and it is not"
            )
        if asked.request.client == NEIGHBOUR and not is_aside and errors != ["NONE"]:
            raise Violation(f"INV-42: {group} did not go on: {asked.coordinate} heard {errors}")


def check_time_given(world: World, evidence: Evidence) -> None:
    """Nobody could be heard while the group was set aside: its release gives full time again."""
    plan, released = world.plan, None
    for event in evidence.told:
        if event.group != evidence.group:
            continue
        if event.type == RELEASED:
            released = event
        elif released is not None and event.type == "MemberRemoved":
            if event.reason == SESSION_EXPIRED:
                least_ms = plan.session_timeout_ms
            elif event.reason in (*QUESTIONS, NOT_LET_GO):
                least_ms = plan.rebalance_timeout_ms
            else:
                continue
            given_ms = evidence.taken_ms(event.shard, event.offset) - evidence.taken_ms(
                released.shard, released.offset
            )
            if given_ms < least_ms - clock_steps_ms(world) - 1:
                raise Violation(
                    f"INV-42: {event.member} {event.reason} {given_ms} ms after the release of "
                    f"its group, and had {least_ms} ms"
                )
