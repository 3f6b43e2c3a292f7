"""The lock and pyproject.toml agree: all that set-up installs is pinned, and within its bounds."""

import ast
import re
import sys
import tomllib
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from coordlib.local.environment_archive import name_of, required
from tests.tools import lock

PROJECT = tomllib.loads((lock.ROOT / "pyproject.toml").read_text())
#: As the Makefile gives them to pip.
(EXTRAS,) = re.findall(r"^EXTRAS := (\S+)$", (lock.ROOT / "Makefile").read_text(), re.MULTILINE)
DIRECT = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(
        requirement
        for extra in EXTRAS.split(",")
        for requirement in PROJECT["project"]["optional-dependencies"][extra]
    ),
]
SOURCES = ("coordlib", "examples", "jobs", "tests", "notebooks")
#: Modules that come with a required package, which pins them and shows what is theirs: pyspark.
BROUGHT = frozenset({"py4j"})
PINS = lock.read(lock.LOCK.read_text())


@pytest.mark.parametrize("requirement", DIRECT)
def test_what_is_required_directly_is_pinned_within_its_bounds(requirement: str) -> None:
    """A bound was raised in pyproject.toml, and `make lock` forgotten: set-up would fail."""
    wanted = Requirement(requirement)

    assert wanted.specifier.contains(PINS[lock.normalised(wanted.name)])


def test_what_that_requires_is_pinned_too() -> None:
    """A package without a pin is another one tomorrow, and the same checkout no longer the same."""
    installed = {name_of(each): each for each in distributions()}
    brought = required([f"coordlib[{EXTRAS}]"], installed) - {"coordlib"}

    assert len(brought) > len(DIRECT)
    assert sorted(brought - PINS.keys()) == []


def test_what_is_imported_is_required() -> None:
    """It was there by chance, since something else required it: cryptography, yaml and packaging.
    Stubs of a type checker and this project's own folders are no packages."""
    own = {"coordlib", "examples", "jobs", "notebooks", "tests", "coordinate"}
    by_module = packages_distributions()
    named = {lock.normalised(Requirement(each).name) for each in DIRECT}
    found = {}
    for path in sorted(each for top in SOURCES for each in (lock.ROOT / top).rglob("*.py")):
        for module in _imported(ast.parse(path.read_text())) - sys.stdlib_module_names - own:
            brought = {lock.normalised(each) for each in by_module.get(module, [])}
            if not brought & named and brought:
                found[module] = str(path.relative_to(lock.ROOT))

    assert {module: path for module, path in found.items() if module not in BROUGHT} == {}


def _imported(tree: ast.AST) -> set[str]:
    """The first words of what is imported, anywhere."""
    modules = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules.add(node.module.partition(".")[0])
    return modules


def test_the_lock_says_for_what_it_was_made() -> None:
    """Another list of extras, or a newer oldest Python, needs another lock."""
    oldest = ".".join(map(str, lock.PYTHON))

    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    assert lock.LOCK.read_text() == lock.write(EXTRAS, PINS)


def test_the_lock_names_packages_and_no_index() -> None:
    """Everybody has an index of their own in pip's configuration; credentials may be in its URL."""
    pin = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[A-Za-z0-9.!+]+")
    lines = [line for line in lock.LOCK.read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_a_report_of_pip_becomes_pins() -> None:
    """pip writes names as their packages do, in the order in which it found them."""
    names = {"zipp": "3", "Py.Yaml_x": "6.0.3", "coordlib": "0.1.0"}
    report = [{"metadata": {"name": name, "version": at}} for name, at in names.items()]

    assert lock.pins(report) == {"py-yaml-x": "6.0.3", "zipp": "3"}
    assert lock.read(lock.write("cli", lock.pins(report))) == lock.pins(report)


def test_a_lock_of_another_python_is_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its packages would be those of another Python, for everybody."""
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(lock.sys, "version_info", (3, 14, 0))

    assert lock.main(["cli"]) == 2
    assert "3.11" in capsys.readouterr().err
    assert not lock.LOCK.exists()
