"""Where things lie for a checkout and for a wheel, and how what is missing is installed."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from coordlib import installation
from coordlib.cli.main.main import main
from coordlib.errors import SetupError
from coordlib.exit_codes import USAGE
from coordlib.local.home import coord_home

ROOT = Path(__file__).parents[1]


@pytest.fixture
def from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package lies in an environment; its user has a home folder."""
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "site-packages" / "coordlib")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COORD_HOME", raising=False)


@pytest.fixture
def without_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of `coordlib[cli]`; returns the folder for what is generated."""
    missing = {"pyspark", "delta", "nacl"}
    monkeypatch.setattr(
        installation, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "coord"))
    return tmp_path / "coord"


def test_a_checkout_keeps_what_it_generates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORD_HOME", raising=False)

    assert installation.checkout() == ROOT
    assert coord_home() == ROOT / ".coord"
    assert installation.settings_file() == ROOT / "conf" / "coordinator.toml"


@pytest.mark.usefixtures("from_a_wheel")
def test_nothing_is_generated_beside_an_installed_package(tmp_path: Path) -> None:
    """Topics, checkpoints and tables lay in site-packages, and went with the environment."""
    assert installation.checkout() is None
    assert coord_home() == tmp_path / "home" / ".coord"


@pytest.mark.usefixtures("from_a_wheel")
def test_a_user_without_a_home_folder_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's user in a container, without an entry in /etc/passwd."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)

    with pytest.raises(SetupError, match="COORD_HOME"):
        coord_home()


@pytest.mark.usefixtures("from_a_wheel")
def test_where_there_is_no_makefile_pip_installs() -> None:
    assert installation.how_to_install("cli") == "Run: pip install 'coordlib[cli]'"


@pytest.mark.usefixtures("from_a_wheel")
def test_a_file_that_the_package_lacks_is_named() -> None:
    with pytest.raises(SetupError, match=r"coordlib/conf/topics\.toml is missing"):
        installation.conf_file("topics.toml")


@pytest.mark.parametrize("command", [["up"], ["demo"], ["submit", "coordinate"]], ids=" ".join)
@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_job_without_pyspark_ends_before_it_begins(
    command: list[str],
    is_checkout: bool,
    without_pyspark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`pip install 'coordlib[cli]'`, then `coord up`: it resolved jars, and wanted a Makefile."""
    if not is_checkout:
        monkeypatch.setattr(installation, "PACKAGE", tmp_path)

    assert main(command) == USAGE

    what, where, hint = capsys.readouterr().err.splitlines()
    assert what == "The job needs packages that are not installed: pyspark, delta, nacl"
    assert where == sys.executable
    wheels = "Run: pip install 'coordlib[cli,spark]'"
    assert hint == ("Run: make setup" if is_checkout else wheels)
    assert not without_pyspark.exists()


def test_the_command_without_its_extra_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pip install coordlib` installs the command `coord`, and not what it is made with."""
    monkeypatch.setitem(sys.modules, "cyclopts", None)

    assert main(["--help"]) == USAGE
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "cyclopts is not installed in this Python."
    assert len(told) == 3
