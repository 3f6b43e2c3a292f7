"""One process that copies a topic in transactions, and writes down what it asks for.

Kafka decides about them, or with the key `coord.decided.by` the coordinator; the offsets of the
group are a part of each. With the key `lists` it is Jepsen's list-append: each record is appended,
under a value of its own, to one of so many partitions of the `sink`. Its witness
(`tests.kit.program`) has these lines:

    ready                                    everything is imported
    begin    transaction
    sent     transaction topic partition value key  `key`: the input record, topic-partition@offset
    offsets  transaction group offsets              [[topic, partition, next offset], …]
    accepted                                 the group has accepted them, while `hold` is on
    ended    transaction outcome             `unknown` before the commit is called, then how
    decided                                  no marker is written yet, while `hold-markers` is on
    trouble  text                            something has failed, and it goes on
    failed   code text                       as `trouble`, of one that is `strict`: it ends with 1

It goes on whatever fails, with another producer if it must. One that is `strict` goes on after a
transaction that was aborted, and after no other failure.
"""

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from coordlib.client import (
    CoordinatedConsumer,
    CoordinatedProducer,
    MemberFenced,
    TransactionError,
    exactly_once,
)
from coordlib.client.kit.config import DECIDED_BY
from coordlib.client.transactions.data_cluster import MarkerWriter
from coordlib.core.wire.offsets import COORDINATOR
from coordlib.errors import CoordError
from tests.kit.program import Program

POLL_S: Final = 0.2
TIMEOUT_S: Final = 20.0
PAUSE_S: Final = 0.5
_PRODUCER: Final = ("transactional.id", "transaction.timeout.ms", DECIDED_BY)
_OWN: Final = ("sink", "sink.bootstrap.servers", "lists", *_PRODUCER)


class Copier(Program):
    """Copies until it is asked to end."""

    def __init__(self, name: str, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(name, folder, given)
        config: Mapping[str, Any] = given["config"]
        servers = config["bootstrap.servers"]
        self._for_producer = {key: config[key] for key in _PRODUCER if key in config}
        self._for_producer["bootstrap.servers"] = config.get("sink.bootstrap.servers", servers)
        if "sink.bootstrap.servers" in config:
            self._for_producer["coord.bootstrap.servers"] = servers
        own = {key: config[key] for key in config if key not in _OWN}
        self._for_consumer = own | {"enable.auto.commit": False}
        self._sink, self._lists = str(config["sink"]), int(config.get("lists", 0))
        self._group, self._is_strict = str(config["group.id"]), given.get("strict", False)
        #: Records of a transaction at most, and how long its group may take.
        self._records, self._timeout_s = given.get("records", 50), given.get("timeout_s", TIMEOUT_S)
        #: No two processes name a transaction alike.
        self._token, self._count = f"{config['client.id']}-{secrets.token_hex(3)}", 0

    def run(self) -> int:
        if self._for_producer.get(DECIDED_BY) == COORDINATOR:
            self._hold_markers()
        self.tell("ready")
        with CoordinatedConsumer(self._for_consumer) as consumer:
            consumer.subscribe(self.given["topics"].split(","))
            while not self.is_over:
                try:
                    self._work(consumer)
                except CoordError as problem:
                    if self._is_strict:
                        return self.failed(problem)
                    self.tell("trouble", text=str(problem))
                    self.stopped.wait(PAUSE_S)
        return 0

    def _work(self, consumer: CoordinatedConsumer) -> None:
        """With one producer, as long as it can."""
        with _Producer(self._for_producer, self) as producer:
            producer.init_transactions(self._timeout_s)
            while not self.is_over:
                try:
                    self._copy(consumer, producer)
                except MemberFenced as fenced:
                    self._ended(producer, fenced)
                except TransactionError as error:
                    self._ended(producer, error)
                    if not error.txn_requires_abort():
                        if self._is_strict:
                            raise
                        return

    def _copy(self, consumer: CoordinatedConsumer, producer: CoordinatedProducer) -> None:
        """One transaction; what was aborted is read again."""
        self._count += 1
        self.tell_of_it("begin")
        with exactly_once(consumer, producer, self._timeout_s):
            messages = [m for m in consumer.consume(self._records, POLL_S) if m.error() is None]
            for number, message in enumerate(messages):
                if self._lists:
                    self._append(producer, message, number)
                else:
                    producer.produce(self._sink, message.value())
        self.tell_of_it("ended", outcome="ok")

    def _append(self, producer: CoordinatedProducer, message: Any, number: int) -> None:
        value, place = f"{self._name}.{number}", number % self._lists
        key = f"{message.topic()}-{message.partition()}@{message.offset()}"
        self.tell_of_it("sent", topic=self._sink, partition=place, value=value, key=key)
        producer.produce(self._sink, value.encode(), partition=place)

    def asks(self, rows: Any) -> None:
        """The group is about to be asked for these offsets, and its decider to commit then."""
        offsets = [[r.topic, r.partition, r.offset] for r in rows]
        self.tell_of_it("offsets", group=self._group, offsets=offsets)

    def accepted(self) -> None:
        self.wait_while_on("hold", "accepted")

    def _ended(self, producer: CoordinatedProducer, problem: Exception) -> None:
        self.tell("trouble", text=str(problem))
        if not producer.may_be_committed:
            self.tell_of_it("ended", outcome="aborted")

    @property
    def _name(self) -> str:
        return f"{self._token}.{self._count}"

    def tell_of_it(self, what: str, **fields: Any) -> None:
        """Of the transaction."""
        self.tell(what, transaction=self._name, **fields)

    def _hold_markers(self) -> None:
        """Wait between the decision and its markers, while the switch is on."""
        turn = MarkerWriter.turn

        def held(writer: MarkerWriter) -> Any:
            self.wait_while_on("hold-markers", "decided")
            return turn(writer)

        MarkerWriter.turn = held  # type: ignore[method-assign]


class _Producer(CoordinatedProducer):
    """Tells of what is asked before it is, and of what the group has accepted."""

    def __init__(self, config: Mapping[str, Any], copier: Copier) -> None:
        super().__init__(config)
        self._copier = copier

    def send_rows(self, rows: Any, metadata: Any, timeout: float) -> None:
        if rows:
            self._copier.asks(rows)
        super().send_rows(rows, metadata, timeout)
        if rows:
            self._copier.accepted()

    def commit_transaction(self, timeout: float = TIMEOUT_S) -> None:
        if not self.may_be_committed:  # once: it may be called again
            self._copier.tell_of_it("ended", outcome="unknown")
        super().commit_transaction(timeout)


if __name__ == "__main__":
    sys.exit(Copier.main())
