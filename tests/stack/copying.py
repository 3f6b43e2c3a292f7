"""A copier whose transactions the coordinator decides, as a process, and what it has copied."""

import signal
import subprocess
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
from coordlib.kafka.reading import read_to_end
from tests.kit.waiting import wait_until
from tests.stack.processes import launch
from tests.stack.wire import close

PARTITIONS: Final = 2
PATIENCE_S: Final = 120.0


class Copying:
    """A copier from the coordinator's cluster into another one, or the same, and what stands there.

    Its process is one of `tests.stack.copier`; the coordinator decides.
    """

    def __init__(self, here: str, there: str, folder: Path, records: int = 600) -> None:
        self.here, self.there, self.folder, self.records = here, there, folder, records
        self._group = f"copiers-{uuid4().hex[:8]}"
        self.source, self.sink = f"{self._group}-in", f"{self._group}-out"
        self._process: subprocess.Popen[bytes] | None = None
        for servers, topic in ((here, self.source), (there, self.sink)):
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": here, "enable.idempotence": True})
        for number in range(records):
            producer.produce(self.source, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        close(producer)

    def start(self) -> None:
        """The same transactional id each time: the next process of it."""
        self._process = launch(
            self.folder / "a.log",
            "tests.stack.copier",
            bootstrap=self.here,
            group=self._group,
            source=self.source,
            sink=self.sink,
            name="a",
            folder=str(self.folder),
            decided_by="coordinator",
            sink_bootstrap=self.there,
        )

    def dies_behind_a_decision(self) -> None:
        """SIGKILL between a decision and its markers."""
        (self.folder / "a.hold-markers").touch()
        wait_until("it is decided", (self.folder / "a.decided").exists, PATIENCE_S)
        self.end(signal.SIGKILL)
        (self.folder / "a.hold-markers").unlink()

    def end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def begins(self) -> None:
        """Wait until readers are given something of it."""
        wait_until("it copies", lambda: sum(self.marked().values()) > 0, PATIENCE_S)

    def ends_well(self) -> None:
        """Wait until everything is copied, once."""
        wait_until("all is copied", lambda: len(self.marked()) == self.records, PATIENCE_S)
        assert self.is_alive()
        assert [record for record, count in self.marked().items() if count != 1] == []
        assert self.committed() == self.marked()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

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
