"""The wheel as its users have it: in an environment of its own, run from an empty folder.

The environments hold what pip would install for an extra, by links to the packages that lie here:
so a command that needs a package of another extra fails, and no index is asked.
"""

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import pytest
from cyclopts import App

from coordlib.cli.main.commands import build
from coordlib.core.wire.topics import OWN
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.installation import JOB_MODULES
from coordlib.local.environment_archive import name_of, required
from coordlib.local.home import coord_home
from coordlib.local.processes import belonging_to
from coordlib.local.stack import Stack
from tests.history.assigned_life import a_life_of_an_assigned_group

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Installed:
    """One environment, and an empty folder to run its commands in."""

    prefix: Path
    folder: Path
    home: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        ours = {name: text for name, text in os.environ.items() if name.startswith("COORD_TEST")}
        usual = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        return subprocess.run(
            [self.prefix / "bin" / program, *arguments],
            env=ours | usual | {"HOME": str(self.home)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def coord(self, *arguments: str, code: int = OK) -> str:
        """What the command prints on stdout, or on stderr if it is to fail."""
        ran = self.run("coord", *arguments)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stderr if code else ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    # hatchling is among this environment's packages, in the version that the build asks for.
    subprocess.run([*command, "--no-build-isolation", "-w", folder, ROOT], check=True)
    (built,) = folder.glob("coordlib-*.whl")
    return built


@pytest.fixture(scope="module")
def for_commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """As `pip install 'coordlib[cli]'` leaves it."""
    return _installed(wheel, "cli", tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="module")
def for_jobs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """As `pip install 'coordlib[cli,spark]'` leaves it, with the jars that are there already."""
    found = _installed(wheel, "cli,spark", tmp_path_factory.mktemp("jobs"))
    (found.home / ".coord").mkdir()
    (found.home / ".coord" / "jars").symlink_to(coord_home() / "jars")
    yield found
    for program in belonging_to(found.home / ".coord" / "stacks" / "local"):
        program.signal(9)


def _installed(wheel: Path, extras: str, folder: Path) -> Installed:
    found = Installed(folder / "environment", folder / "empty", folder / "home")
    found.folder.mkdir()
    found.home.mkdir()
    venv.create(found.prefix, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", found.prefix / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = found.prefix.glob("lib/python3*/site-packages")
    _link_requirements(extras, packages)
    return found


def _link_requirements(extras: str, packages: Path) -> None:
    here = {name_of(each): each for each in distributions()}
    here["coordlib"], *_ = distributions(path=[str(packages)])  # what the wheel requires
    for name in required([f"coordlib[{extras}]"], here) - {"coordlib"}:
        tops = {entry.parts[0] for entry in here[name].files or ()} - {"..", "__pycache__"}
        for top in tops:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(here[name].locate_file(top))).resolve())


def _commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in app:
        if not name.startswith("-"):
            yield from _commands(app[name], (*path, name))


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """It had none of conf/, and `coord topics create` failed."""
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        settings = packed.read("coordlib/conf/coordinator.toml")
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "coordlib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == here
    assert settings == (ROOT / "conf" / "coordinator.toml").read_bytes()


@pytest.mark.chaos
def test_every_command_has_help_without_pyspark(for_commands: Installed) -> None:
    commands = list(_commands(build()))
    assert ("topics", "create") in commands
    assert ("submit",) in commands

    for command in commands:
        told = for_commands.coord(*command, "--help")
        assert told.startswith(" ".join(("Usage: coord", *command)))


def test_every_module_is_imported_or_needs_what_only_jobs_need(for_commands: Installed) -> None:
    """A module of the package that imports one of the tests, or a package of development, works
    in a checkout alone."""
    program = """
import importlib, pkgutil, coordlib
for module in pkgutil.walk_packages(coordlib.__path__, "coordlib.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
        print("imported", module.name)
    except ModuleNotFoundError as problem:
        print("missing", problem.name.partition(".")[0], module.name)
"""
    ran = for_commands.run("python", "-c", program)
    assert ran.returncode == 0, ran.stderr

    told = [line.split() for line in ran.stdout.splitlines()]
    missing = {each[1] for each in told if each[0] == "missing"}
    assert len(told) > 250
    assert "pyspark" in missing, "this environment was to be one without"
    assert missing <= set(JOB_MODULES)


@pytest.mark.parametrize("command", [["up"], ["demo"], ["submit", "coordinate"]], ids=" ".join)
def test_a_job_without_pyspark_says_what_to_install(
    command: list[str], for_commands: Installed
) -> None:
    what, where, hint = for_commands.coord(*command, code=USAGE).splitlines()

    assert what.startswith("The job needs packages that are not installed: pyspark, ")
    assert where.startswith(str(for_commands.prefix))
    assert hint == "Run: pip install 'coordlib[cli,spark]'"
    assert list(for_commands.home.iterdir()) == []


def test_commands_work_on_a_cluster(
    for_commands: Installed, shared_stack: Stack, tmp_path: Path
) -> None:
    """What operators have on a machine of their own: no Spark, no Java, no checkout."""
    coord, servers = for_commands.coord, ("--bootstrap-servers", shared_stack.bootstrap_servers)
    other = (*servers, "--prefix", f"wheel-{tmp_path.name}")
    created = coord("topics", "create", *other, "--replication", "1").split()
    assert len(created) == len(OWN)
    assert "good for a laptop only" in coord("topics", "check", *other)

    assert coord("groups", "list", *servers).startswith("GROUP")
    deleted = ("offsets", "delete", "nobodys-group", "--topics", "orders:0", "--yes", *servers)
    assert "GROUP_ID_NOT_FOUND" in coord(*deleted, code=FAILED)

    tables = a_life_of_an_assigned_group().write(tmp_path / "tables")
    owners = "select distinct member_id from ownership"
    assert "query-1" in coord("sql", owners, "--tables", str(tables))

    assert list(for_commands.folder.iterdir()) == []
    assert list(for_commands.home.iterdir()) == []


def test_the_job_of_the_wheel_is_submitted(for_jobs: Installed) -> None:
    """`coord submit` looked for a folder jobs/ beside the package."""
    told = for_jobs.coord("submit", "coordinate", "--help")

    assert told.startswith("usage: coordinate ")
    settings = f"(default:{for_jobs.prefix / 'lib'}"
    assert settings in "".join(told.split()), "argparse breaks lines in paths, too"


@pytest.mark.chaos
def test_a_stack_of_the_wheel_goes_up_and_down(for_jobs: Installed) -> None:
    """Broker, job and tables of somebody who has installed the wheel; files that lie in the folder
    where `coord up` is called are no modules of the job."""
    for name in ("pandas", "structlog", "random"):
        (for_jobs.folder / f"{name}.py").write_text("raise SystemExit('not of the job')")
    (for_jobs.folder / "mine.toml").write_text("[engine]\narchive_interval_ms = 1000\n")

    for_jobs.coord("up", "--job-arg=--config=mine.toml")
    try:
        assert "JOB                    running" in for_jobs.coord("status")
        assert for_jobs.coord("groups", "list").startswith("GROUP")
        assert (for_jobs.home / ".coord" / "stacks" / "local" / "tables").is_dir()
    finally:
        for_jobs.coord("down")
    assert belonging_to(for_jobs.home / ".coord" / "stacks" / "local") == []
