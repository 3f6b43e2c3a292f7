"""Situations of Delta tables that decide which a campaign must have met; see `../sometimes.py`."""

from typing import Any, Final

from coordlib.client.kit.requests import offset_of
from coordlib.core.wire import api
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.lake import table
from tests.tools.simulation.lake.faults import POINTS
from tests.tools.simulation.lake.member import GROUP
from tests.tools.simulation.world import World

#: Result of a decision -> the situation, where its sender has not written the batch.
_BY_OTHERS: Final = {
    "commit": "batch in doubt found in the table",
    "abort": "batch in doubt not found in the table",
}
_OWN: Final = {
    "commit": "batch and its offsets committed",
    "abort": "batch given up by its own writer",
}
_REFUSED: Final = "offsets of a batch refused"
_TOO_LATE: Final = "word about a batch came too late"
SITUATIONS: Final = (
    *(f"lake member struck at {point}" for point in POINTS),
    *_BY_OTHERS.values(),
    *_OWN.values(),
    _REFUSED,
    _TOO_LATE,
    table.CONFLICT,
    table.CLAIM_LATE,
    table.FAILED,
    table.FAILED_BEHIND,
    table.AWAY,
    table.ANOTHER,
    table.OLD_COPY,
)


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    lake = world.lake
    if lake is None:
        return
    for name, times in lake.store.met.items():
        found[name] += times
    for point, times in lake.traps.sprung.items():
        found[f"lake member struck at {point}"] += times
    senders: dict[int, str] = {}
    for each in evidence.asked:
        if each.request.group == GROUP:
            for answer in evidence.answers.get(each.coordinate, ()):
                _from_answer(found, each.request, answer, senders)


def _from_answer(
    found: dict[str, int], request: api.Request, answer: dict[str, Any], senders: dict[int, str]
) -> None:
    """`senders`: token of an entry -> the member that has sent it."""
    is_taken = answer["error"] == "NONE"
    if isinstance(request, api.PendingCommit):
        found[_REFUSED] += not is_taken
        if is_taken:
            senders[offset_of(answer["pending"])] = request.member
    elif isinstance(request, api.DecidePending):
        found[_TOO_LATE] += answer["error"] == "INVALID_TXN_STATE"
        if is_taken:
            is_own = senders.get(offset_of(request.pending)) == request.member
            found[(_OWN if is_own else _BY_OTHERS)[request.result]] += 1
