"""`coord submit`: what follows is for spark-submit and the job, and the exit code is the job's."""

import subprocess
from collections.abc import Sequence

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import REFUSED, USAGE
from coordlib.local import submit
from coordlib.local.submission import Submission
from tests.cli.kit import Cli


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a submission, whose job is refused."""
    given: list[str] = []

    def run(arguments: Sequence[str]) -> int:
        given.extend(arguments)
        return REFUSED

    monkeypatch.setattr(submit, "run", run)
    return given


@pytest.mark.parametrize(
    "arguments",
    [
        ["coordinate"],
        ["coordinate", "--help"],
        ["coordinate", "-h", "--version"],
        ["--conf", "a=b", "--master=yarn", "archive", "--kafka", "x=y", "--format", "json"],
        ["job.py", "--", "-x", "--"],
        ["job.py", "--prefix", "", "--tables="],
    ],
    ids=" ".join,
)
def test_every_argument_is_passed_on(arguments: list[str], submitted: list[str]) -> None:
    """Options of `coord` are no options here: the job has a --help of its own. An empty text, of a
    variable that is not set, is refused by the job, which names it."""
    assert main(["submit", *arguments]) == REFUSED
    assert submitted == arguments


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=" ".join)
def test_without_a_job_it_prints_its_own_help(
    arguments: list[str], submitted: list[str], cli: Cli
) -> None:
    assert cli("submit", *arguments).out.startswith(
        "Usage: coord submit [SPARK-SUBMIT FLAGS] coordinate"
    )
    assert submitted == []


@pytest.mark.parametrize("job", ["coordinate", "archive", "claims"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_a_job_starts_nothing(
    job: str, flag: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """It took spark-submit and Java, and ten seconds."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    for started in ("find_java", "ensure_jars", "require_answer"):
        monkeypatch.setattr(submit, started, never)
    monkeypatch.setattr(subprocess, "Popen", never)
    printed = cli("submit --master spark://a:1", job, "--prefix", "x", flag)
    assert printed.out.startswith(f"usage: {job} ")
    assert "--checkpoint" in printed.out
    assert printed.err == ""


def test_the_help_of_another_script_is_its_own() -> None:
    assert Submission.parse(["script.py", "--help"]).helped is None
    assert Submission.parse(["coordinate", "--prefix", "x"]).helped is None


def test_a_secret_in_clear_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """spark-submit.sh warns by itself, and the command does so for all commands."""
    monkeypatch.setattr(submit, "find_java", lambda: None)

    told = cli("submit --conf spark.password=hunter2 --master", code=USAGE).err
    assert told.count("given in clear") == 1
    assert "hunter2" not in told
    assert "--master lacks its value" in told
