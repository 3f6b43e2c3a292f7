"""A way out that is printed must be of the stack that was meant."""

import json
from pathlib import Path

import pytest

from coordlib.cli.main.main import main
from coordlib.errors import CoordError
from coordlib.exit_codes import UNREACHABLE
from coordlib.local.broker import Broker
from coordlib.local.home import command_for, stack_home
from coordlib.local.job import Job
from coordlib.local.processes import require_free


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path / ".coord"))
    for name in ("COORD_STACK_NAME", "COORD_TABLES", "COORD_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("stack", "command"),
    [
        ("local", "coord up"),
        ("foo", "coord up --stack foo"),
        (Path("/a/b"), "coord up --stack-folder /a/b"),
        (Path("/a/my stack"), "coord up --stack-folder '/a/my stack'"),
    ],
)
def test_a_command_names_the_stack_as_it_was_named(stack: str | Path, command: str) -> None:
    """People paste what is printed."""
    assert command_for(stack_home(stack), "up") == command


def test_the_default_stack_is_named_where_a_variable_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`COORD_STACK_NAME=foo`, and this once `--stack local`."""
    monkeypatch.setenv("COORD_STACK_NAME", "foo")

    assert command_for(stack_home("local"), "up") == "coord up --stack local"


@pytest.mark.parametrize("command", [["status"], ["groups", "list"]], ids=" ".join)
def test_a_stack_that_never_started_is_started_by_its_name(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`coord status --stack foo` said `Run: coord up`, which started another stack."""
    assert main([*command, "--stack", "foo"]) == UNREACHABLE
    assert "Run: coord up --stack foo" in capsys.readouterr().err

    assert main([*command, "--stack-folder", str(tmp_path / "x")]) == UNREACHABLE
    assert f"Run: coord up --stack-folder {tmp_path / 'x'}" in capsys.readouterr().err


def test_a_stack_that_does_not_answer_is_started_by_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started once, and the machine was restarted since then."""
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.05)
    ports = stack_home("foo") / "broker" / "ports.json"
    ports.parent.mkdir(parents=True)
    ports.write_text(json.dumps({"broker": 1, "controller": 2}))

    assert main(["groups", "list", "--stack", "foo"]) == UNREACHABLE
    assert "Run: coord up --stack foo" in capsys.readouterr().err


def test_what_the_stack_itself_says_names_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`coord down --wipe` without the name deletes another stack than the damaged one."""
    home = stack_home("foo")
    broker = Broker(home / "broker", (), home)
    with pytest.raises(CoordError, match="coord up --stack foo"):
        _ = broker.bootstrap_servers
    assert broker._ended().hint.endswith("coord down --wipe --stack foo")

    monkeypatch.setattr(Job, "is_running", True)
    with pytest.raises(CoordError, match="coord down --stack foo"):
        Job(home).start([], [])


def test_a_port_that_is_taken_names_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """New ports of another stack free nothing."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CoordError, match=r"coord up --new-ports --stack foo \("):
            require_free(taken.getsockname()[1], stack_home("foo"))
