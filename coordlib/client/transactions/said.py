"""What a transactional id has asked its coordinator, and what it has said of its transaction."""

from dataclasses import dataclass, field

from coordlib.client.transactions.unmarked import Place
from coordlib.core.wire import requests as rq
from coordlib.core.wire.producers import Result


@dataclass(slots=True)
class Question:
    """A request to the coordinator, until its last answer."""

    request: rq.Request
    #: When to send it; None: sent, and waiting for the answer.
    send_ms: int | None
    #: Whether it is sent earlier, as soon as the transaction before has ended.
    waits_for_end: bool = False
    attempt: int = 0


@dataclass(slots=True)
class Transaction:
    """What belongs to the open transaction."""

    #: Records of each partition.
    counts: dict[Place, int] = field(default_factory=dict)
    #: Partitions of which the coordinator is not told yet, in order.
    new: dict[Place, None] = field(default_factory=dict)
    #: Those of which it was, and those of which it has said so.
    named: set[Place] = field(default_factory=set)
    added: set[Place] = field(default_factory=set)
    commits: int = 0
    accepted: int = 0
    #: Whether the coordinator may have begun it; it does not while the one before is not over.
    may_be_begun: bool = False
    #: What EndTxn asks; None: it was not asked.
    result: Result | None = None
    is_decided: bool = False
    is_over: bool = False
