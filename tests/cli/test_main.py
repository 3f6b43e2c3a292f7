"""The command line tried wrongly, and what programs rely on: exit codes, clean stdout, speed."""

import builtins
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.cli.main.status import Status, note_late
from coordlib.errors import CoordError
from coordlib.exit_codes import INTERRUPTED, OK, UNHEALTHY, UNREACHABLE, USAGE
from coordlib.local.stack import StackStatus
from tests.cli.kit import Cli

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def _no_stack(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer is waited for as little as can be."""
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.2)


def test_no_broker_is_told_within_seconds() -> None:
    began = time.monotonic()

    assert main(["groups", "list", *NOBODY]) == UNREACHABLE

    assert time.monotonic() - began < 60  # and not for the library's own minutes


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "command",
    ["groups list", "groups describe g", "topics check", "topics create", "claims list"],
)
def test_no_broker_is_told(command: str, cli: Cli) -> None:
    assert cli.error(command, *NOBODY, code=UNREACHABLE)[0] == "No Kafka broker answers."


def test_status_of_nothing_tells_what_is_known_without_a_broker(cli: Cli) -> None:
    told = cli.json("status", code=UNREACHABLE)
    del told["as_of_time"]
    (error,) = told.pop("errors")
    assert error["what"] == "The local stack was never started."
    assert error["hint"] == "Run: coord up"
    assert told == {
        "_command": "status",
        "_version": 1,
        "bootstrap_servers": None,
        "topic_prefix": "coord",
        "shards": 2,
        "job": {
            "state": "stopped",
            "pid": None,
            "batch_id": None,
            "last_batch_ms": None,
            "marker_age_ms": None,
        },
        "lag": {"records": None, "ms": None},
        "partitions_added": [],
        "offsets_failing": {},
        "watches_failing": {},
        "checkpoint": None,
        "checkpoint_id": None,
        "job_instances": [],
        "shards_without_job": [],
        "tables": {"events": None, "group_snapshots": None, "lag": None},
        "archive_lag": {"records": None, "ms": None},
        "retention_ms": None,
        "claims": None,
        "late": [],
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
    asked = SimpleNamespace(status=lambda: stack, tables="here/tables", home=Path("here"))
    monkeypatch.setattr(Where, "local", lambda _: asked)

    main(["status"])

    lines = [line for line in capsys.readouterr().err.splitlines() if "Failing" in line]
    expected = [r"topics: a\x1bway", "mirror of billing: members"]
    assert [line.partition(" s: ")[2] for line in lines] == (expected if pid else [])
    assert all(90 <= int(line.split()[2]) < 120 for line in lines)


@pytest.mark.parametrize(
    ("ms", "max_ms", "is_late"),
    [(7, None, False), (None, None, False), (7, 7, False), (8, 7, True), (None, 7, True)],
)
def test_history_that_is_behind_is_an_exit_code(
    ms: int | None, max_ms: int | None, is_late: bool
) -> None:
    """A supervisor asks with a bound: what is not known is no good news. Who names none asks only
    whether the job runs."""
    lags = {"lag": {"records": 1, "ms": None}, "retention_ms": None}
    lags |= {"archive_lag": {"records": 1, "ms": ms}}
    found = Status(datetime.now(UTC), lags, is_reachable=True)

    note_late(found, None, max_ms)

    assert bool(found.fields["late"]) == is_late


def test_a_broker_that_does_not_answer_says_nothing_about_the_job(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine has no way to the brokers, and the job works: "down" would be an alarm."""
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.05)
    told = cli("status", *NOBODY, code=UNREACHABLE)
    assert "JOB                    unknown" in told.out
    assert "No Kafka broker answers" in told.err


TROUBLE = CoordError("The engine's topics are not there", "prefix coord", "Create them.")


@pytest.mark.parametrize(
    ("state", "lag_ms", "errors", "given", "code"),
    [
        ("unknown", 600_000, [], [], OK),
        ("unknown", 600_000, [], ["--max-lag-ms", "60000"], UNHEALTHY),
        ("unknown", 60_000, [], ["--max-lag-ms", "60000"], OK),
        ("unknown", None, [], ["--max-lag-ms", "60000"], UNHEALTHY),
        ("unknown", 0, [], ["--max-lag-ms", "0"], OK),
        ("unknown", 0, [TROUBLE], [], UNHEALTHY),
        ("running", 1, [], ["--max-lag-ms", "0"], UNHEALTHY),
        ("running", 1, [], [], OK),
        ("starting", 0, [], [], UNHEALTHY),
        ("down", 0, [], [], UNHEALTHY),
    ],
)
def test_status_tells_a_monitor_by_its_exit_code(
    state: str,
    lag_ms: int | None,
    errors: list[CoordError],
    given: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    """A cluster's job hung for a day, and every look at it ended with 0."""

    def asked(found: Status, _: object) -> None:
        found.is_reachable = True
        found.fields["job"]["state"] = state
        found.fields["lag"] = {"records": 9, "ms": lag_ms}
        found.errors.extend(errors)

    monkeypatch.setattr("coordlib.cli.main.status._from_kafka", asked)

    told = cli.json("status", *NOBODY, *given, code=code)
    assert told["errors"] == [
        {"what": each.what, "where": each.where, "hint": each.hint} for each in errors
    ]


@pytest.mark.parametrize(
    "command", [["groups", "list"], ["groups", "describe", "g"], ["sql", "select 1"]]
)
def test_without_a_stack_the_way_out_is_named(command: list[str], cli: Cli) -> None:
    assert len(cli(*command, code=UNREACHABLE).err.splitlines()) == 3


@pytest.mark.usefixtures("impatient")
def test_errors_are_json_too_when_json_was_asked_for(cli: Cli) -> None:
    """Whoever parses stdout must never meet an empty one."""
    told = cli.json("groups list", *NOBODY, code=UNREACHABLE)
    assert told["_command"] == "groups list"
    assert told["error"]["what"] == "No Kafka broker answers."


def test_a_wrong_kafka_option_is_no_unreachable_broker(cli: Cli) -> None:
    said = cli("groups list --kafka nothing=1", *NOBODY, code=USAGE).err
    assert 'No such configuration property: "nothing"' in said


@pytest.mark.parametrize(
    "given",
    [
        ["--kafka", "sasl.password=hunter2", "extra"],
        ["--kafka", "sasl.password", "hunter2"],
        ["--kafka", "sasl.password:hunter2"],
        ["sasl.password=hunter2"],
        ["--kafka", "sasl.password=hunter2", "--kafka", "nothing=1", *NOBODY],
        ["--kafka", "sasl.password=hunter2", "--kafka", "sasl.username", *NOBODY],
        ["--kafka", "sasl.password=hunter2", *NOBODY],
        ["--kafka", "sasl.password=hunter2${ENV:NOT_SET_AT_ALL}", *NOBODY],
        ["--tables", "s3://me:hunter2@host/tables"],
    ],
)
@pytest.mark.parametrize("format", ["text", "json"])
def test_no_error_shows_a_password(
    given: list[str], format: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip in a command line showed all of it, and stderr goes into logs of others."""
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.05)
    code, printed = cli.run("groups list", *given, "--format", format)

    assert code in (USAGE, UNREACHABLE)
    assert "hunter2" not in printed.shown
    assert "Traceback" not in printed.err


def test_a_kafka_that_is_late_shows_no_password(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coordlib.cli.kit.where.Where.reach", lambda _: (_ for _ in ()).throw(TimeoutError)
    )

    printed = cli("groups list -X sasl.password=hunter2", *NOBODY, code=UNREACHABLE)
    assert "hunter2" not in printed.shown


def test_a_password_in_clear_is_warned_of(cli: Cli) -> None:
    """The list of processes shows it to everybody on the machine."""
    said = cli("groups list --nothing --kafka sasl.password=hunter2", code=USAGE).said
    assert said[0].startswith("sasl.password is given in clear")
    named = cli("groups list --nothing --kafka sasl.password=${ENV:PASSWORD}", code=USAGE)
    assert "in clear" not in named.err


def test_what_names_no_command_is_told_as_such(cli: Cli) -> None:
    """`json` was taken for the command."""
    assert json.loads(cli("--format json nope", code=USAGE).out)["_command"] == "coord"


def test_help_is_filled_to_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of docstrings were wrapped once more, and left words alone on a line."""
    monkeypatch.setenv("COLUMNS", "80")

    lines = cli("groups history --help").out.splitlines()
    assert max(len(line) for line in lines) <= 80
    first = lines[4:6]
    assert first[0].startswith("CAUSE names the members")
    assert len(first[0]) + 1 + len(first[1].split()[0]) > 80


def test_history_of_a_cluster_needs_its_tables(cli: Cli) -> None:
    assert "--tables" in cli("sql", "select 1", *NOBODY, code=USAGE).err


def test_down_without_a_stack_is_no_error() -> None:
    assert main(["down"]) == OK


def test_the_installed_command_prints_no_boxes() -> None:
    """In a pipe: no escape sequence and no box line may get into somebody's file."""
    command = [sys.executable, "-m", "coordlib.cli.main.main", "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == OK
    assert "groups" in answer.stdout
    assert not set("\x1b╭─│") & set(answer.stdout)


@pytest.mark.parametrize("module", ["cyclopts", "coordlib.cli.main.commands"])
def test_ctrl_c_while_it_starts_is_an_exit_code(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a second of imports: whoever notices a slip at once saw a stack trace."""
    really_import = builtins.__import__

    def interrupted(name: str, *more: object) -> object:
        if name == module:
            raise KeyboardInterrupt
        return really_import(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", interrupted)
    code = main(["groups", "list"])

    monkeypatch.undo()
    assert code == INTERRUPTED
    assert capsys.readouterr().err == ""


def test_the_first_import_of_the_command_is_small() -> None:
    """What is imported before `main` runs is not covered by it."""
    code = (
        "import sys; before = set(sys.modules); import coordlib.cli.main.main;"
        "sys.exit(' '.join(m for m in set(sys.modules) - before if 'cyclopts' in m or "
        "m.startswith('coordlib.cli.') and not m.startswith('coordlib.cli.main')) or 0)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_starting_imports_nothing_heavy_and_little_else() -> None:
    """Start-up is imports: about 230 modules take less than 0.3 s. Their number can be asserted on
    a machine that is busy."""
    code = (
        "import sys, coordlib.cli.main.main as m; m.main(['--help']);"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'duckdb', 'deltalake', 'confluent_kafka'};"
        "sys.exit(f'{heavy & set(sys.modules)} of {len(sys.modules)} modules'"
        " if heavy & set(sys.modules) or len(sys.modules) > 310 else 0)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
