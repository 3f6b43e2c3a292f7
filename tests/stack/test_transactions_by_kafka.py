"""Two copiers in one group, over a real broker and job: every record once, whatever is killed."""

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.kafka.reading import read_to_end
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.processes import launch
from tests.stack.wire import close

pytestmark = [pytest.mark.stack, pytest.mark.fault]

PARTITIONS, RECORDS = 4, 2_000
PATIENCE_S = 120.0


class Copiers:
    """Processes of `tests.stack.copier`, and what they have committed."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers, self.folder = servers, folder
        self._group = f"copiers-{uuid4().hex[:8]}"
        self.source, self.sink = f"{self._group}-in", f"{self._group}-out"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (self.source, self.sink)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce(self.source, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        close(producer)

    def start(self, name: str) -> None:
        self._processes[name] = launch(
            self.folder / f"{name}.log",
            "tests.stack.copier",
            bootstrap=self._servers,
            group=self._group,
            source=self.source,
            sink=self.sink,
            name=name,
            folder=str(self.folder),
        )

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def are_alive(self) -> bool:
        return all(process.poll() is None for process in self._processes.values())

    def copied(self) -> Counter[str]:
        """How often each record stands in the output, read committed."""
        options = {"bootstrap.servers": self._servers}
        return Counter(
            (message.value() or b"").decode()
            for partition in range(PARTITIONS)
            for message in read_to_end(options, self.sink, partition)
        )

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(60)


@pytest.fixture
def copiers(own_stack: Stack, start_job: Callable[..., None], tmp_path: Path) -> Iterator[Copiers]:
    start_job()
    made = Copiers(own_stack.bootstrap_servers, tmp_path)
    yield made
    made.stop()


@pytest.mark.chaos
def test_every_record_is_copied_once_whatever_is_killed(
    copiers: Copiers, own_stack: Stack, start_job: Callable[..., None]
) -> None:
    """A copier dies between acceptance and commit, and the job is killed while its offsets wait.

    INV-97: the other one owns the partitions soon, and must not read them before Kafka, which alone
    knows, has aborted what the dead one has left open.
    """
    copiers.start("a")
    copiers.start("b")
    wait_until("both copy", lambda: sum(copiers.copied().values()) > RECORDS // 10, PATIENCE_S)

    (copiers.folder / "a.hold").touch()
    accepted = copiers.folder / "a.accepted"
    wait_until("offsets are accepted", accepted.exists, PATIENCE_S)
    copiers.kill("a")
    own_stack.kill_job()
    start_job()
    wait_until("all is copied", lambda: len(copiers.copied()) == RECORDS, PATIENCE_S)

    assert copiers.are_alive()
    assert [record for record, count in copiers.copied().items() if count != 1] == []
