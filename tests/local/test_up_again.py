"""`coord up` of a stack of which parts run; broker and job are stand-ins."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import FAILED, INTERRUPTED, OK
from coordlib.local import stack_folder
from coordlib.local.broker import Broker
from coordlib.local.job import Job
from coordlib.local.processes import Program
from coordlib.local.stack import Stack
from tests.kit import own_time

LAUNCHER = Program(1, 0.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stack whose broker and job run."""
    stack_folder.make(tmp_path / "stack")
    state = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": 16}
    stack_folder.write_state(tmp_path / "stack", state)
    jars = SimpleNamespace(spark=(), broker=())
    monkeypatch.setattr("coordlib.local.stack.require_job_modules", lambda: None)
    monkeypatch.setattr("coordlib.local.stack.find_java", lambda: None)
    monkeypatch.setattr("coordlib.local.stack.ensure_jars", lambda _: jars)
    monkeypatch.setattr("coordlib.local.class_archive.make_in_background", lambda *_: None)
    monkeypatch.setattr(Stack, "bootstrap_servers", "127.0.0.1:1")
    monkeypatch.setattr(Stack, "_start_broker", lambda *_: None)
    monkeypatch.setattr(Job, "launcher", LAUNCHER)
    monkeypatch.setattr(Job, "stop", lambda _: None)
    monkeypatch.setattr(Broker, "stop", lambda _: None)
    monkeypatch.setattr(Broker, "program", LAUNCHER)
    return tmp_path / "stack"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is killed and launched, in order."""
    done: list[str] = []

    def launch(job: Job, *_: Any, **__: Any) -> None:
        done.append("launched")
        job.status_file.write_text('{"state": "running"}')

    monkeypatch.setattr(Job, "kill", lambda _: done.append("killed"))
    monkeypatch.setattr(Job, "launch", launch)
    monkeypatch.setattr("coordlib.local.stack.belonging_to", lambda *_: [LAUNCHER])
    return done


def up(home: Path) -> int:
    return main(["up", "--stack-folder", str(home)])


def test_job_is_started_again_with_a_broker_that_was_killed(
    home: Path, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has ended the broker for want of memory. `coord up` ended the job, started the
    broker and said that the job runs already."""
    (home / "job.json").write_text('{"state": "running"}')
    monkeypatch.setattr(Broker, "program", None)

    assert up(home) == OK
    assert launched == ["killed", "launched"]


def test_job_that_another_command_has_launched_may_begin(
    home: Path, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coord up` was killed while it made the topics: its job waits for the word to begin, and no
    later `coord up` gave it."""
    own_time.give(
        monkeypatch,
        "coordlib.local.job",
        sleep=lambda _: (
            (home / "begin").exists() and (home / "job.json").write_text('{"state": "running"}')
        ),
    )

    assert up(home) == OK
    assert (home / "begin").exists()
    assert launched == []


def test_job_that_ends_before_it_is_ready_is_told_by_whoever_waits(
    home: Path,
    launched: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said that the job runs already, of one that was about to refuse its topics."""

    def end(_: float) -> None:
        (home / "exit-code").write_text("4\n")
        monkeypatch.setattr(Job, "launcher", None)

    own_time.give(monkeypatch, "coordlib.local.job", sleep=end)

    assert up(home) == FAILED
    assert "The job ended with exit code 4" in capsys.readouterr().err
    assert launched == []


@pytest.mark.parametrize(("ran_before", "told"), [(False, True), (True, False)])
def test_ctrl_c_says_that_the_broker_goes_on(
    ran_before: bool,
    told: bool,
    home: Path,
    launched: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C is for the command alone: the broker that it had started ran on, without a word."""
    running = {"broker": LAUNCHER if ran_before else None}
    monkeypatch.setattr(Broker, "program", property(lambda _: running["broker"]))
    monkeypatch.setattr(Job, "launcher", None)

    def interrupted(*_: Any) -> None:
        running["broker"] = LAUNCHER
        raise KeyboardInterrupt

    monkeypatch.setattr(Stack, "_start_broker", interrupted)

    with pytest.raises(SystemExit) as ended:
        up(home)

    assert ended.value.code == INTERRUPTED
    said = capsys.readouterr().err
    assert (f"The broker goes on. To end that: coord down --stack-folder {home}" in said) is told
    assert "job" not in said.partition("goes on")[2]


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"broker": "x", "controller": 1}'])
def test_status_of_a_stack_with_spoilt_files_is_told(text: str, home: Path) -> None:
    """The disk was full while they were written, or somebody has edited them."""
    (home / "broker").mkdir()
    for name in ("job.json", "launcher.json", "exit-code", "broker/ports.json", "broker/pid.json"):
        (home / name).write_text(text)

    told = Stack(home).status()

    assert (told.bootstrap_servers, told.job_state) == (None, "starting")


@pytest.mark.parametrize("words", [(), ("--wipe", "--yes")])
def test_stack_is_stopped_and_wiped_on_a_full_disk(words: tuple[str, ...], home: Path) -> None:
    """That is when somebody wants it to be. The lock had no room for the id of its holder."""
    (home / "lock").symlink_to("/dev/full")

    assert main(["down", "--stack-folder", str(home), *words]) == OK
    assert home.exists() == (not words)
