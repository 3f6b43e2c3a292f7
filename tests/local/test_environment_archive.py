"""The environment that travels to a cluster's executors."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

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
    few = [each for each in packages if environment_archive._key(each) in FEW]
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
    names = {environment_archive._key(each) for each in environment_archive._packages()}

    assert "msgspec" in names
    assert not names & {"pyspark", "py4j", "delta-spark", "pytest"}


def test_only_the_newest_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a hundred megabytes, and every change of the sources makes another."""
    prints = iter("abcde")
    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: next(prints))
    monkeypatch.setattr(environment_archive, "_write", lambda path, packages: path.touch())
    for _ in range(5):
        environment_archive.build(tmp_path, silent)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"env-{name}.tar.gz" for name in "cde"]
