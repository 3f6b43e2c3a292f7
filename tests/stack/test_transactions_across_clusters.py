"""Records in one cluster, offsets in another: a copier dies behind the decision."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.client import CommittedReader
from coordlib.client.transactions.committed import PartitionReader
from coordlib.kafka.reading import read_to_end
from coordlib.local.broker import Broker
from coordlib.local.stack import Stack
from coordlib.records.data_headers import read_headers
from tests.stack.conftest import wait_until
from tests.stack.processes import ROOT
from tests.stack.wire import close

pytestmark = [pytest.mark.stack, pytest.mark.fault]

PARTITIONS, RECORDS = 2, 600
PATIENCE_S = 90.0


class Copying:
    """A copier from the coordinator's cluster into another one, and what stands there."""

    def __init__(self, here: str, there: str, folder: Path) -> None:
        self.here, self.there, self.folder = here, there, folder
        self._group = f"copiers-{uuid4().hex[:8]}"
        self.source, self.sink = f"{self._group}-in", f"{self._group}-out"
        self._process: subprocess.Popen[bytes] | None = None
        for servers, topic in ((here, self.source), (there, self.sink)):
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": here, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce(self.source, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        close(producer)

    def start(self) -> None:
        """The same transactional id each time: the next process of it."""
        arguments = {
            "bootstrap": self.here,
            "group": self._group,
            "source": self.source,
            "sink": self.sink,
            "name": "a",
            "folder": str(self.folder),
            "decided-by": "coordinator",
            "sink-bootstrap": self.there,
        }
        options = [word for key, value in arguments.items() for word in (f"--{key}", value)]
        with (self.folder / "a.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.stack.copier", *options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

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


@pytest.fixture
def copying(
    own_stack: Stack, broker: Broker, start_job: Callable[..., None], tmp_path: Path
) -> Iterator[Copying]:
    start_job()
    made = Copying(own_stack.bootstrap_servers, broker.bootstrap_servers, tmp_path)
    yield made
    made.end(signal.SIGTERM)


@pytest.mark.chaos
def test_a_copier_that_dies_behind_the_decision_has_copied_all_or_nothing(
    copying: Copying,
) -> None:
    """Its transaction is committed in one cluster, and has no markers in the other one.

    INV-91, INV-93: readers ask the coordinator, and are given all of it; the next process of the
    transactional id writes the markers, and goes on behind it.
    """
    copying.start()
    wait_until("it copies", lambda: sum(copying.marked().values()) > 0, PATIENCE_S)
    (copying.folder / "a.hold-markers").touch()
    wait_until("it is decided", (copying.folder / "a.decided").exists, PATIENCE_S)
    copying.end(signal.SIGKILL)
    (copying.folder / "a.hold-markers").unlink()

    before, told = copying.marked(), copying.committed()
    assert sum(told.values()) > sum(before.values()), "the coordinator knew more than the markers"
    assert set(told.values()) == {1}

    copying.start()
    wait_until("all is copied", lambda: len(copying.marked()) == RECORDS, PATIENCE_S)

    assert copying.is_alive()
    assert [record for record, count in copying.marked().items() if count != 1] == []
    assert copying.committed() == copying.marked()
