"""One member of a group in a process of its own: consumes, commits, and writes down what happens.

    python -m tests.stack.member --config '{…}' --topics orders --witness FILE

Every line of the witness is a JSON object with `what` and `at_ns`, the time since the machine's
boot, the same for all processes. It is handed to the operating system before anything else is
done, so a SIGKILL takes nothing away:

    ready                                           everything is imported; waits for --go, if given
    assigned  member generation fence partitions    told on_assign
    revoking  partitions                            on_revoke was entered
    revoked   partitions                            on_revoke is about to return
    lost      partitions                            told on_lost
    working   topic partition offset                is in the middle of a record (with --work)
    record    topic partition offset fence generation     did its work, under its assignment's fence
    gave_up   topic partition offset                lost it while it was in the middle of it
    commit    offsets generation                    sends next offsets to read
    committed partitions offsets                    the coordinator took a commit
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

from confluent_kafka import Message, TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.events import TopicPartition as Ours
from coordlib.client.kit.process import boottime_ns
from coordlib.client.kit.transport import KafkaTransport
from coordlib.errors import CoordError, GroupError
from tests.stack.deaf import deaf_transport

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
        self._generation = -1
        #: The record that it is in the middle of.
        self._pending: Message | None = None
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
        own = {"on_commit": self._committed, "enable.auto.commit": False}
        config = self._given.config | own
        transport = _transport(config, self._given.deaf) if self._given.deaf else None
        with CoordinatedConsumer(config, transport=transport) as consumer:
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
            self._pending = message
            self._work(consumer, message)
        is_idle = message is None and self._uncommitted > 0
        if is_idle or self._uncommitted >= COMMIT_EVERY:
            self._commit(consumer)

    def _work(self, consumer: CoordinatedConsumer, message: Message) -> None:
        """It takes its time while --work is there; then it asks whether it may still act.

        A fence that has fallen may rise again, and then nobody else has done this. So the record is
        kept until it may act on it, or is told that it lost it.
        """
        place = _place_of(message)
        if self._is_working:
            self._tell("working", **place)
            while self._is_working and not self._is_over:
                time.sleep(LOOK_EVERY_S)
        ours = Ours(place["topic"], place["partition"])
        if ours not in consumer.member.assignment:
            self._commit(consumer)
        while self._pending is not None and not self._is_over:
            if ours in consumer.member.assignment:
                self._tell("record", **place, fence=self._fence, generation=self._generation)
                self._read[ours] = place["offset"] + 1
                self._uncommitted += 1
                self._pending = None
            else:
                consumer.member.poll(POLL_S)

    @property
    def _is_working(self) -> bool:
        return self._given.work is not None and self._given.work.exists()

    def _commit(self, consumer: CoordinatedConsumer) -> None:
        """All that is done; nobody waits for the answer: `_committed` is told."""
        self._uncommitted = 0
        rows = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        for row in rows:
            if self._pending is not None and _is_of(row, self._pending):
                row.offset = self._pending.offset()
        if rows:
            self._tell("commit", offsets=_offsets(rows), generation=self._generation)
        try:
            consumer.commit(offsets=rows or None)
        except GroupError as refusal:
            self._refused(refusal)

    def _last_words(self, consumer: CoordinatedConsumer) -> None:
        """What a careless program does in its `finally`: commit whatever it has read."""
        rows = [TopicPartition(*place, offset) for place, offset in self._read.items()]
        try:
            if rows:
                self._tell("commit", offsets=_offsets(rows), generation=self._generation)
                consumer.commit(offsets=rows, asynchronous=False)
                self._tell("committed", partitions=_rows(rows), offsets=_offsets(rows))
        except GroupError as refusal:
            self._refused(refusal)

    # ---- told -----------------------------------------------------------------------------------

    def _assigned(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        member = consumer.member
        self._fence, self._generation = member.fence_token, member.generation
        told = {"member": member.member_id, "generation": member.generation, "fence": self._fence}
        self._tell("assigned", **told, partitions=_rows(some))

    def _revoked(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self._tell("revoking", partitions=_rows(some))
        while self._given.hold and self._given.hold.exists() and not self._is_over:
            time.sleep(LOOK_EVERY_S)
        self._commit(consumer)
        self._tell("revoked", partitions=_rows(some))

        self._give_up(some)

    def _lost(self, _consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self._tell("lost", partitions=_rows(some))
        self._give_up(some)

    def _give_up(self, some: list[TopicPartition]) -> None:
        pending = self._pending
        if pending is not None and any(_is_of(each, pending) for each in some):
            self._tell("gave_up", **_place_of(pending))
            self._pending = None

    def _committed(self, error: CoordError | None, some: list[TopicPartition]) -> None:
        if error is not None:
            self._refused(error)
        else:
            self._tell("committed", partitions=_rows(some), offsets=_offsets(some))

    def _refused(self, error: CoordError) -> None:
        self._uncommitted += 1  # what stays here is committed at the next opportunity
        self._tell("refused", code=_code(error))

    def _tell(self, what: str, **fields: Any) -> None:
        line = {"what": what, "at_ns": boottime_ns(), **fields}
        self._witness.write(json.dumps(line) + "\n")


def _code(problem: CoordError) -> str:
    return problem.code.name if isinstance(problem, GroupError) else type(problem).__name__


def _rows(some: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in some]


def _offsets(some: list[TopicPartition]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.partition, each.offset) for each in some]


def _place_of(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }


def _is_of(some: TopicPartition, message: Message) -> bool:
    return (some.topic, some.partition) == (message.topic(), message.partition())


def _transport(config: dict[str, Any], deaf: Path) -> KafkaTransport:
    settings = read_settings(config)
    return deaf_transport(deaf, settings.common, settings.prefix, settings.client or "deaf")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the consumer's, as JSON")
    parser.add_argument("--topics", required=True, help="parted by commas")
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--go", type=Path, help="connect only when this file is there")
    parser.add_argument("--hold", type=Path, help="let go of nothing while this file is there")
    parser.add_argument("--work", type=Path, help="take time for a record while this file is there")
    parser.add_argument("--deaf", type=Path, help="hear no response while this file is there")
    return Program(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
