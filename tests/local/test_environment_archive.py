"""The environment that travels to a cluster's executors."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from coordlib.local import environment_archive
from coordlib.local.progress import silent


@pytest.mark.stack
def test_unpacked_archive_runs_compiled_packages_and_coordlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip of sources fails on the executor with: No module named 'msgspec._core'."""
    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: "same")
    archive = environment_archive.build(tmp_path, silent)
    written = archive.stat().st_mtime_ns
    assert environment_archive.build(tmp_path, silent) == archive
    assert archive.stat().st_mtime_ns == written  # the same packages and sources: not built again

    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "environment", filter="fully_trusted")
    program = "import msgspec._core, pandas, pyarrow, coordlib; print(coordlib.__file__)"
    answer = subprocess.run(
        [tmp_path / "environment/bin/python", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert answer.stdout.startswith(str(tmp_path / "environment" / "lib"))
    assert not list((tmp_path / "environment").glob("lib/*/site-packages/pyspark"))


def test_only_the_newest_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a hundred megabytes, and every change of the sources makes another."""
    prints = iter("abcde")
    monkeypatch.setattr(environment_archive, "_fingerprint", lambda packages: next(prints))
    monkeypatch.setattr(environment_archive, "_write", lambda path, packages: path.touch())
    for _ in range(5):
        environment_archive.build(tmp_path, silent)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"env-{name}.tar.gz" for name in "cde"]
