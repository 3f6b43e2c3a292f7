"""Which coordination topic a local stack follows: what is said, and what it followed before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.errors import NotReady
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.local import stack_folder
from coordlib.local.broker import Broker
from coordlib.local.job import Job
from coordlib.local.processes import Program
from coordlib.local.stack import Stack


class Jars:
    """Nothing is started with them."""

    spark: tuple[Path, ...] = ()
    broker: tuple[Path, ...] = ()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a stack that was started before, without claims."""
    stack_folder.make(tmp_path / "stack")
    state = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": 16}
    stack_folder.write_state(tmp_path / "stack", state)
    return tmp_path / "stack"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The coordination topics with which jobs are started; broker and job do nothing."""
    found: list[str] = []

    def start(stack: Stack, progress: Any, job_args: Sequence[str], new_ports: bool) -> None:
        found.append(stack.claims)
        stack._write_state(stack.claims)

    monkeypatch.setattr("coordlib.local.stack.require_job_modules", lambda: None)
    monkeypatch.setattr("coordlib.local.stack.find_java", lambda: None)
    monkeypatch.setattr("coordlib.local.stack.ensure_jars", lambda _: Jars())
    monkeypatch.setattr("coordlib.local.class_archive.make_in_background", lambda *_: None)
    monkeypatch.setattr(Stack, "bootstrap_servers", "127.0.0.1:1")
    monkeypatch.setattr(Stack, "_start_both", start)
    monkeypatch.setattr(Stack, "start_broker", lambda *_: None)
    monkeypatch.setattr(Job, "state", "running")
    return found


def up(home: Path, *words: str) -> int:
    return main(["up", "--stack-folder", str(home), *words])


def test_a_stack_follows_what_it_followed_before(home: Path, started: list[str]) -> None:
    """`coord down` and `coord up` over night: nobody wrote history any more."""
    for words in ((), ("--claims",), (), ("--claims-topic", "__m.6s"), ("--claims",), ()):
        assert up(home, *words) == OK

    assert started == ["", "__marshal", "__marshal", "__m.6s", "__m.6s", "__m.6s"]


def test_a_stack_can_be_told_to_follow_no_claims_any_more(home: Path, started: list[str]) -> None:
    for words in (("--claims",), ("--no-claims",), ()):
        assert up(home, *words) == OK

    assert started == ["__marshal", "", ""]


def test_a_topic_that_is_named_is_followed(
    home: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--claims-topic` alone was ignored without a word."""
    assert up(home, "--claims-topic", "__m.6s") == OK

    assert started == ["__m.6s"]
    assert "follows the claims of __m.6s" in capsys.readouterr().err


def test_a_topic_beside_no_claims_is_a_contradiction(home: Path, started: list[str]) -> None:
    assert up(home, "--no-claims", "--claims-topic", "__m.6s") == USAGE
    assert up(home, "--claims-topic", "__m.1s") == USAGE
    assert started == []


def test_who_is_followed_as_before_is_told_with_the_way_out(
    home: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    up(home, "--claims")
    assert "as at its last start" not in capsys.readouterr().err
    up(home)

    assert "as at its last start; to end that: coord down" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "runs", "hint"),
    [
        (("--claims",), "", "--claims-topic __marshal"),
        (("--claims-topic", "__n"), "__marshal", "--claims-topic __n"),
        (("--no-claims",), "__marshal", "--no-claims"),
    ],
)
def test_a_running_job_does_not_change_what_it_follows_and_says_so(
    words: tuple[str, ...],
    runs: str,
    hint: str,
    home: Path,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`coord up --claims` said that the job follows claims, and it did not."""
    Stack(home)._write_state(runs)
    monkeypatch.setattr(Job, "is_running", True)
    monkeypatch.setattr(Broker, "program", Program(1, 0.0))

    assert up(home, *words) == FAILED
    what, _, told = capsys.readouterr().err.splitlines()
    assert what == (
        f"The job runs already, {f'with the claims of {runs}' if runs else 'without claims'}; "
        "nothing was changed."
    )
    assert "down" in told
    assert told.endswith(hint)
    assert Stack(home).claims == runs
    assert started == []


@pytest.mark.parametrize("words", [(), ("--claims",), ("--claims-topic", "__marshal")])
def test_a_job_that_follows_the_topic_already_is_left_alone(
    words: tuple[str, ...], home: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Stack(home)._write_state("__marshal")
    monkeypatch.setattr(Job, "is_running", True)
    monkeypatch.setattr(Broker, "program", Program(1, 0.0))

    assert up(home, *words) == OK
    assert started == []


def test_a_topic_that_cannot_be_followed_is_not_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later start would be refused for a topic that was named once."""

    def refuse(*_: Any) -> None:
        raise NotReady("It has CreateTime.")

    local = "coordlib.local.stack"
    monkeypatch.setattr(f"{local}.coordination.create_coordination", refuse)
    monkeypatch.setattr(f"{local}.topics.create", lambda *_, **__: None)
    monkeypatch.setattr(f"{local}.topics.require", lambda *_: (None, ()))
    monkeypatch.setattr(Stack, "bootstrap_servers", "127.0.0.1:1")
    stack = Stack(home, claims="__marshal")
    monkeypatch.setattr(stack.broker, "start", lambda **_: None)

    with pytest.raises(NotReady):
        stack._start_broker(lambda _: None)
    assert Stack(home).claims == ""


@pytest.mark.parametrize("spoilt", [None, 7, ["__marshal"]], ids=str)
def test_a_spoilt_name_is_none(home: Path, spoilt: Any) -> None:
    """Somebody has edited state.json."""
    state = stack_folder.read_state(home) | {"claims": spoilt}
    stack_folder.write_state(home, state)

    assert Stack(home).claims == ""
