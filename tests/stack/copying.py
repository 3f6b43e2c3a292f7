"""Copiers of one group as processes (`tests.stack.copier`), and what they have copied."""

import time
from collections import Counter
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client import CommittedReader
from coordlib.client.transactions.committed import PartitionReader
from coordlib.core.wire.data_headers import read_headers
from coordlib.core.wire.offsets import COORDINATOR
from coordlib.kafka.reading import read_to_end
from tests.kit.processes import PATIENCE_S, Processes, Witness
from tests.stack.wire import close

PARTITIONS: Final = 4
#: For the group's answer: the job may be started twice meanwhile.
TIMEOUT_S: Final = 120.0


class Copying(Processes[Witness]):
    """Copiers from the coordinator's cluster into another one, or the same.

    Args:
        decided_by: who decides about their transactions.
        records: in the topic that they copy.
    """

    def __init__(
        self, here: str, there: str, folder: Path, decided_by: str = COORDINATOR, records: int = 600
    ) -> None:
        super().__init__(folder)
        self.here, self.there, self.records = here, there, records
        self._group, self._decided_by = f"copiers-{uuid4().hex[:8]}", decided_by
        self.source, self.sink = f"{self._group}-in", f"{self._group}-out"
        for servers, topic in ((here, self.source), (there, self.sink)):
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": here, "enable.idempotence": True})
        for number in range(records):
            producer.produce(self.source, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        close(producer)

    def start(self, name: str) -> None:
        """The next process of its transactional id. It ends if anything but an abort comes."""
        config = {
            "bootstrap.servers": self.here,
            "client.id": name,
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "max.poll.interval.ms": 20_000,
            "sink": self.sink,
            "sink.bootstrap.servers": self.there,
            "coord.decided.by": self._decided_by,
            "transactional.id": f"{self._group}-{name}",
            "transaction.timeout.ms": 8_000,
        }
        more = {"strict": True, "records": 100, "timeout_s": TIMEOUT_S}
        self.launch(
            *(Witness(name, self.folder), "tests.stack.copier"),
            config=config,
            topics=self.source,
            **more,
        )

    def begins(self) -> None:
        """Wait until readers are given something of it."""
        self.until("it copies", lambda: sum(self.marked().values()) > 0)

    def dies_at(self, name: str, switch: str, what: str) -> None:
        """SIGKILL where this switch stops it, which it has told."""
        member, mark = self[name], self[name].mark()
        member.switch(switch).touch()
        self.until(f"{name} has {what}", lambda: member.since(mark, what))
        self.kill(name)
        member.switch(switch).unlink()

    def ends_well(self) -> None:
        """Wait until everything is copied, once; they have not ended meanwhile, and end well."""
        self.until("all is copied", lambda: len(self.marked()) == self.records)
        assert [record for record, count in self.marked().items() if count != 1] == []
        if self._decided_by == COORDINATOR:
            assert self.committed() == self.marked()
        self.stop()

    def marked(self) -> Counter[str]:
        """What a reader is given by markers alone; nobody is asked."""
        found: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            reader: PartitionReader[bytes] = PartitionReader()
            for message in read_to_end({"bootstrap.servers": self.there}, self.sink, partition):
                value = message.value()
                header = read_headers(message.headers(), has_value=value is not None)
                reader.add(message.offset() or 0, header, value or b"", 0)
            while (taken := reader.take()) is not None:
                found[taken[1].decode()] += 1
        return found

    def committed(self) -> Counter[str]:
        """What a program is given; where a marker is missing it asks the coordinator."""
        found: Counter[str] = Counter()
        config = {
            "bootstrap.servers": self.there,
            "coord.bootstrap.servers": self.here,
            "auto.offset.reset": "earliest",
        }
        with CommittedReader(config) as reader:
            places = [TopicPartition(self.sink, each, 0) for each in range(PARTITIONS)]
            ends = [reader.get_watermark_offsets(place, 10)[1] for place in places]
            reader.assign(places)
            until = time.monotonic() + PATIENCE_S
            while any(reader.last_stable(p) < end for p, end in zip(places, ends, strict=True)):
                assert time.monotonic() < until, "a transaction is not decided"
                message = reader.poll(0.5)
                if message is not None and message.error() is None:
                    found[(message.value() or b"").decode()] += 1
            while (message := reader.poll(0)) is not None:
                found[(message.value() or b"").decode()] += 1
        return found
