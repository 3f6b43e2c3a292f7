"""A courier that is a member of no group, and keeps its positions in one without members.

It does by hand what `exactly_once` does for a member. Another process of its transactional id
fences it, and begins at the positions that the group has when nothing waits any more.
"""

from contextlib import suppress
from functools import partial
from typing import Final

from coordlib.client import CoordinatedProducer
from coordlib.client.kit import events as sg
from coordlib.client.kit.offsets import GroupMetadata
from coordlib.client.kit.transport import NoFence, identity_at
from coordlib.core.wire import api
from coordlib.errors import CoordError
from tests.tools.simulation.transactions.copier import BREAK_MS, HASTE, PATIENCE_S
from tests.tools.simulation.transactions.courier import MAIL, Courier, CourierTransport

LONERS: Final = "loners"
ASK_AGAIN_MS: Final = 5_000
LATER_MS: Final = 500
Positions = dict[int, int]


class _Question(NoFence):
    """A transport's handler that asks for positions once, and waits for the answer."""

    def __init__(self, transport: CourierTransport, client: str) -> None:
        self.identity = identity_at(transport, LONERS, client)
        self.positions: Positions | None = None
        self.is_answered = False
        self.request = api.OffsetFetch(
            v=1,
            id=f"{self.identity.token}-1",
            client=client,
            group=LONERS,
            reply=transport.reply,
            require_stable=True,
        )

    def feed(self, event: sg.Input) -> None:
        if isinstance(event, sg.Received) and isinstance(event.message, api.OffsetFetchResponse):
            answer = event.message
            if answer.id == self.request.id:
                self.is_answered = True
                rows = answer.offsets if isinstance(answer.offsets, tuple) else ()
                if answer.error == "NONE" and all(row.error == "NONE" for row in rows):
                    self.positions = {row.partition: row.offset for row in rows}

    def fail(self, problem: Exception) -> None:
        raise problem


class Loner(Courier):
    """One process; its consumer subscribes to nothing."""

    def _work(self) -> None:
        while not self.is_ending:
            producer = self._open()
            with suppress(CoordError):
                producer.init_transactions(PATIENCE_S)
                positions = self._stable()
                while not self.is_ending:
                    positions = self._carry(producer, positions)
            with suppress(CoordError):
                producer.close()
            self.wait(BREAK_MS, lambda: False)
        self.transport.close()

    def _carry(self, producer: CoordinatedProducer, begun: Positions) -> Positions:
        """A transaction of what there is; the positions behind it. Raises TransactionError."""
        found = list(self._there(begun))
        if not found:
            self.wait(BREAK_MS, lambda: False)
            return begun
        producer.begin_transaction(PATIENCE_S)
        for number, offset in found:
            self.wait(self._luck.expovariate(1 / self._work_ms), lambda: False)
            self._copy(producer, f"{MAIL}-{number}@{offset}")
        behind = {number: offset + 1 for number, offset in found}
        rows = tuple(api.CommittedOffset(MAIL, number, at) for number, at in behind.items())
        identity = identity_at(self.transport, LONERS, self.name)
        producer.send_rows(rows, GroupMetadata("", -1, identity, self.transport), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        return begun | behind

    def _there(self, begun: Positions) -> list[tuple[int, int]]:
        """The next records of all partitions, as many as it takes at once."""
        if not self._cluster.is_up or self.network.is_cut:
            return []
        found = [
            (number, offset)
            for number in range(self._cluster.count(MAIL))
            for offset in range(begun.get(number, 0), self._cluster.partitions[MAIL, number].end)
        ]
        return found[: HASTE if self._habits.is_in_haste else self._batch]

    def _stable(self) -> Positions:
        """What the group has committed, when nothing of it waits."""
        while True:
            question = _Question(self.transport, self.name)
            self.transport.attach(question)
            self.transport.send(question, question.request)
            self.wait(ASK_AGAIN_MS, partial(getattr, question, "is_answered"))
            self.transport.detach(question)
            if question.positions is not None:
                return question.positions
            self.wait(LATER_MS, lambda: False)
