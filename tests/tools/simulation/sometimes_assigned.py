"""Situations of server-assigned groups that a campaign must have met; see `sometimes.py`."""

from typing import Final

from tests.tools.simulation.evidence import Evidence, Told
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.rules import NOT_LET_GO
from tests.tools.simulation.world import GROUP, World

SITUATIONS: Final = (
    "hand-over under way when a driver ended",
    "demand open while its member was fenced",
    "topics changed during a hand-over",
    "member removed that did not let go",
    "former owner guarded",
    "kind changed",
    "offsets committed by a Release",
    "subscription changed during a hand-over",
)
#: They end a hand-over: nobody owes anything any more.
_OVER: Final = ("GroupSettled", "GroupEmptied", "GroupKindChanged")


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    events = [event for event in evidence.told if event.group == GROUP]
    found["kind changed"] += sum(event.type == "GroupKindChanged" for event in events)
    assigned = [event for event in events if event.kind == ASSIGNED]
    is_open = False
    for event in assigned:
        if event.type == "GenerationStarted" and is_open:
            found["topics changed during a hand-over"] += event.reason == "topics changed"
            changed = event.reason == "subscription changed"
            found["subscription changed during a hand-over"] += changed
        is_open = event.type == "ReleaseDemanded" or (is_open and event.type not in _OVER)
        found["member removed that did not let go"] += event.reason == NOT_LET_GO
        found["former owner guarded"] += event.type == "HandOverDelayed"
        found["offsets committed by a Release"] += _is_by_release(event, evidence)
    _from_times(found, world, assigned)


def _is_by_release(event: Told, evidence: Evidence) -> bool:
    return event.type == "OffsetsCommitted" and event.offset in evidence.releases


def _from_times(found: dict[str, int], world: World, events: list[Told]) -> None:
    """What was broken while a demand was open, by true time."""
    lines = [line for line in world.history if line.what in ("driver ended", "lost")]
    for member, from_ms, to_ms in _open_demands(events, world.scheduler.now_ms):
        for line in lines:
            if from_ms <= line.t_ms <= to_ms:
                ended = line.what == "driver ended"
                found["hand-over under way when a driver ended"] += ended
                is_fenced = line.what == "lost" and member.startswith(f"{line.member}-")
                found["demand open while its member was fenced"] += is_fenced


def _open_demands(events: list[Told], now_ms: int) -> list[tuple[str, int, int]]:
    """Each member that owed something, from when to when."""
    open_ms: dict[str, int] = {}
    found = []
    for event in events:
        at_ms, member = event.record.true_ms, event.member
        if event.type == "ReleaseDemanded":
            open_ms.setdefault(member, at_ms)
        elif event.type in ("MemberRemoved", "AssignmentIssued") and member in open_ms:
            found.append((member, open_ms.pop(member), at_ms))
        elif event.type in _OVER:
            found += [(name, from_ms, at_ms) for name, from_ms in open_ms.items()]
            open_ms.clear()
    return found + [(name, from_ms, now_ms) for name, from_ms in open_ms.items()]
