"""What a newcomer copies out of the pages works as it stands there, but for addresses and names."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from deltalake import DeltaTable

from coordlib.cli.main.main import main
from coordlib.exit_codes import OK
from coordlib.kafka.reading import read_to_end
from coordlib.local.jars import ensure_jars
from coordlib.local.processes import free_ports
from coordlib.local.stack import Stack
from tests.stack.conftest import wait_until
from tests.stack.processes import ROOT
from tests.stack.wire import close

pytestmark = pytest.mark.stack

_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Where the pages say that Kafka is.
_KAFKA = re.compile(r"HOST:PORT|\w+:9092")
_DELTA = (
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2",
)
RECORDS = 6
DOCS = "coordlib/docs"
STORE = "python -m coordlib.examples.replicated_store "


def examples(page: str) -> list[str]:
    """The Python code of a page, block by block."""
    return _CODE.findall((ROOT / page).read_text())


def _spark_options() -> str:
    """As the pages ask for: a Spark with Kafka's and Delta's jars."""
    jars = ",".join(str(jar) for jar in ensure_jars().spark)
    return f"--master local[2] --jars {jars} {' '.join(_DELTA)} pyspark-shell"


class Newcomer:
    """Somebody with a folder, who starts what the pages show, under names that nobody else uses."""

    def __init__(self, stack: Stack, folder: Path, tag: str) -> None:
        self.servers, self.folder, self.tag = stack.bootstrap_servers, folder, tag
        self._started: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(self.named(topic), 2, 1) for topic in ("orders", "in", "out")]
        for made in admin.create_topics(topics).values():
            made.result(30)
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for number in range(RECORDS):
            for topic in ("orders", "in"):
                producer.produce(self.named(topic), f"record-{number}", partition=number % 2)
        assert producer.flush(30) == 0
        close(producer)

    def named(self, name: str) -> str:
        return f"{name}-{self.tag}"

    def adapted(self, text: str) -> str:
        """With this stack's address, and names of its own for topics, groups and ids."""
        text = _KAFKA.sub(self.servers, text)
        names = r'"(orders|in|out|billing|clicks|copiers|copier-1|g)"'
        return re.sub(names, lambda found: f'"{self.named(found[1])}"', text)

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        log = self.folder / f"{len(self._started)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-u", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env=os.environ | {"PYSPARK_SUBMIT_ARGS": _spark_options(), "PYTHONPATH": str(ROOT)},
            )
        self._started.append(process)
        self._logs.append(log)
        return process

    def run(self, code: str, *arguments: str) -> "subprocess.Popen[bytes]":
        return self.start("-c", self.adapted(code), *arguments)

    def shown(self, number: int = -1) -> str:
        """What one of them has printed; the newest, unless told."""
        return self._logs[number].read_text()

    def must_run(self) -> None:
        """Nothing has ended that nobody has ended."""
        for process, log in zip(self._started, self._logs, strict=True):
            assert process.poll() is None, log.read_text()

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def newcomer(shared_stack: Stack, tmp_path: Path, group: str) -> Iterator[Newcomer]:
    newcomer = Newcomer(shared_stack, tmp_path, group)
    yield newcomer
    newcomer.end()


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("README.md", 0),
        pytest.param(f"{DOCS}/consumers.md", 0, marks=pytest.mark.chaos),
        (f"{DOCS}/consumers.md", 1),
        (f"{DOCS}/claims.md", 0),
    ],
)
def test_a_consumer_prints_the_records(newcomer: Newcomer, page: str, number: int) -> None:
    if "claims" in page:
        at = ("--bootstrap-servers", newcomer.servers)
        assert main(["claims", "create", "__marshal", "--replication", "1", *at]) == OK
    consumer = newcomer.run(examples(page)[number], newcomer.servers)

    def has_all() -> bool:
        assert consumer.poll() is None, newcomer.shown()
        return all(f"record-{each}" in newcomer.shown() for each in range(RECORDS))

    wait_until("the records are printed", has_all)


@pytest.mark.parametrize("page", ["transactions.md", "transactions-by-coordinator.md"])
def test_a_copier_copies_each_record_once(newcomer: Newcomer, page: str) -> None:
    newcomer.run(examples(f"{DOCS}/{page}")[0], newcomer.servers, "1")

    def copied() -> list[bytes]:
        newcomer.must_run()
        options = {"bootstrap.servers": newcomer.servers}
        read = (read_to_end(options, newcomer.named("out"), number) for number in range(2))
        values = (record.value() for each in read for record in each)
        return sorted(value for value in values if value is not None)  # markers have none

    wait_until("the records are copied", lambda: len(copied()) >= RECORDS)
    assert copied() == [f"record-{number}".encode() for number in range(RECORDS)]


@pytest.mark.chaos
@pytest.mark.parametrize("page", ["spark-members.md", "transactions-with-delta.md"])
def test_a_query_writes_the_records_into_a_table(newcomer: Newcomer, page: str) -> None:
    code = examples(f"{DOCS}/{page}")[0].replace("/lake", "tables")
    newcomer.run(code)
    table = newcomer.folder / "tables" / "orders"

    def written() -> list[str]:
        newcomer.must_run()
        if not DeltaTable.is_deltatable(str(table)):
            return []
        return sorted(DeltaTable(table).to_pyarrow_table()["value"].to_pylist())

    wait_until("the records are written", lambda: len(written()) >= RECORDS, 480.0)
    assert written() == [f"record-{number}" for number in range(RECORDS)]


def test_a_store_of_three_processes_takes_a_value(newcomer: Newcomer) -> None:
    """Started by hand, as its page says; each is a broker that shows what it leads."""
    page = (ROOT / DOCS / "brokers.md").read_text()
    commands = [line for line in page.splitlines() if line.startswith(f"    {STORE}")]
    code = next(each for each in examples(f"{DOCS}/brokers.md") if "StoreClient" in each)
    for number, port in enumerate(free_ports(len(commands)), start=1):
        commands = [each.replace(f":700{number}", f":{port}") for each in commands]
        code = code.replace(f"700{number}", str(port))
    stores = [
        newcomer.start(*shlex.split(newcomer.adapted(each), comments=True)[1:]) for each in commands
    ]
    wait_until(
        "all take part", lambda: all("unfenced" in newcomer.shown(number) for number in range(3))
    )
    client = newcomer.run(f"{code}print(client.get('colour').value)")
    assert client.wait(120) == 0, newcomer.shown()

    assert newcomer.shown() == "entries NONE\nblue\n"
    assert sum(newcomer.shown(number).count("led topic=entries") for number in range(3)) == 6
    for store in stores:
        store.send_signal(signal.SIGTERM)
    assert [store.wait(120) for store in stores] == [0, 0, 0]
