"""With which code a job ends decides whether its supervisor starts it again."""

import importlib
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordlib import errors, exit_codes
from coordlib.local import submit

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/exit-codes.md"
SUPERVISION = ROOT / "docs/how-to/deploy.md"
CODES = [
    (errors.CoordError("broken"), 1, 1),
    (errors.CannotReach("away"), 4, 1),
    (errors.SetupError("wrong setting"), 2, 2),
    (errors.NotReady("the disk is full"), 1, 1),
    (errors.StartRefused("another checkpoint"), 1, 4),
    (errors.ReplayDiffers("other bytes"), 1, 1),
    (errors.DriverFenced("a newer driver"), 1, 3),
    (errors.GroupError(errors.ErrorCode.NON_EMPTY_GROUP), 1, 1),
]


@pytest.mark.parametrize(("problem", "command", "job"), CODES, ids=lambda v: type(v).__name__)
def test_each_error_has_its_code(problem: errors.CoordError, command: int, job: int) -> None:
    assert (exit_codes.of_command(problem), exit_codes.of_job(problem)) == (command, job)


def test_the_page_about_supervision_names_what_is_not_to_be_started_again() -> None:
    """A unit file is copied from there."""
    lasting = {exit_codes.USAGE, exit_codes.FENCED, exit_codes.REFUSED}
    line = f"RestartPreventExitStatus={' '.join(map(str, sorted(lasting)))}"

    assert line in SUPERVISION.read_text()


def test_the_page_of_exit_codes_has_every_code() -> None:
    """Who reads a code in a supervisor's log looks it up there."""
    rows = dict(re.findall(r"^\| (\d) \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}

    assert {int(code) for code in rows} == codes - {exit_codes.INTERRUPTED}


NEEDED = ("--bootstrap-servers", "localhost:1", "--checkpoint", "c")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Run a job's `main` in this process, without Spark."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(name: str, *arguments: str, fails_with: Exception | None = None) -> int:
        module = importlib.import_module(f"coordlib.job.main.{name}")

        def fail(*_: object) -> None:
            raise fails_with or AssertionError("Spark was started")

        if name == "coordinate":
            monkeypatch.setattr(module, "_run", fail)
        monkeypatch.setattr("pyspark.sql.SparkSession", None)
        monkeypatch.setattr("sys.argv", [name, *arguments])
        monkeypatch.setattr("coordlib.job.process.configure", lambda: None)
        try:
            return int(module.main())
        except SystemExit as end:  # argparse ends the process itself
            return int(end.code or 0)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


WRONG = {
    "a setting that is none": ["--set", "engine.nothing=1"],
    "a value that is none": ["--set", "engine.lag_interval_ms=soon"],
    "a variable that is not set": ["--kafka", "sasl.password=${ENV:NOT_SET_AT_ALL}"],
    "an option without a value": ["--kafka", "nothing"],
    "no configuration file": ["--config", "/does/not/exist.toml"],
    "an argument that is none": ["--nothing", "hunter2"],
    "a certificate that is not there": ["--kafka", "sasl.password=hunter2", "--kafka", "x"],
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_the_settings_is_not_tried_again(
    job: Callable[..., int], given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor would start a JVM every few seconds, for ever."""
    assert job("coordinate", *NEEDED, "--without-archive", *given) == exit_codes.USAGE
    assert "Traceback" not in capsys.readouterr().err


WRONG_PLACES = {
    "no brokers": ["--bootstrap-servers", ""],
    "nothing but a comma": ["--bootstrap-servers", " , "],
    "a broker without a port": ["--bootstrap-servers", "localhost"],
    "no prefix": ["--prefix", ""],
    "a prefix that no topic may have": ["--prefix", "a b"],
    "no checkpoint": ["--checkpoint", ""],
    "no tables": ["--tables", ""],
    "tables with a line in their name": ["--tables", "a\nb"],
}


@pytest.mark.parametrize("name", ["coordinate", "archive"])
@pytest.mark.parametrize("given", WRONG_PLACES.values(), ids=WRONG_PLACES)
def test_a_place_that_is_none_is_told_before_spark_starts(
    job: Callable[..., int], name: str, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable that is not set in a unit file. An empty checkpoint would be the folder that the
    job runs in."""
    assert job(name, *NEEDED, "--tables", "t", *given) == exit_codes.USAGE

    told = capsys.readouterr().err
    assert given[0] in told
    assert len(told.splitlines()) == 3


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "-5", "1e300", "soon", ""])
def test_an_interval_that_no_archive_can_keep_is_refused(
    job: Callable[..., int], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 0 the archive asked the brokers without a pause; with nan it never waited for them."""
    given = [*NEEDED, "--tables", "t", f"--interval-seconds={value}"]

    assert job("archive", *given) == exit_codes.USAGE
    assert "--interval-seconds" in capsys.readouterr().err


@pytest.mark.parametrize("servers", ["[::1]:9092", "a:1, b:2,", "SASL_SSL://a.example:9092"])
def test_brokers_are_named_as_kafka_takes_them(
    job: Callable[..., int], servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list from a unit file that worked before must go on to work."""
    given = [*NEEDED, "--without-archive", "--bootstrap-servers", servers]

    job("coordinate", *given, fails_with=errors.CoordError("it has begun"))
    assert capsys.readouterr().err.startswith("coordinator: it has begun")


@pytest.mark.parametrize("name", ["coordinate", "archive"])
def test_a_job_shows_no_password(
    job: Callable[..., int], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--kafka", "sasl.password", "hunter2", "sasl.password=hunter2"]

    assert job(name, *NEEDED, "--tables", "t", *given) == exit_codes.USAGE
    assert "hunter2" not in capsys.readouterr().err


def test_what_ended_a_job_shows_no_password_either(
    job: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client repeats a value that it does not take."""
    monkeypatch.setenv("PASSWORD_OF_ALICE", "hunter2")
    given = ["--without-archive", "--kafka", "sasl.password=${ENV:PASSWORD_OF_ALICE}"]
    problem = errors.SetupError("A Kafka option is wrong", "hunter2 is no value of it")

    job("coordinate", *NEEDED, *given, fails_with=problem)
    assert "*** is no value of it" in capsys.readouterr().err


@pytest.mark.parametrize("problem", [each for each, *_ in CODES], ids=lambda v: type(v).__name__)
def test_the_job_ends_with_the_code_of_its_reason(
    job: Callable[..., int], problem: errors.CoordError, capsys: pytest.CaptureFixture[str]
) -> None:
    code = job("coordinate", *NEEDED, "--without-archive", fails_with=problem)

    assert code == exit_codes.of_job(problem)
    assert capsys.readouterr().err.startswith(f"coordinator: {problem.what}")


@pytest.mark.parametrize(
    "given", [[], ["--master"], ["--properties-file", "/does/not/exist", "x.py"]]
)
def test_the_launcher_ends_with_2_as_well(
    given: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "find_java", lambda: None)
    monkeypatch.setattr(submit, "ensure_jars", lambda: pytest.fail("jars were looked at"))
    monkeypatch.delenv(submit.EXIT_FILE_VARIABLE, raising=False)
    if given[-1:] == ["x.py"]:
        monkeypatch.setattr(
            submit, "ensure_jars", lambda: type("Jars", (), {"spark": (), "broker": ()})
        )

    assert submit.main(given) == exit_codes.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_without_an_environment_the_launcher_ends_with_2(tmp_path: Path) -> None:
    script = ROOT / "spark-submit.sh"
    told = subprocess.run(
        [str(script), "x.py"],
        env={"PATH": "/usr/bin:/bin", "COORD_PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == exit_codes.USAGE
    assert "Run: make setup" in told.stderr
