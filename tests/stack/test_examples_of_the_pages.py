"""What a newcomer copies out of the pages works as it stands there, but for addresses and names."""

import re
import shlex
import signal

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import OK
from coordlib.local.processes import free_ports
from tests.kit.processes import ROOT
from tests.kit.waiting import wait_until
from tests.stack.newcomer import RECORDS, Newcomer

pytestmark = pytest.mark.stack

_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCS, TUTORIALS = "docs/how-to", "docs/tutorials"
STORE = "python -m examples.store.server "


def examples(page: str) -> list[str]:
    """The Python code of a page, block by block."""
    return _CODE.findall((ROOT / page).read_text())


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("README.md", 0),
        pytest.param(f"{DOCS}/consumers.md", 0, marks=pytest.mark.chaos),
        (f"{DOCS}/consumers.md", 1),
        pytest.param(f"{DOCS}/consumers.md", 3, marks=pytest.mark.chaos),
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


@pytest.mark.parametrize(("page", "most"), [("first-group.md", ()), ("first-claim.md", ("2", "0"))])
def test_the_programs_of_a_tutorial_share_a_topic(
    newcomer: Newcomer, page: str, most: tuple[str, ...]
) -> None:
    """Orders are written and shared by two consumers; what one leaves, the other goes on with."""
    topic = f'"{newcomer.named("sold")}"'  # that the first program makes
    writer, reader = (
        code.replace('"orders"', topic) for code in examples(f"docs/tutorials/{page}")
    )
    if most:
        at = ("--bootstrap-servers", newcomer.servers)
        assert main(["claims", "create", "__marshal.6s", "--replication", "1", *at]) == OK
    newcomer.run(writer, newcomer.servers)
    wait_until("the topic is made", lambda: newcomer.has(newcomer.named("sold")))
    alice = newcomer.run(reader, newcomer.servers, "alice", *most[:1])
    wait_until("alice reads", lambda: "b'order" in newcomer.shown(1))
    newcomer.run(reader, newcomer.servers, "bob", *most[1:])
    wait_until("bob reads", lambda: "b'order" in newcomer.shown(2))
    newcomer.must_run()
    left = [partition for partition in "0123" if f"\n{partition} " not in newcomer.shown(2)]
    assert left

    alice.send_signal(signal.SIGINT)
    assert alice.wait(120) == 0, newcomer.shown(1)
    wait_until("bob reads all", lambda: all(f"\n{each} " in newcomer.shown(2) for each in left))
    assert "Traceback" not in newcomer.shown(1) + newcomer.shown(2)


@pytest.mark.parametrize("page", ["transactions.md", "transactions-by-coordinator.md"])
def test_a_copier_copies_each_record_once(newcomer: Newcomer, page: str) -> None:
    newcomer.run(examples(f"{DOCS}/{page}")[0], newcomer.servers, "1")

    def copied() -> list[bytes]:
        newcomer.must_run()
        return newcomer.values_of("out")

    wait_until("the records are copied", lambda: len(copied()) >= RECORDS)
    assert copied() == [f"record-{number}".encode() for number in range(RECORDS)]


@pytest.mark.chaos
@pytest.mark.parametrize("page", ["spark-queries.md", "transactions-with-delta.md"])
def test_a_query_writes_the_records_into_a_table(newcomer: Newcomer, page: str) -> None:
    code = examples(f"{DOCS}/{page}")[0].replace("/lake", "tables")
    newcomer.run(code)
    table = newcomer.folder / "tables" / "orders"

    def written() -> list[str]:
        newcomer.must_run()
        return newcomer.rows_in(table)

    wait_until("the records are written", lambda: len(written()) >= RECORDS, 480.0)
    assert written() == [f"record-{number}" for number in range(RECORDS)]


def test_a_store_of_three_processes_takes_a_value(newcomer: Newcomer) -> None:
    """Started by hand, as its page says; each is a broker that shows what it leads."""
    page = (ROOT / DOCS / "worker-fleets.md").read_text()
    commands = [line for line in page.splitlines() if line.startswith(f"    {STORE}")]
    code = next(each for each in examples(f"{DOCS}/worker-fleets.md") if "StoreClient" in each)
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


def test_a_copier_that_is_killed_in_a_unit_copies_each_record_once(newcomer: Newcomer) -> None:
    fill, copy, count = examples(f"{TUTORIALS}/first-exactly-once-copy.md")
    copy = copy.replace("time.sleep(2)", "time.sleep(0.5)")
    assert newcomer.run(fill, newcomer.servers).wait(60) == 0, newcomer.shown()
    copier = newcomer.run(copy, newcomer.servers)
    wait_until("a unit is open", lambda: "committed\ncopied" in newcomer.shown())
    copier.kill()
    newcomer.run(copy, newcomer.servers)
    end = "copied up to payment 4999\ncommitted\n"
    wait_until("all is copied", lambda: end in newcomer.shown(), 180.0)

    assert newcomer.run(count, newcomer.servers).wait(60) == 0, newcomer.shown()
    dirty, committed = newcomer.shown().splitlines()
    assert dirty.endswith(" records, 5000 different ones")
    assert not dirty.startswith("read_uncommitted: 5000 ")
    assert committed == "read_committed: 5000 records, 5000 different ones"


def test_the_others_lead_the_shards_of_a_worker_that_is_killed(newcomer: Newcomer) -> None:
    (worker,) = examples(f"{TUTORIALS}/first-worker-fleet.md")
    workers = [newcomer.run(worker, newcomer.servers, str(number)) for number in (1, 2, 3)]
    wait_until(
        "all take part", lambda: all("takes part" in newcomer.shown(each) for each in range(3))
    )
    shards = ("--partitions", "6", "--replication-factor", "3")
    at = ("--bootstrap-servers", newcomer.servers)
    fleet = newcomer.named("fleet")
    assert main(["cluster", "create-topic", fleet, "shards", *shards, *at]) == OK
    led, everything = newcomer.led_by, set(range(6))
    wait_until("each leads two", lambda: [len(led(each)) for each in range(3)] == [2, 2, 2])
    workers[2].kill()
    wait_until("the others lead all", lambda: led(0) | led(1) == everything)
    workers[0].send_signal(signal.SIGINT)
    wait_until("the last one leads all", lambda: led(1) == everything)
    assert workers[0].wait(60) == 0
    assert newcomer.shown(0).endswith("left the fleet\n")
