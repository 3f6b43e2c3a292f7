"""Producers that the coordinator has given, read from the log and its answers a second time.

Whose a producer id is, and that of an id only the newest producer changes anything, follows from
requests and answers alone: no state of the coordinator is looked at.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from coordlib.core.wire import transactions as pr
from tests.tools.simulation.evidence import Asked, Told
from tests.tools.simulation.violation import Violation

Producer = tuple[int, int]
#: Who calls for these is the request that stands there; a timeout is the clock's.
_CHANGES: Final = ("TransactionStarted", "TransactionPrepared")
_TIMEOUT: Final = "timeout"
_GIVE: Final = (pr.InitProducerId, pr.EndTxn)


class Given:
    """What was given up to a record of the log, of each transactional id."""

    def __init__(self) -> None:
        #: Producer id -> its transactional id; None: of a producer without one.
        self._ids: dict[int, str | None] = {}
        self._clients: dict[Producer, str] = {}
        self._newest: dict[str, Producer] = {}
        #: The newest that InitProducerId has given: it fences all that are older.
        self._fence: dict[str, Producer] = {}

    def check_named(self, each: Asked, answers: list[dict[str, Any]], changes: str) -> None:
        """INV-94: who names an older producer is refused, and nothing comes of it.

        Args:
            changes: a line of history about what the request did; empty: there is none.
        """
        named, request = producer_of(each), each.request
        fence = self._fence.get(request.group or "")
        if named is None or fence is None or named >= fence:
            return
        is_question = isinstance(request, pr.InitProducerId)  # it may have missed its answer
        is_refused = bool(answers) and all(answer["error"] != "NONE" for answer in answers)
        if changes or not (is_refused or is_question):
            told = changes or "no refusal"
            raise Violation(
                f"INV-94: {each.coordinate} names {named} of {request.group}, which {fence} has "
                f"fenced, and there is {told}"
            )

    def give(self, each: Asked, answer: Mapping[str, Any]) -> None:
        """INV-98: a producer id is of one transactional id, an epoch of one client; both rise."""
        name, producer = each.request.group, (answer["producer_id"], answer["epoch"])
        if self._ids.setdefault(producer[0], name) != name or (
            name is None and producer in self._clients
        ):
            raise Violation(f"INV-98: {each.coordinate} was given {producer}, which is another's")
        if self._clients.setdefault(producer, each.request.client) != each.request.client:
            raise Violation(
                f"INV-98: {each.coordinate} was given {producer} of {self._clients[producer]}"
            )
        if name is None:
            return
        if producer < self._newest.get(name, producer):
            raise Violation(
                f"INV-98: {each.coordinate} was given {producer} behind {self._newest[name]}"
            )
        self._newest[name] = producer
        if isinstance(each.request, pr.InitProducerId):
            self._fence[name] = producer


def producer_of(each: Asked) -> Producer | None:
    """Which producer a request names, where only the newest one may do what it asks for.

    Anybody may say that the markers of an older transaction are written.
    """
    match each.request:
        case pr.TxnMarkersWritten():
            return None
        case pr.TransactionRequest() as request:
            return request.producer_id, request.epoch
        case pr.InitProducerId(producer_id=int(p), epoch=int(e)):
            return p, e
    return None


def check(
    asked: Iterable[Asked], answers: Mapping[str, list[dict[str, Any]]], told: Iterable[Told]
) -> None:
    """INV-94, INV-98, record by record; an id has all of its requests in one shard."""
    changes = {
        (event.shard, event.offset): event.type
        for event in told
        if event.type in _CHANGES and event.reason != _TIMEOUT
    }
    given = Given()
    for each in asked:
        if not isinstance(each.request, pr.ProducerRequest):
            continue
        said = answers.get(each.coordinate, [])
        given.check_named(each, said, changes.get((each.shard, each.offset), ""))
        if isinstance(each.request, _GIVE) and said and said[0]["error"] == "NONE":
            given.give(each, said[0])
