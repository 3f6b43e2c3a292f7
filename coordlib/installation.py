"""Where this package lies, and what to install where something beside it is missing.

    coordlib/conf/…                      files that code reads; they come with the package
    <checkout>/conf/coordinator.toml     the settings, for people to copy and edit;
                                         coordlib/conf/coordinator.toml is a link to it, and a
                                         file in a wheel

A checkout is a folder with this project's sources. Where a wheel was installed there is none.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError

PACKAGE: Final = Path(__file__).resolve().parent

#: Modules that a job imports, and that the extra `spark` installs.
JOB_MODULES: Final = ("pyspark", "delta", "pandas", "pyarrow", "nacl", "structlog")


def checkout() -> Path | None:
    """The folder of the project's sources; None where the package came from a wheel."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() else None


def conf_file(name: str) -> Path:
    """A file of coordlib/conf/.

    Raises:
        SetupError: it is not there.
    """
    path = PACKAGE / "conf" / name
    if not path.is_file():
        raise SetupError(f"coordlib/conf/{name} is missing.", str(path), "Install coordlib again.")
    return path


def settings_file() -> Path:
    """The coordinator's settings, each with its default: what a job reads if it is given no other.

    It may be missing, where the package alone was copied.
    """
    return (PACKAGE / "conf" / "coordinator.toml").resolve()


def how_to_install(*extras: str) -> str:
    """The command that installs these extras, as a user would type it."""
    if checkout() is not None:
        return "Run: make setup"
    return f"Run: pip install 'coordlib[{','.join(extras)}]'"


def require_job_modules() -> None:
    """Check that this Python has what a job imports, without importing it.

    Raises:
        SetupError: something is missing.
    """
    missing = [name for name in JOB_MODULES if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"The job needs packages that are not installed: {', '.join(missing)}",
            sys.executable,
            how_to_install("cli", "spark"),
        )
