"""One member of a group in a process of its own: consumes, commits, and writes down what happens.

Its `config` is a consumer's, its `topics` are parted by commas. A `deaf` one reads no response
while its switch `deaf` is on. Its witness (`tests.kit.program`) has these lines:

    ready                                           everything is imported; waits for `wait`
    assigned  member generation fence partitions    told on_assign
    revoking  partitions                            on_revoke was entered; waits for `hold`
    revoked   partitions                            on_revoke is about to return
    lost      partitions                            told on_lost
    working   topic partition offset                is in the middle of a record, while `work` is on
    record    topic partition offset fence generation     did its work, under its assignment's fence
    gave_up   topic partition offset                lost it while it was in the middle of it
    commit    offsets generation                    sends next offsets to read
    committed partitions offsets                    the coordinator took a commit
    refused   code                                  a commit was refused
    failed    code text                             poll raised; the program ends with 1
    closed                                          left as it was asked to; the program ends with 0
"""

import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Message, TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.settings import read_settings
from coordlib.client.kit.events import TopicPartition as Ours
from coordlib.client.kit.transport import KafkaTransport
from coordlib.errors import CoordError, GroupError
from tests.kit.program import Program, code_of
from tests.stack.deaf import deaf_transport

POLL_S = 0.1
COMMIT_EVERY = 25


class Member(Program):
    """Consumes until it is asked to end."""

    def __init__(self, name: str, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(name, folder, given)
        self._fence: int | None = None
        self._generation = -1
        #: The record that it is in the middle of.
        self._pending: Message | None = None
        #: Next offset after the last record of each partition that was ever read here.
        self._read: dict[tuple[str, int], int] = {}
        self._uncommitted = 0

    def run(self) -> int:
        self.tell("ready")
        self.wait_while_on("wait")
        try:
            self._consume()
        except CoordError as problem:
            return self.failed(problem)
        self.tell("closed")
        return 0

    def _consume(self) -> None:
        own = {"on_commit": self._committed, "enable.auto.commit": False}
        config = self.given["config"] | own
        transport = self._deaf_transport(config) if self.given["deaf"] else None
        with CoordinatedConsumer(config, transport=transport) as consumer:
            topics = self.given["topics"].split(",")
            consumer.subscribe(topics, self._assigned, self._revoked, self._lost)
            while not self.is_over:
                try:
                    self._step(consumer)
                except GroupError as refusal:
                    if not refusal.code.retriable:
                        self._last_words(consumer)
                        raise

    def _deaf_transport(self, config: dict[str, Any]) -> KafkaTransport:
        settings = read_settings(config)
        client = settings.client or "deaf"
        return deaf_transport(self.switch("deaf"), settings.common, settings.prefix, client)

    def _step(self, consumer: CoordinatedConsumer) -> None:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            self._pending = message
            self._work(consumer, message)
        is_idle = message is None and self._uncommitted > 0
        if is_idle or self._uncommitted >= COMMIT_EVERY:
            self._commit(consumer)

    def _work(self, consumer: CoordinatedConsumer, message: Message) -> None:
        """It takes its time while `work` is on; then it asks whether it may still act.

        A fence that has fallen may rise again, and then nobody else has done this. So the record is
        kept until it may act on it, or is told that it lost it.
        """
        place = _place_of(message)
        self.wait_while_on("work", "working", **place)
        ours = Ours(place["topic"], place["partition"])
        if ours not in consumer.member.assignment:
            self._commit(consumer)
        while self._pending is not None and not self.is_over:
            if ours in consumer.member.assignment:
                self.tell("record", **place, fence=self._fence, generation=self._generation)
                self._read[ours] = place["offset"] + 1
                self._uncommitted += 1
                self._pending = None
            else:
                consumer.member.poll(POLL_S)

    def _commit(self, consumer: CoordinatedConsumer) -> None:
        """All that is done; nobody waits for the answer: `_committed` is told."""
        self._uncommitted = 0
        rows = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        for row in rows:
            if self._pending is not None and _is_of(row, self._pending):
                row.offset = self._pending.offset()
        if rows:
            self.tell("commit", offsets=_offsets(rows), generation=self._generation)
        try:
            consumer.commit(offsets=rows or None)
        except GroupError as refusal:
            self._refused(refusal)

    def _last_words(self, consumer: CoordinatedConsumer) -> None:
        """What a careless program does in its `finally`: commit whatever it has read."""
        rows = [TopicPartition(*place, offset) for place, offset in self._read.items()]
        try:
            if rows:
                self.tell("commit", offsets=_offsets(rows), generation=self._generation)
                consumer.commit(offsets=rows, asynchronous=False)
                self.tell("committed", partitions=_rows(rows), offsets=_offsets(rows))
        except GroupError as refusal:
            self._refused(refusal)

    # ---- told -----------------------------------------------------------------------------------

    def _assigned(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        member = consumer.member
        self._fence, self._generation = member.fence_token, member.generation
        told = {"member": member.member_id, "generation": member.generation, "fence": self._fence}
        self.tell("assigned", **told, partitions=_rows(some))

    def _revoked(self, consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self.tell("revoking", partitions=_rows(some))
        self.wait_while_on("hold")
        self._commit(consumer)
        self.tell("revoked", partitions=_rows(some))
        self._give_up(some)

    def _lost(self, _consumer: CoordinatedConsumer, some: list[TopicPartition]) -> None:
        self.tell("lost", partitions=_rows(some))
        self._give_up(some)

    def _give_up(self, some: list[TopicPartition]) -> None:
        pending = self._pending
        if pending is not None and any(_is_of(each, pending) for each in some):
            self.tell("gave_up", **_place_of(pending))
            self._pending = None

    def _committed(self, error: CoordError | None, some: list[TopicPartition]) -> None:
        if error is not None:
            self._refused(error)
        else:
            self.tell("committed", partitions=_rows(some), offsets=_offsets(some))

    def _refused(self, error: CoordError) -> None:
        self._uncommitted += 1  # what stays here is committed at the next opportunity
        self.tell("refused", code=code_of(error))


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


if __name__ == "__main__":
    sys.exit(Member.main())
