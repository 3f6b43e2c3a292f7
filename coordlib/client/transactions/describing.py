"""Questions of a reader to the coordinator: how has this transaction ended?

They wait for nothing: a reader asks, and looks later for answers. Silence is not asked again, since
the question stands in the log.
"""

import queue

from coordlib.client.kit import signals as sg
from coordlib.client.kit.coordinator_options import Options
from coordlib.client.kit.names import default_client_id
from coordlib.client.kit.transport import KafkaTransport, Transport, identity_at
from coordlib.client.kit.unfenced import Unfenced
from coordlib.client.transactions.verdict import verdict_of
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.core.wire.data_headers import Txn

#: A verdict; None: ask again; or why the question's handler has failed.
_Answer = tuple["_Question", str | Exception | None]


class Describing:
    """The open questions of one reader.

    Args:
        options: how the coordinator is reached.
        transport: an open one to share.
    """

    def __init__(self, options: Options, transport: Transport | None) -> None:
        self._options, self._transport = options, transport
        self._own: KafkaTransport | None = None
        self._client = str(options.data.get("client.id") or default_client_id())
        self._open: dict[Txn, _Question] = {}
        self._heard: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        #: Why a question has failed, until it is raised.
        self._problem: Exception | None = None

    def ask(self, txn: Txn) -> bool:
        """Ask, unless that is asked already; False: it is the transaction of another coordinator.

        Raises CannotReach, NotAllowed, SetupError.
        """
        transport = self._reach()
        transport.check()
        if txn.incarnation != transport.place.incarnation:
            return False
        if txn not in self._open:
            self._open[txn] = question = _Question(txn, self._client, transport, self._heard)
            transport.attach(question)
            transport.send(question, question.request)
        return True

    def answers(self) -> list[tuple[Txn, str | None]]:
        """What came since the last time; None: nothing that says it, so that it is asked again."""
        found: list[tuple[Txn, str | None]] = []
        while not self._heard.empty():
            question, heard = self._heard.get_nowait()
            if self._open.get(question.txn) is not question:
                continue  # answered, or failed, before
            assert self._transport is not None, "asked by it"
            self._transport.detach(question)
            del self._open[question.txn]
            if isinstance(heard, Exception):
                self._problem, heard = heard, None
            found.append((question.txn, heard))
        return found

    def check(self, is_waiting: bool) -> None:
        """Raises what a question has failed with, once; and CannotReach or NotAllowed, if an answer

        is waited for and the transport has failed: none will come.
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if is_waiting and self._transport is not None:
            self._transport.check()

    def close(self) -> None:
        """Ask nothing any more."""
        for question in self._open.values():
            assert self._transport is not None, "asked by it"
            self._transport.detach(question)
        self._open.clear()
        if self._own is not None:
            self._own.close()

    def _reach(self) -> Transport:
        if self._transport is None:
            options = self._options
            self._own = KafkaTransport(options.coordinator, options.prefix, self._client)
            self._transport = self._own
        return self._transport


class _Question(Unfenced):
    """A transport's handler that waits for one answer."""

    def __init__(
        self,
        txn: Txn,
        client: str,
        transport: Transport,
        heard: "queue.SimpleQueue[_Answer]",
    ) -> None:
        self.txn, self._heard = txn, heard
        name = txn.transactional_id
        self.identity = identity_at(transport, name, client)
        self.request = rq.DescribeTransaction(
            v=1,
            id=f"{self.identity.token}-1",
            client=client,
            group=name,
            reply=transport.reply,
        )

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.NotWritten():
                self._heard.put((self, None))
            case sg.Received(message=rs.Response() as answer) if answer.id == self.request.id:
                verdict = None
                if isinstance(answer, rs.DescribeTransactionResponse):
                    verdict = verdict_of(answer, self.txn)
                self._heard.put((self, verdict))

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        self._heard.put((self, problem))
