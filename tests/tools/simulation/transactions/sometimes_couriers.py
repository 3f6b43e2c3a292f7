"""Situations of couriers that a campaign must have met; see `../sometimes.py`."""

from typing import Final

from msgspec import UNSET

from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Txn
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.transactions.abroad import FarRecord
from tests.tools.simulation.transactions.courier import POINTS
from tests.tools.simulation.transactions.couriers import (
    AWAY,
    READER_AGAIN,
    RECORD_AGAIN,
    WORD_AGAIN,
)
from tests.tools.simulation.world import World

#: What the coordinator decides: result and reason -> the situation.
_DECIDED: Final = {
    ("commit", "client"): "courier's transaction committed",
    ("abort", "client"): "courier's transaction aborted",
    ("abort", "timeout"): "courier's transaction timed out",
    ("abort", "fenced"): "courier's transaction ended by its successor",
}
_BY_SUCCESSOR: Final = "marker written by a successor"
_TWICE: Final = "marker written twice"
_LATE: Final = "courier's record behind its marker"
_ASKED: Final = "reader abroad asks the coordinator"
#: What traps and faults have counted.
_SPRUNG: Final = {
    **{f"courier struck at {point}": point for point in POINTS},
    **{name: name for name in (AWAY, WORD_AGAIN, RECORD_AGAIN, READER_AGAIN)},
}
SITUATIONS: Final = (
    *_SPRUNG,
    *_DECIDED.values(),
    *(_BY_SUCCESSOR, _TWICE, _LATE, _ASKED),
)


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    couriers = world.couriers
    if couriers is None:
        return
    for name, point in _SPRUNG.items():
        found[name] += couriers.traps.sprung[point]
    for log in couriers.far.logs:
        _from_log(found, log)
    for event in evidence.told:
        if event.type == "TransactionPrepared":
            decided = _DECIDED.get((event.detail["result"], event.reason))
            if decided is not None:  # an operator's, which no world has
                found[decided] += 1
    found[_ASKED] += sum(isinstance(e.request, api.DescribeTransaction) for e in evidence.asked)


def _from_log(found: dict[str, int], log: list[FarRecord]) -> None:
    """What couriers have written; copies are counted where they are made."""
    marked: set[Txn] = set()
    for said in (record.said for record in log if record.repeats < 0):
        if isinstance(said, Marker):
            found[_BY_SUCCESSOR] += said.n is UNSET
            found[_TWICE] += said.txn in marked
            marked.add(said.txn)
        elif said is not None:
            found[_LATE] += said.txn in marked
