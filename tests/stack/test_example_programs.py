"""The programs in `examples/` do what they say, and end on SIGTERM."""

import signal
import subprocess

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import OK
from tests.kit.processes import ROOT
from tests.kit.waiting import wait_until
from tests.stack.newcomer import RECORDS, Newcomer

pytestmark = pytest.mark.stack

EXAMPLES = ROOT / "examples"
LINES_MAX = 200
VALUES = [f"record-{number}".encode() for number in range(RECORDS)]
#: A worker's session, and the time that a busy machine takes to start three.
PATIENCE_S = 120.0


def start(newcomer: Newcomer, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return newcomer.start(str(EXAMPLES / f"{program}.py"), *arguments)


def has_all(newcomer: Newcomer) -> bool:
    """Whether the newest program has printed all records."""
    newcomer.must_run()
    return all(f"b'record-{each}'" in newcomer.shown() for each in range(RECORDS))


def ends_on_sigterm(newcomer: Newcomer, program: "subprocess.Popen[bytes]", number: int) -> None:
    """With exit code 0, and without a stack trace."""
    program.send_signal(signal.SIGTERM)
    assert program.wait(PATIENCE_S) == 0, newcomer.shown(number)
    assert "Traceback" not in newcomer.shown(number)


def test_each_is_short_and_its_page_names_it() -> None:
    """Who reads one reads it whole; README has a line for each."""
    named = (ROOT / "README.md").read_text()
    programs = sorted(EXAMPLES.glob("*.py"))

    assert len(programs) == 9
    assert [each.name for each in programs if f"examples/{each.name}" not in named] == []
    assert [p.name for p in programs if len(p.read_text().splitlines()) > LINES_MAX] == []


@pytest.mark.parametrize("program", ["classic_consumer", "assigned_consumer", "claims"])
def test_a_consumer_prints_the_records(newcomer: Newcomer, program: str) -> None:
    more = ["--group", newcomer.named("billing")]
    if program == "claims":
        at = ("--bootstrap-servers", newcomer.servers)
        assert main(["claims", "create", "__marshal.9s", "--replication", "1", *at]) == OK
        more += ["--coordination-topic", "__marshal.9s"]
    consumer = start(newcomer, program, newcomer.servers, newcomer.named("orders"), *more)

    wait_until("the records are printed", lambda: has_all(newcomer), PATIENCE_S)
    ends_on_sigterm(newcomer, consumer, 0)
    assert newcomer.shown().splitlines()[-1] in ("left the group", "released all claims")


def test_a_copy_in_transactions_of_kafka_has_each_record_once(newcomer: Newcomer) -> None:
    topics = newcomer.named("in"), newcomer.named("out")
    group = newcomer.named("copiers")
    copier = start(newcomer, "exactly_once_by_kafka", newcomer.servers, *topics, "--group", group)

    def is_copied() -> bool:
        newcomer.must_run()
        return len(newcomer.values_of("out")) >= RECORDS

    wait_until("the records are copied", is_copied, PATIENCE_S)
    ends_on_sigterm(newcomer, copier, 0)
    assert newcomer.values_of("out") == VALUES


def test_a_copy_that_the_coordinator_decides_is_read_once(newcomer: Newcomer) -> None:
    topics, group = (newcomer.named("in"), newcomer.named("out")), newcomer.named("copiers")
    program, servers = "exactly_once_by_coordinator", newcomer.servers
    copier = start(newcomer, program, "copy", servers, *topics, "--group", group)
    reader = start(newcomer, program, "read", servers, topics[1])

    wait_until("the committed records are read", lambda: has_all(newcomer), PATIENCE_S)
    ends_on_sigterm(newcomer, copier, 0)
    ends_on_sigterm(newcomer, reader, 1)
    assert newcomer.shown().count("record-") == RECORDS


@pytest.mark.chaos
@pytest.mark.parametrize("program", ["spark_query", "exactly_once_by_delta"])
def test_a_query_writes_the_records_into_a_table(newcomer: Newcomer, program: str) -> None:
    table = newcomer.folder / "table"
    topic, group = newcomer.named("orders"), newcomer.named("lake")
    query = start(newcomer, program, newcomer.servers, topic, str(table), "--group", group)

    def written() -> list[str]:
        newcomer.must_run()
        return newcomer.rows_in(table)

    wait_until("the records are written", lambda: len(written()) >= RECORDS, 480.0)
    assert written() == [each.decode() for each in VALUES]
    ends_on_sigterm(newcomer, query, 0)


def test_shards_of_a_fleet_are_led_by_others_when_a_worker_dies(newcomer: Newcomer) -> None:
    workers = []
    for number in ("1", "2", "3"):
        folder = str(newcomer.folder / f"worker-{number}")
        own = ("--worker", number, "--folder", folder)
        workers.append(start(newcomer, "worker_fleet", newcomer.servers, *own))

    led = newcomer.led_by
    everything = set(range(6))
    wait_until("all lead some", lambda: all(map(led, range(3))), PATIENCE_S)
    wait_until("all shards are led", lambda: set().union(*map(led, range(3))) == everything)
    workers[2].kill()
    lost = led(2)
    wait_until("others lead them", lambda: led(0) | led(1) == everything, PATIENCE_S)
    assert lost
    assert not led(0) & led(1)
    ends_on_sigterm(newcomer, workers[1], 1)
    wait_until("the last one leads all", lambda: led(0) == everything, PATIENCE_S)
    ends_on_sigterm(newcomer, workers[0], 0)


def test_tasks_are_shared_by_workers(newcomer: Newcomer) -> None:
    workers = [start(newcomer, "shared_tasks", newcomer.servers) for _ in range(2)]

    def made(number: int) -> set[str]:
        lines = newcomer.shown(number).splitlines()[-3:]
        return {line.partition(",")[0] for line in lines if line.startswith("reports ")}

    wait_until("both make reports", lambda: all(map(made, range(2))), PATIENCE_S)
    ends_on_sigterm(newcomer, workers[0], 0)
    ends_on_sigterm(newcomer, workers[1], 1)
