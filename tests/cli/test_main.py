"""The command line tried wrongly, and what programs rely on: exit codes, clean stdout, speed."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from coordlib.cli import where
from coordlib.cli.main import FAILED, OK, UNREACHABLE, USAGE, main
from coordlib.local.stack import StackStatus

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def _no_stack(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["groups", "nothing"],
        ["groups", "describe"],
        ["groups", "describe", "a", "b"],
        ["sql"],
        ["sql", "select 1", "--format", "yaml"],
        ["groups", "list", "--nothing"],
        ["groups", "history", "g", "--limit", "many"],
        ["up", "--shards", "two"],
    ],
)
def test_wrong_usage_is_told_in_three_lines(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == USAGE

    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 3
    assert "Traceback" not in told.err
    assert told.err.splitlines()[2].startswith("Try: coord")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer is waited for as little as can be."""
    monkeypatch.setattr(where, "REACH_TIMEOUT_S", 0.2)


def test_no_broker_is_told_within_seconds() -> None:
    began = time.monotonic()

    assert main(["groups", "list", *NOBODY]) == UNREACHABLE

    assert time.monotonic() - began < 8


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "command",
    [["groups", "list"], ["groups", "describe", "g"], ["topics", "check"], ["topics", "create"]],
)
def test_no_broker_is_told(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, *NOBODY]) == UNREACHABLE

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "No Kafka broker answers"
    assert len(told.err.splitlines()) == 3


def test_status_of_nothing_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--format", "json"]) == UNREACHABLE

    told = json.loads(capsys.readouterr().out)
    del told["as_of_time"]
    assert told == {
        "_command": "status",
        "_version": 1,
        "bootstrap_servers": None,
        "topic_prefix": "coord",
        "shards": 2,
        "job": {"state": "down", "pid": None, "batch_id": None, "last_batch_ms": None},
        "lag": {"records": None, "ms": None},
        "offsets_failing": {},
        "watches_failing": {},
        "checkpoint": None,
        "checkpoint_id": None,
        "tables": {"events": None, "group_snapshots": None, "lag": None},
    }


@pytest.mark.parametrize("pid", [7, None])
def test_status_tells_what_fails_beside_the_batches(
    pid: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job runs, and lag stands still. Of a job that does not run only that is told."""
    since_ms = round(time.time() * 1000) - 90_500
    told = {
        "watches_failing": {"topics": {"since_ms": since_ms, "last_ms": 0, "error": "a\x1bway"}},
        "offsets_failing": {"billing": {"since_ms": since_ms, "last_ms": 0, "error": "members"}},
    }
    state = "running" if pid else "down"
    stack = StackStatus("here", None, "coord", 2, 2, "stopped", None, state, pid, told)
    asked = SimpleNamespace(status=lambda: stack)
    monkeypatch.setattr("coordlib.cli.status.local_stack", lambda _: asked)

    main(["status"])

    lines = [line for line in capsys.readouterr().err.splitlines() if "Failing" in line]
    expected = [r"topics: a\x1bway", "mirror of billing: members"]
    assert [line.partition(" s: ")[2] for line in lines] == (expected if pid else [])
    assert all(90 <= int(line.split()[2]) < 120 for line in lines)


@pytest.mark.usefixtures("impatient")
def test_status_of_an_unreachable_cluster_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *NOBODY]) == UNREACHABLE

    told = capsys.readouterr()
    assert "JOB                    down" in told.out
    assert "No Kafka broker answers" in told.err


@pytest.mark.parametrize(
    "command", [["groups", "list"], ["groups", "describe", "g"], ["sql", "select 1"]]
)
def test_without_a_stack_the_way_out_is_named(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == UNREACHABLE

    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.usefixtures("impatient")
def test_errors_are_json_too_when_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever parses stdout must never meet an empty one."""
    assert main(["groups", "list", "--format", "json", *NOBODY]) == UNREACHABLE

    told = json.loads(capsys.readouterr().out)
    assert told["_command"] == "groups list"
    assert told["error"]["what"] == "No Kafka broker answers"


def test_a_wrong_kafka_option_is_no_unreachable_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "list", *NOBODY, "--kafka", "nothing=1"]) == FAILED

    assert 'No such configuration property: "nothing"' in capsys.readouterr().err


def test_history_of_a_cluster_needs_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select 1", *NOBODY]) == FAILED

    assert "--tables" in capsys.readouterr().err


def test_down_without_a_stack_is_no_error() -> None:
    assert main(["down"]) == OK


def test_the_installed_command_prints_no_boxes() -> None:
    """In a pipe: no escape sequence and no box line may get into somebody's file."""
    command = [sys.executable, "-m", "coordlib.cli.main", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == OK
    assert "groups" in answer.stdout
    assert not set("\x1b╭─│") & set(answer.stdout)


def test_starting_imports_nothing_heavy_and_little_else() -> None:
    """Start-up is imports: about 230 modules take less than 0.3 s. Their number can be asserted on
    a machine that is busy."""
    code = (
        "import sys, coordlib.cli.main as m; m.main(['--help']);"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'duckdb', 'deltalake', 'confluent_kafka'};"
        "sys.exit(f'{heavy & set(sys.modules)} of {len(sys.modules)} modules'"
        " if heavy & set(sys.modules) or len(sys.modules) > 300 else 0)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
