"""Where things lie.

    <project>/conf/…                     kept in the repository
    <project>/.coord/                    everything generated; git-ignored; COORD_HOME overrides
        jars/spark/*.jar  jars/broker/*.jar  ivy/ (the download cache)
        stacks/<name>/                   one local stack: broker, logs, checkpoint, tables, state

The project is the folder that holds the package `coordlib`, because conf/ lies beside the package
and is not inside it. An installed copy without a project around it finds no conf/, and says so.
"""

import importlib.util
import os
from pathlib import Path

from coordlib.errors import SetupError


def project_root() -> Path:
    """The folder that holds coordlib/, conf/ and spark-submit.sh."""
    return Path(__file__).resolve().parents[2]


def coord_home() -> Path:
    """The folder of everything generated: COORD_HOME, else .coord in the project. Not created."""
    chosen = os.environ.get("COORD_HOME")
    return Path(chosen).resolve() if chosen else project_root() / ".coord"


def stack_home(name_or_path: str | Path) -> Path:
    """The folder of a stack: a bare name lies in stacks/, a path is taken as it is."""
    text = str(name_or_path)
    if "/" in text or os.sep in text:
        return Path(name_or_path).resolve()
    return coord_home() / "stacks" / text


def conf_file(name: str) -> Path:
    """A file of conf/.

    Raises:
        SetupError: the package is installed without its project.
    """
    path = project_root() / "conf" / name
    if not path.is_file():
        raise SetupError(
            f"conf/{name} is missing",
            str(path),
            "Run from a checkout of the project: the local stack needs its conf/ folder.",
        )
    return path


def pyspark_home() -> Path:
    """The installed pyspark package, found without importing it.

    Raises:
        SetupError: pyspark is not installed in this Python.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError(
            "pyspark is not installed in this Python",
            "the local stack and spark-submit.sh take Spark and Ivy from it",
            "Run: make setup",
        )
    return Path(spec.origin).parent
