"""Pack this Python environment for the executors of a cluster.

msgspec, pyarrow and pandas are compiled, and a zip in `--py-files` cannot carry compiled packages.
So the installed packages go into one archive that Spark unpacks beside every executor. A virtual
environment finds its packages from where its pyvenv.cfg lies, so it works in any folder; only the
base interpreter must be at the same path as here. coordlib is packed as it lies here, also from a
checkout.

The archive has the requirements of coordlib with the extra `spark`, and packages of users with
their requirements. Packages that only another extra of coordlib requires are left out: those of the
command line and of development. pyspark is left out, since a cluster brings its own.
"""

import hashlib
import platform
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError
from coordlib.installation import PACKAGE, how_to_install
from coordlib.local.home import one_at_a_time
from coordlib.local.progress import Progress, phase

#: Spark brings its own pyspark; coordlib's files are copied by themselves; the others install.
_LEFT_OUT: Final = frozenset(
    {"coordlib", "pyspark", "delta-spark", "py4j", "pip", "setuptools", "wheel"}
)
_REQUIREMENT: Final = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
_KEPT = 3  # archives of about 100 MB each
_COMPRESSION = 3  # 1 is a third larger, 9 takes five times as long


def build(folder: Path, progress: Progress) -> Path:
    """The archive of the present packages and sources; built only if it does not exist yet.

    Of several jobs that start at the same moment, as after a boot, one builds
    it, and the others wait.

    Args:
        folder: where archives are kept, as `env-<hash>.tar.gz`.

    Raises:
        SetupError: this Python is not a virtual environment, or coordlib is not installed in it.
    """
    if sys.prefix == sys.base_prefix:
        raise SetupError(
            "Only a virtual environment can be shipped to a cluster.",
            sys.executable,
            "Install coordlib in one, or name a ready archive in COORD_ENV_ARCHIVE.",
        )
    packages = _packages()
    archive = folder / f"env-{_fingerprint(packages)}.tar.gz"
    with one_at_a_time(folder / "env.lock"):  # else two launchers write into one partial file
        if not archive.exists():
            with phase(progress, f"Packing the Python environment into {archive.name}"):
                partial = archive.with_suffix(".partial")
                _write(partial, packages)
                partial.rename(archive)  # a half-written archive never has the final name
            _remove_old(folder)
    return archive


def _remove_old(folder: Path) -> None:
    """Remove old archives, but not recent ones, which running jobs may still fetch."""
    by_age = sorted(folder.glob("env-*.tar.gz"), key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[:-_KEPT]:
        path.unlink()


def _packages() -> list[Distribution]:
    installed: dict[str, Distribution] = {}
    for dist in distributions():
        installed.setdefault(name_of(dist), dist)  # the first on the path is the one that runs
    if "coordlib" not in installed:
        raise SetupError(
            "coordlib is not installed in this Python.",
            f"{sys.executable}, which finds it in {PACKAGE}",
            how_to_install("cli", "spark"),
        )
    needed = required(["coordlib[spark]"], installed)
    extras = installed["coordlib"].metadata.get_all("Provides-Extra") or []
    ours = required([f"coordlib[{','.join(extras)}]"], installed)
    needed |= required(installed.keys() - ours, installed)  # packages of users
    return [installed[name] for name in sorted(needed - _LEFT_OUT)]


def required(asked: Iterable[str], installed: Mapping[str, Distribution]) -> set[str]:
    """The installed packages of these requirements and of theirs, by normalised name.

    Of a marker only the extra counts: requirements of other platforms are not installed here.

    Args:
        asked: requirements, such as `moto[server]>=5`.
        installed: distributions by normalised name.
    """
    found: dict[str, set[str]] = {}  # the extras that are asked of each package; "": of all
    waiting = [*asked]
    while waiting:
        requirement = _REQUIREMENT.match(waiting.pop())
        assert requirement is not None  # pip has installed by it
        name, extras = _normalised(requirement["name"]), (requirement["extras"] or "").split(",")
        if name not in installed:
            continue
        fresh = {"", *map(_normalised, extras)} - found.setdefault(name, set())
        found[name] |= fresh
        waiting += [each for each in installed[name].requires or () if fresh & _extras_for(each)]
    return set(found)


def _extras_for(requirement: str) -> set[str]:
    """The extras of its package that bring a requirement; those of all packages have none."""
    return {_normalised(extra) for extra in _EXTRA.findall(requirement)} or {""}


def name_of(dist: Distribution) -> str:
    """A distribution's normalised name."""
    return _normalised(str(dist.metadata["Name"]))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _fingerprint(packages: list[Distribution]) -> str:
    digest = hashlib.sha256(f"{platform.python_version()} {platform.machine()}".encode())
    for dist in packages:
        digest.update(f"{name_of(dist)}=={dist.version}\n".encode())
    for source in _sources():
        digest.update(str(source.relative_to(PACKAGE)).encode() + source.read_bytes())
    return digest.hexdigest()[:12]


def _sources() -> list[Path]:
    return sorted(
        path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
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
            # The settings are a link out of the package in a checkout.
            archive.add(source.resolve(), f"{site_packages}/{source.relative_to(PACKAGE.parent)}")


def _files(packages: list[Distribution], prefix: Path) -> Iterator[Path]:
    for dist in packages:
        for entry in dist.files or ():
            path = Path(str(dist.locate_file(entry)))
            if path.suffix != ".pyc" and ".." not in entry.parts and path.is_relative_to(prefix):
                yield path
