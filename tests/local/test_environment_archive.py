"""The environment that travels to a cluster's executors."""

import os
import subprocess
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.local import environment_archive
from coordlib.local.progress import silent

#: Enough of the packages to see that compiled ones run; all of them are half a gigabyte.
FEW = {"msgspec", "google-re2", "pandas", "numpy", "python-dateutil", "six", "pytz", "tzdata"}


@pytest.mark.stack
def test_unpacked_archive_runs_compiled_packages_and_coordlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip of sources fails on the executor with: No module named 'msgspec._core'."""
    packages = environment_archive._packages()
    few = [each for each in packages if environment_archive.name_of(each) in FEW]
    assert len(few) >= len(FEW - {"pytz"})  # which newer pandas do without
    monkeypatch.setattr(environment_archive, "_packages", lambda: few)

    _runs_unpacked(tmp_path, monkeypatch, "import msgspec._core, re2, pandas, coordlib")


@pytest.mark.stack
@pytest.mark.chaos
def test_unpacked_archive_of_all_packages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs_unpacked(tmp_path, monkeypatch, "import msgspec._core, pandas, pyarrow, coordlib")


def _runs_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: "same")
    archive = environment_archive.build(tmp_path, silent)
    written = archive.stat().st_mtime_ns
    assert environment_archive.build(tmp_path, silent) == archive
    assert archive.stat().st_mtime_ns == written  # the same packages and sources: not built again

    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "environment", filter="fully_trusted")
    answer = subprocess.run(
        [tmp_path / "environment/bin/python", "-c", f"{program}; print(coordlib.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    assert answer.stdout.startswith(str(tmp_path / "environment" / "lib"))
    assert not list((tmp_path / "environment").glob("lib/*/site-packages/pyspark"))


def test_pyspark_is_left_to_spark() -> None:
    """The cluster brings its own, and executors with another one fail in their first batch."""
    names = {environment_archive.name_of(each) for each in environment_archive._packages()}

    assert "msgspec" in names
    assert not names & {"pyspark", "py4j", "delta-spark", "pip", "coordlib"}


def test_a_job_travels_without_the_command_line_and_without_tests() -> None:
    """A checkout's environment has 150 packages, of which executors import a few; moto alone
    brings 40 of them."""
    names = {environment_archive.name_of(each) for each in environment_archive._packages()}

    assert names >= {"confluent-kafka", "google-re2", "pandas", "numpy", "pyarrow", "pynacl"}
    assert not names & {"cyclopts", "rich", "duckdb", "deltalake", "pytest", "moto", "boto3"}
    assert not names & {"matplotlib", "pillow", "ipython", "pandas-stubs", "ruff"}


METADATA = """\
coordlib
Requires-Dist: msgspec==1.0
Provides-Extra: spark
Requires-Dist: Py.Arrow>=26,<27; extra == "spark"
Provides-Extra: dev
Requires-Dist: moto[server]==5; extra == "dev"

msgspec

py_arrow
Requires-Dist: numpy (>=1) ; python_version >= "3.11"

numpy

moto
Requires-Dist: boto3
Provides-Extra: server
Requires-Dist: flask; extra == 'server'
Provides-Extra: iot
Requires-Dist: not-of-an-extra; extra == "iot"

boto3
Requires-Dist: moto
Requires-Dist: never-installed

flask

not_of_an_extra

shop
Requires-Dist: flask

pip
"""


def test_a_package_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by PYTHONPATH alone: what it requires is written nowhere."""
    monkeypatch.setattr(environment_archive, "distributions", list)

    with pytest.raises(SetupError, match="coordlib is not installed in this Python"):
        environment_archive._packages()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What would be packed of an environment that has these distributions."""
    for text in METADATA.split("\n\n"):
        name, _, rest = text.strip().partition("\n")
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{rest}"
        )
    found = list(distributions(path=[str(tmp_path)]))
    monkeypatch.setattr(environment_archive, "distributions", lambda: found)
    return {environment_archive.name_of(each) for each in environment_archive._packages()}


def test_what_a_job_requires_is_packed_and_what_that_requires(environment: set[str]) -> None:
    """Names are written in several ways; a circle of requirements ends."""
    assert environment >= {"msgspec", "py-arrow", "numpy"}
    assert not environment & {"coordlib", "moto", "boto3", "pip"}


def test_packages_of_users_are_packed_with_what_they_require(environment: set[str]) -> None:
    """A strategy, or a script's own import, also where it is a requirement of a test tool."""
    assert environment >= {"shop", "flask", "not-of-an-extra"}


def test_only_the_newest_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a hundred megabytes, and every change of the sources makes another."""
    prints = iter("abcde")
    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: next(prints))
    monkeypatch.setattr(environment_archive, "_write", lambda path, packages: path.touch())
    for _ in range(5):
        environment_archive.build(tmp_path, silent)
    kept = sorted(path.name for path in tmp_path.glob("env-*"))
    assert kept == [f"env-{name}.tar.gz" for name in "cde"]


def test_of_two_jobs_that_start_at_once_one_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of two cells start with their machine: both wrote the same partial file, and one of
    them shipped what the other was still writing."""
    written: list[Path] = []

    def write(path: Path, packages: object) -> None:
        written.append(path)
        time.sleep(0.2)  # time enough for the other one to begin
        path.write_bytes(b"whole")

    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: "same")
    monkeypatch.setattr(environment_archive, "_write", write)
    with ThreadPoolExecutor(2) as both:
        built = list(both.map(environment_archive.build, [tmp_path] * 2, [silent] * 2))

    assert built == [tmp_path / "env-same.tar.gz"] * 2
    assert [path.name for path in written] == ["env-same.tar.partial"]
