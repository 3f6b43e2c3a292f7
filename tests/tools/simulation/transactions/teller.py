"""A teller: a process whose transactions the job's own coordinator decides, request by request.

Each transaction commits one number to one group or to several, in different shards, of which
nobody is a member. So the groups of an id must agree at rest, and each may have nothing but what
was committed. It speaks the wire's words alone; the client of such transactions is not in it.
"""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.transactions import ABORT, COMMIT
from coordlib.demo.history import Happened
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.transactions.fibers import Fiber

REPLY: Final = 0
BOOK: Final = "book"
ASK_AGAIN_MS: Final = 5_000
LATER_MS: Final = 300
LOOK_MS: Final = 100
TIMEOUT_MS: Final = 6_000
#: They say what becomes of a request that is made again.
_RETRIABLE: Final = frozenset(
    {"CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "THROTTLING_QUOTA_EXCEEDED"}
)
Answer = dict[str, Any]


class Refused(Exception):
    """The coordinator has refused what cannot be asked again."""


class Teller(Process):
    """One process of a transactional id.

    Args:
        numbers: rise from one transaction of the id to the next, whichever process it has.
    """

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        cluster: Cluster,
        name: str,
        transactional_id: str,
        groups: tuple[str, ...],
        shards: int,
        prefix: str,
        luck: Random,
        numbers: Iterator[int],
        record: Any,
    ) -> None:
        super().__init__(cluster.scheduler, name)
        self.id, self.groups = transactional_id, groups
        self._cluster, self._luck, self._numbers, self._record = cluster, luck, numbers, record
        self._place = (f"{prefix}.requests", shard_of(transactional_id, shards))
        self._responses = cluster.partitions[f"{prefix}.responses", REPLY]
        self._position = self._responses.last_stable
        self._asked = count(1)
        self._answers: dict[str, Answer] = {}
        self._pause_ms = luck.choice([50, 500, 2_000])
        self.is_ending = False
        self.fiber = Fiber(self, self._work)
        self.after(1, self.fiber.resume)

    @property
    def is_done(self) -> bool:
        """Whether it has ended, or is dead."""
        return self.fiber.is_over or not self.is_alive

    def kill(self) -> None:
        if self.is_alive:
            super().kill()
            self.fiber.resume()  # its thread ends

    # ---- what it does --------------------------------------------------------------------------

    def _work(self) -> None:
        while not self.is_ending:
            try:
                producer = self._init()
                while not self.is_ending:
                    producer = self._transact(producer)
                    self._sleep(self._luck.expovariate(1 / self._pause_ms))
            except Refused:
                self._sleep(LATER_MS)

    def _init(self) -> tuple[int, int]:
        answer = self._ask(api.InitProducerId, timeout_ms=TIMEOUT_MS)
        return answer["producer_id"], answer["epoch"]

    def _transact(self, producer: tuple[int, int]) -> tuple[int, int]:
        """One transaction; the producer of the next one."""
        named = {"producer_id": producer[0], "epoch": producer[1]}
        name, number = f"{self.id}-{producer[0]}-{producer[1]}", next(self._numbers)
        self._tell("begin", name)
        some = self._luck.sample(self.groups, self._luck.randint(1, len(self.groups)))
        for each, group in enumerate(some):
            self._tell("offsets", name, group=group, offsets={f"{BOOK}-0": number})
            rows = (api.CommittedOffset(BOOK, 0, number),)
            self._ask(api.TxnOffsetCommit, **named, of_group=group, number=each, offsets=rows)
        result = COMMIT if self._luck.random() < 0.75 else ABORT
        if result == COMMIT:
            self._tell("ended", name, detail="unknown")
        answer = self._ask(api.EndTxn, **named, result=result, accepted=len(some))
        self._tell("ended", name, detail="ok" if result == COMMIT else "aborted")
        return answer["producer_id"], answer["epoch"]

    # ---- requests ------------------------------------------------------------------------------

    def _ask(self, request: type[Any], **fields: Any) -> Answer:
        """Until it is answered, and not with an error that passes. Raises Refused."""
        while True:
            id_ = f"{next(self._asked)}"
            who = {"v": 1, "client": self.name, "group": self.id, "reply": REPLY}
            if self._cluster.is_up:
                value = codec.encode(request(**who, id=id_, **fields))
                self._cluster.append(self._place, self.id.encode(), value)
            answer = self._wait_for(id_)
            if answer is not None and answer["error"] == "NONE":
                return answer
            if answer is not None and answer["error"] not in _RETRIABLE:
                raise Refused(answer["error"])
            self._sleep(LATER_MS)

    def _wait_for(self, id_: str) -> Answer | None:
        until_ms = self.scheduler.now_ms + ASK_AGAIN_MS
        while self.scheduler.now_ms < until_ms:
            self._sleep(LOOK_MS)
            self._read()
            if id_ in self._answers:
                return self._answers.pop(id_)
        return None

    def _read(self) -> None:
        if self._cluster.is_up:
            records, self._position = self._responses.read(self._position)
            for record in records:
                if self.name.encode() in (record.value or b""):
                    answer = msgspec.json.decode(record.value or b"{}")
                    if answer.get("client") == self.name and "id" in answer:
                        self._answers[answer["id"]] = answer

    def _sleep(self, for_ms: float) -> None:
        self.fiber.sleep(max(1, for_ms))

    def _tell(self, what: str, transaction: str, **fields: Any) -> None:
        now_ms = self.scheduler.now_ms
        self._record(Happened(now_ms, what, member=self.name, transaction=transaction, **fields))
