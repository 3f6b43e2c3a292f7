"""One process that appends to lists in transactions: Jepsen's list-append, over a group's input.

    python -m tests.stack.appender --config '{…}' --topics records --witness FILE

Each record of the input is appended, under a value of its own, to a partition of the sink; the
offsets of the group are a part of the same transaction. Kafka decides about it, or with the key
`coord.decided.by` the coordinator. The witness has JSON lines with `what` and `at_ns`, as that of
`tests.stack.member`:

    ready                                    everything is imported
    begin    transaction
    sent     transaction topic partition value key  `key`: the input record, topic-partition@offset
    offsets  transaction group offsets              [[topic, partition, next offset], …]
    ended    transaction outcome                    `unknown` before the commit is called, then how
    trouble  text                                   something has failed, and it goes on

It goes on whatever fails, with another producer if it must, until SIGTERM.
"""

import argparse
import json
import os
import secrets
import signal
import sys
import threading
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
from coordlib.client.kit.process import boottime_ns
from coordlib.errors import CoordError

RECORDS: Final = 50
POLL_S: Final = 0.2
TIMEOUT_S: Final = 20.0
PAUSE_S: Final = 0.5
_PRODUCER: Final = ("bootstrap.servers", "transactional.id", "transaction.timeout.ms", DECIDED_BY)
_OWN: Final = ("sink", "lists", *_PRODUCER[1:])


class Appender:
    """Appends until it is stopped."""

    def __init__(self, given: argparse.Namespace) -> None:
        config: Mapping[str, Any] = given.config
        self._topics = given.topics.split(",")
        self._for_producer = {key: config[key] for key in _PRODUCER if key in config}
        own = {key: config[key] for key in config if key not in _OWN}
        self._for_consumer = own | {"enable.auto.commit": False}
        self._sink, self._lists = str(config["sink"]), int(config["lists"])
        self._group = str(config["group.id"])
        self._witness = given.witness.open("a", buffering=1)  # by the line
        self._parent, self._stop = os.getppid(), threading.Event()
        #: No two processes name a transaction alike.
        self._token, self._count = f"{config['client.id']}-{secrets.token_hex(3)}", 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        self._tell("ready")
        with CoordinatedConsumer(self._for_consumer) as consumer:
            consumer.subscribe(self._topics)
            while not self._is_over:
                try:
                    self._work(consumer)
                except CoordError as problem:
                    self._tell("trouble", text=str(problem))
                    self._stop.wait(PAUSE_S)
        return 0

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or os.getppid() != self._parent

    def _work(self, consumer: CoordinatedConsumer) -> None:
        """With one producer, as long as it can."""
        with _Producer(self._for_producer, self) as producer:
            producer.init_transactions(TIMEOUT_S)
            while not self._is_over:
                try:
                    self._append(consumer, producer)
                except MemberFenced as fenced:
                    self._ended(producer, fenced)
                except TransactionError as error:
                    self._ended(producer, error)
                    if not error.txn_requires_abort():
                        return

    def _append(self, consumer: CoordinatedConsumer, producer: CoordinatedProducer) -> None:
        self._count += 1
        self._tell("begin")
        with exactly_once(consumer, producer, TIMEOUT_S):
            messages = [m for m in consumer.consume(RECORDS, POLL_S) if m.error() is None]
            for number, message in enumerate(messages):
                value, place = f"{self._name}.{number}", number % self._lists
                key = f"{message.topic()}-{message.partition()}@{message.offset()}"
                self._tell("sent", topic=self._sink, partition=place, value=value, key=key)
                producer.produce(self._sink, value.encode(), partition=place)
        self._tell("ended", outcome="ok")

    def asks(self, rows: Any) -> None:
        """The group is about to be asked for these offsets, and its decider to commit then."""
        offsets = [[r.topic, r.partition, r.offset] for r in rows]
        self._tell("offsets", group=self._group, offsets=offsets)

    def commits(self) -> None:
        self._tell("ended", outcome="unknown")

    def _ended(self, producer: CoordinatedProducer, problem: Exception) -> None:
        self._tell("trouble", text=str(problem))
        if not producer.may_be_committed:
            self._tell("ended", outcome="aborted")

    @property
    def _name(self) -> str:
        return f"{self._token}.{self._count}"

    def _tell(self, what: str, **fields: Any) -> None:
        if what not in ("ready", "trouble"):
            fields["transaction"] = self._name
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


class _Producer(CoordinatedProducer):
    """Tells of what is asked, before it is."""

    def __init__(self, config: Mapping[str, Any], appender: Appender) -> None:
        super().__init__(config)
        self._appender = appender

    def send_rows(self, rows: Any, metadata: Any, timeout: float) -> None:
        if rows:
            self._appender.asks(rows)
        super().send_rows(rows, metadata, timeout)

    def commit_transaction(self, timeout: float = TIMEOUT_S) -> None:
        if not self.may_be_committed:  # once: it may be called again
            self._appender.commits()
        super().commit_transaction(timeout)


def arguments() -> argparse.Namespace:
    """Of a program that appends, as a crew starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--topics", required=True)
    parser.add_argument("--witness", type=Path, required=True)
    for name in ("hold", "work"):  # of other programs of a crew
        parser.add_argument(f"--{name}")
    return parser.parse_args()


def main() -> int:
    return Appender(arguments()).run()


if __name__ == "__main__":
    sys.exit(main())
