"""INV-94 and INV-98 in simulated worlds: a log in which a producer is given wrongly is seen."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordlib.core.wire import api
from tests.tools import producers as p
from tests.tools.simulation.evidence import Asked, Told
from tests.tools.simulation.transactions import given
from tests.tools.simulation.violation import Violation

Answer = dict[str, Any]


def producers(
    *log: tuple[api.Request, Answer | None], events: dict[int, str] | None = None
) -> None:
    """Check requests, each with its answer, in one shard."""
    requests = [Asked(0, offset, offset, request) for offset, (request, _) in enumerate(log)]
    answers = {f"r0-{offset}": [each] for offset, (_, each) in enumerate(log) if each is not None}
    told = [
        cast(Told, SimpleNamespace(shard=0, offset=at, type=t, reason="client"))
        for at, t in (events or {}).items()
    ]
    given.check(requests, answers, told)


def given_to(producer_id: int, epoch: int) -> Answer:
    return {"error": "NONE", "producer_id": producer_id, "epoch": epoch}


FENCED: Answer = {"error": "PRODUCER_FENCED"}
#: A begins and commits; b takes over.
TAKEN_OVER: tuple[tuple[api.Request, Answer | None], ...] = (
    (p.init(), given_to(0, 0)),
    (p.offsets(0, 0), None),  # its group's shard has answered
    (p.end(0, 0), given_to(0, 1)),
    (p.end(0, 0), given_to(0, 1)),
    (p.init(client="b"), given_to(0, 2)),
)


def test_a_producer_that_was_taken_over_and_is_refused_passes() -> None:
    """What follows finds something in a log that differs from this one alone."""
    producers(
        *TAKEN_OVER,
        (p.end(0, 1), FENCED),
        (p.offsets(0, 1), FENCED),
        (p.init(0, 1), FENCED),
        (p.written(0, 0), {"error": "NONE"}),
        (p.offsets(0, 2, client="b"), None),
        (p.end(0, 2, client="b"), given_to(10, 0)),  # its epochs are used up
        (p.init(10, 0, client="b"), given_to(10, 1)),
        (p.init(10, 0, client="b"), given_to(10, 1)),  # the answer was lost
        events={1: "TransactionStarted", 2: "TransactionPrepared", 10: "TransactionPrepared"},
    )


@pytest.mark.parametrize(
    ("request_", "answer", "change"),
    [
        pytest.param(p.end(0, 1), given_to(0, 3), "", id="a zombie ends"),
        pytest.param(p.add(0, 1), {"error": "NONE"}, "", id="a zombie adds a partition"),
        pytest.param(p.offsets(0, 1), None, "", id="a zombie's offsets are sent on"),
        pytest.param(p.end(0, 1), FENCED, "TransactionPrepared", id="refused, and ended"),
        pytest.param(
            p.init(0, 1),
            {"error": "CONCURRENT_TRANSACTIONS"},
            "TransactionPrepared",
            id="a zombie's question ends the successor's transaction",
        ),
    ],
)
def test_an_older_producer_that_changes_something_is_seen(
    request_: api.Request, answer: Answer | None, change: str
) -> None:
    """INV-94."""
    with pytest.raises(Violation, match="INV-94"):
        producers(*TAKEN_OVER, (request_, answer), events={5: change} if change else None)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(p.init(client="c"), given_to(0, 2), id="one epoch for two processes"),
        pytest.param(p.init(client="c"), given_to(0, 1), id="an epoch falls"),
        pytest.param(p.init(client="c", group="other"), given_to(0, 3), id="of another id"),
        pytest.param(p.init(client="c", group=None), given_to(0, 3), id="of no id"),
    ],
)
def test_a_producer_that_is_given_twice_is_seen(request_: api.Request, answer: Answer) -> None:
    """INV-98."""
    with pytest.raises(Violation, match="INV-98"):
        producers(*TAKEN_OVER, (request_, answer))


def test_an_epoch_that_falls_for_the_same_process_is_seen() -> None:
    """INV-98: its coordinator has forgotten the newest one."""
    with pytest.raises(Violation, match="INV-98"):
        producers(
            *TAKEN_OVER,
            (p.end(0, 2, client="b"), given_to(0, 3)),
            (p.init(0, 2, client="b"), given_to(0, 2)),
        )
