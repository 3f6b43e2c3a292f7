"""A standalone cluster's master is asked for before anything is packed or started."""

import socket
from collections.abc import Iterator

import pytest

from coordlib.errors import CannotReach, SetupError
from coordlib.exit_codes import FAILED, USAGE
from coordlib.local import submit
from coordlib.local.processes import LOOPBACK, free_ports
from coordlib.local.submit import require_answer


@pytest.fixture
def answering() -> Iterator[int]:
    """The port of something that accepts connections."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> int:
    """A port behind which there is nothing."""
    return free_ports(1)[0]


def test_a_master_that_answers_is_taken(answering: int) -> None:
    require_answer(f"spark://{LOOPBACK}:{answering}")


def test_one_of_several_masters_is_enough(answering: int, silent: int) -> None:
    """The others stand by until it fails (spark.deploy.recoveryMode)."""
    require_answer(f"spark://{LOOPBACK}:{silent},{LOOPBACK}:{answering}")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://nowhere:6443"])
def test_other_managers_are_not_asked(master: str) -> None:
    require_answer(master)


def test_a_master_that_is_away_is_told(silent: int) -> None:
    """Spark tries for a minute and ends with a stack trace."""
    with pytest.raises(CannotReach) as told:
        require_answer(f"spark://{LOOPBACK}:{silent}")

    assert str(told.value).splitlines() == [
        "The Spark master does not answer.",
        f"spark://{LOOPBACK}:{silent}: Connection refused",
        "Start it, or correct --master; then start the job again.",
    ]


def test_a_host_that_has_no_address_is_told() -> None:
    with pytest.raises(CannotReach, match=r"nowhere\.invalid:7077: \S"):
        require_answer("spark://nowhere.invalid:7077")


@pytest.mark.parametrize(
    "master",
    [
        *("spark://", "spark://host", "spark://host:", "spark://host:0", "spark://host:70000"),
        *("spark://a:7077,", "spark://a b:7077", "spark://[::1:7077", "spark://host:7077/"),
    ],
)
def test_what_names_no_master_is_refused(master: str) -> None:
    with pytest.raises(SetupError, match="This names no Spark master"):
        require_answer(master)


@pytest.mark.parametrize(("port", "code"), [("silent", FAILED), ("none", USAGE)])
def test_the_launcher_ends_before_it_has_packed_anything(
    port: str,
    code: int,
    silent: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A supervisor tries again when the master may be back; a wrong name it does not try again."""
    monkeypatch.setattr(submit, "find_java", lambda: None)
    monkeypatch.setattr(submit, "ensure_jars", lambda: pytest.fail("jars were looked at"))
    master = f"spark://{LOOPBACK}:{silent if port == 'silent' else port}"

    assert submit.main(["--master", master, "coordinate"]) == code
    assert len(capsys.readouterr().err.splitlines()) == 3
