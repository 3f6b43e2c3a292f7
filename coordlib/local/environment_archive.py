"""Pack this Python environment for the executors of a cluster.

msgspec, pyarrow and pandas are compiled, and a zip in `--py-files` cannot carry compiled packages.
So the installed packages go into one archive that Spark unpacks beside every executor. A virtual
environment finds its packages from where its pyvenv.cfg lies, so it works in any folder; only the
base interpreter must be where it is here. coordlib goes in as it is in this checkout.
"""

import hashlib
import platform
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from coordlib.errors import SetupError
from coordlib.local.home import project_root
from coordlib.local.progress import Progress, phase

#: Not for executors: Spark brings its own pyspark; the rest is for the CLI or development.
_LEFT_OUT = frozenset(
    {
        *("coordlib", "pyspark", "delta-spark", "py4j", "pip", "setuptools", "wheel"),
        *("deltalake", "arro3-core", "duckdb", "cyclopts", "rich", "rich-rst", "docutils"),
        *(
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "execnet",
            "hypothesis",
            "chispa",
            "ruff",
            "mypy",
            "mypy-extensions",
        ),
        *("import-linter", "grimp", "pandas-stubs", "types-psutil", "venv-pack", "pygments"),
        *("librt", "ast-serialize", "pathspec", "zstandard"),
    }
)
_KEPT = 3  # archives of about 100 MB each
_COMPRESSION = 3  # 1 is a third larger, 9 takes five times as long


def build(folder: Path, progress: Progress) -> Path:
    """The archive of the present packages and sources; built only if there is none of them yet.

    Args:
        folder: where archives are kept, as `env-<hash>.tar.gz`.

    Raises:
        SetupError: this Python is not a virtual environment.
    """
    if sys.prefix == sys.base_prefix:
        raise SetupError(
            "Only a virtual environment can be shipped to a cluster.",
            sys.executable,
            "Run: make setup, or name a ready archive in COORD_ENV_ARCHIVE.",
        )
    packages = _packages()
    archive = folder / f"env-{_fingerprint(packages)}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with phase(progress, f"Packing the Python environment into {archive.name}"):
            partial = archive.with_suffix(".partial")
            _write(partial, packages)
            partial.rename(archive)  # a half-written archive never has the final name
        _remove_old(folder)
    return archive


def _remove_old(folder: Path) -> None:
    """Running jobs may still fetch theirs; those of long ago are gone."""
    by_age = sorted(folder.glob("env-*.tar.gz"), key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[:-_KEPT]:
        path.unlink()


def _packages() -> list[Distribution]:
    found = {_key(dist): dist for dist in distributions()}
    return [dist for name, dist in sorted(found.items()) if name not in _LEFT_OUT]


def _key(dist: Distribution) -> str:
    return str(dist.metadata["Name"]).lower().replace("_", "-")


def _fingerprint(packages: list[Distribution]) -> str:
    digest = hashlib.sha256(f"{platform.python_version()} {platform.machine()}".encode())
    for dist in packages:
        digest.update(f"{_key(dist)}=={dist.version}\n".encode())
    for source in _sources():
        digest.update(str(source.relative_to(project_root())).encode() + source.read_bytes())
    return digest.hexdigest()[:12]


def _sources() -> list[Path]:
    return sorted(
        path
        for path in (project_root() / "coordlib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def _write(path: Path, packages: list[Distribution]) -> None:
    prefix = Path(sys.prefix)
    site_packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    with tarfile.open(path, "w:gz", compresslevel=_COMPRESSION) as archive:
        archive.add(prefix / "pyvenv.cfg", "pyvenv.cfg")
        for interpreter in sorted((prefix / "bin").glob("python*")):
            archive.add(interpreter, f"bin/{interpreter.name}")  # links stay links
        for source in _files(packages, prefix):
            archive.add(source, str(source.relative_to(prefix)), recursive=False)
        for source in _sources():
            archive.add(source, f"{site_packages}/{source.relative_to(project_root())}")


def _files(packages: list[Distribution], prefix: Path) -> Iterator[Path]:
    for dist in packages:
        for entry in dist.files or ():
            path = Path(str(dist.locate_file(entry)))
            if path.suffix != ".pyc" and ".." not in entry.parts and path.is_relative_to(prefix):
                yield path
