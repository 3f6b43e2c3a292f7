"""One member of a group in a process of its own: consumes, commits, and writes down what happens.

    python -m tests.stack.member --config '{…}' --topics orders --witness FILE

Every line of the witness is a JSON object with `what` and `at_ns`, the machine's monotonic clock,
the same for all processes. It is handed to the operating system before anything else is done, so a
SIGKILL takes nothing away:

    ready                                           everything is imported; waits for --go, if given
    assigned  member generation fence partitions    told on_assign
    revoking  partitions                            on_revoke was entered
    revoked   partitions                            on_revoke is about to return
    lost      partitions                            told on_lost
    record    topic partition offset fence          one record, under the fence of its assignment
    committed partitions                            the coordinator took a commit
    refused   code                                  a commit was refused
    failed    code text                             poll raised; the program ends with 1
    closed                                          left as it was asked to; the program ends with 0

Ends on SIGTERM, or when whoever started it is gone.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from coordlib.client.consumer import CoordinatedConsumer
from coordlib.errors import CoordError, GroupError

POLL_S = 0.1
COMMIT_EVERY = 25
LOOK_EVERY_S = 0.02


class Program:
    """Consume until told to stop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._given = arguments
        self._witness = arguments.witness.open("a", buffering=1)  # by the line
        self._parent, self._stop = os.getppid(), threading.Event()
        self._fence: int | None = None
        #: Next offset after the last record of each partition that was ever read here.
        self._read: dict[tuple[str, int], int] = {}
        self._uncommitted = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        self._tell("ready")
        while self._given.go and not self._given.go.exists() and not self._is_over:
            time.sleep(LOOK_EVERY_S)
        try:
            self._consume()
        except CoordError as problem:
            self._tell("failed", code=_code(problem), text=str(problem))
            print(problem, file=sys.stderr)
            return 1
        self._tell("closed")
        return 0

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or os.getppid() != self._parent

    def _consume(self) -> None:
        with CoordinatedConsumer(self._given.config | {"on_commit": self._committed}) as consumer:
            consumer.subscribe(
                self._given.topics.split(","), self._assigned, self._revoked, self._lost
            )
            while not self._is_over:
                try:
                    self._step(consumer)
                except GroupError as refusal:
                    if not refusal.code.retriable:
                        self._last_words(consumer)
                        raise

    def _step(self, consumer: CoordinatedConsumer) -> None:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            place = {"topic": topic, "partition": partition, "offset": offset}
            self._tell("record", **place, fence=self._fence)
            self._read[topic, partition] = offset + 1
            self._uncommitted += 1
        is_idle = message is None and self._uncommitted > 0
        if is_idle or self._uncommitted >= COMMIT_EVERY:
            self._commit(consumer)

    def _commit(self, consumer: CoordinatedConsumer) -> None:
        """Nobody waits for the answer: `_committed` is told."""
        self._uncommitted = 0
        try:
            consumer.commit()
        except GroupError as refusal:
            self._refused(refusal)

    def _last_words(self, consumer: CoordinatedConsumer) -> None:
        """What a careless program does in its `finally`: commit whatever it has read."""
        rows = [TopicPartition(*place, offset) for place, offset in self._read.items()]
        try:
            if rows:
                consumer.commit(offsets=rows, asynchronous=False)
                self._tell("committed", partitions=_rows(rows))
        except GroupError as refusal:
            self._refused(refusal)

    # ---- told -----------------------------------------------------------------------------------

    def _assigned(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        member = consumer.member
        self._fence = member.fence_token
        told = {"member": member.member_id, "generation": member.generation, "fence": self._fence}
        self._tell("assigned", **told, partitions=_rows(some))

    def _revoked(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self._tell("revoking", partitions=_rows(some))
        while self._given.hold and self._given.hold.exists() and not self._is_over:
            time.sleep(LOOK_EVERY_S)
        self._commit(consumer)
        self._tell("revoked", partitions=_rows(some))

    def _lost(self, _consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self._tell("lost", partitions=_rows(some))

    def _committed(self, error: CoordError | None, some: list[TopicPartition]) -> None:
        if error is not None:
            self._refused(error)
        else:
            self._tell("committed", partitions=_rows(some))

    def _refused(self, error: CoordError) -> None:
        self._uncommitted += 1  # what stays here is committed at the next opportunity
        self._tell("refused", code=_code(error))

    def _tell(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": time.monotonic_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


def _code(problem: CoordError) -> str:
    return problem.code.name if isinstance(problem, GroupError) else type(problem).__name__


def _rows(some: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in some]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the consumer's, as JSON")
    parser.add_argument("--topics", required=True, help="parted by commas")
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--go", type=Path, help="connect only when this file is there")
    parser.add_argument("--hold", type=Path, help="let go of nothing while this file is there")
    return Program(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
