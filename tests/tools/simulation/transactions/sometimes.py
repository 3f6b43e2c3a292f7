"""Situations of transactions that a campaign must have met; see `../sometimes.py`."""

from typing import Any, Final

from coordlib.core.wire import api
from coordlib.core.wire.offsets import COORDINATOR
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.transactions.checks import UNSTABLE
from tests.tools.simulation.transactions.copying import GROUP
from tests.tools.simulation.transactions.producer import POINTS
from tests.tools.simulation.transactions.tellers import OUTCOMES, WORD_AGAIN
from tests.tools.simulation.world import World

#: What becomes of transactions, as their producers count it.
_ENDS: Final = {
    "committed": "users' transaction committed",
    "aborted": "users' transaction aborted",
    "empty": "users' transaction without a record",
}
#: What the coordinator decides about tellers' transactions: result and reason -> the situation.
_DECIDED: Final = {
    ("commit", "client"): "teller's transaction committed",
    ("abort", "client"): "teller's transaction aborted",
    ("abort", "timeout"): "teller's transaction timed out",
    ("abort", "fenced"): "teller's transaction ended by a newer process",
}
_OVER_SHARDS: Final = "teller's transaction told to several shards"
#: What fails of the driver's looks.
_LOOKS: Final = ("question failed", "look failed", "look was short")
SITUATIONS: Final = (
    *(f"copier struck at {point}" for point in POINTS),
    *_ENDS.values(),
    *_LOOKS,
    *_DECIDED.values(),
    _OVER_SHARDS,
    WORD_AGAIN,
    "rebuilt while offsets wait",
    "offsets of a transaction dropped",
    "offsets of a transaction refused",
    "decision of a group that is set aside",
    "fetch waits for a decision",
    "fetch goes on after a commit",
    "end of a transaction unknown to its process",
)


def count(found: dict[str, int], world: World, evidence: Evidence) -> None:
    """Add what a run has met."""
    copying = world.copying
    if copying is None:
        return
    for name, times in (*copying.met.items(), *copying.tellers.met.items()):
        found[name] += times
    for outcome, name in _ENDS.items():
        found[name] += copying.habits.counts.get(outcome, 0)
    for name in _LOOKS:
        found[name] += copying.faults.counts.get(name, 0)
    _from_lines(found, world)
    _from_log(found, evidence)
    _from_decisions(found, evidence)


def _from_decisions(found: dict[str, int], evidence: Evidence) -> None:
    told: dict[str, set[int]] = {}
    for event in evidence.told:
        if event.type == "TransactionPrepared":
            name = _DECIDED.get((event.detail["result"], event.reason))
            if name is not None:  # an operator's, which no world has
                found[name] += 1
        elif event.type in OUTCOMES and event.detail.get("decided_by") == COORDINATOR:
            told.setdefault(event.detail["transaction"], set()).add(event.shard)
    found[_OVER_SHARDS] += sum(len(shards) > 1 for shards in told.values())


def _from_lines(found: dict[str, int], world: World) -> None:
    newest: dict[str, str] = {}
    for line in world.history:
        if line.transaction and line.what == "ended":
            newest[line.transaction] = line.detail
    found["end of a transaction unknown to its process"] += sum(
        how == "unknown" for how in newest.values()
    )


def _from_log(found: dict[str, int], evidence: Evidence) -> None:
    released: set[tuple[int, int]] = set()
    for event in evidence.told:
        if event.group == GROUP:
            at = event.shard, event.offset
            released |= {at} if event.type == "GroupReleased" else set()
            is_decided = event.type in ("OffsetsCommitted", "OffsetsDropped")
            found["offsets of a transaction dropped"] += event.type == "OffsetsDropped"
            found["decision of a group that is set aside"] += is_decided and at in released
    waited: set[str] = set()
    for each in evidence.asked:
        if each.request.group == GROUP:
            for answer in evidence.answers.get(each.coordinate, ()):
                _from_answer(found, each.request, answer, waited)


def _from_answer(
    found: dict[str, int], request: api.Request, answer: dict[str, Any], waited: set[str]
) -> None:
    """`waited`: copiers whose newest fetch was told to wait."""
    if isinstance(request, api.PendingCommit):
        found["offsets of a transaction refused"] += answer["error"] != "NONE"
    elif isinstance(request, api.OffsetFetch):
        errors = {row["error"] for row in answer.get("offsets") or ()}
        found["fetch waits for a decision"] += UNSTABLE in errors
        found["fetch goes on after a commit"] += request.client in waited and errors == {"NONE"}
        waited.discard(request.client)
        if UNSTABLE in errors:
            waited.add(request.client)
