"""A small class for Spark on a laptop: local files without a `chmod` process for each.

A batch of the job makes eight files, and Hadoop starts a process for each of them: a fifth of a
batch. The class is compiled when the jars are set up. Where there is no compiler (a JRE has none),
or the folder cannot be written, the job runs without it.
"""

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from coordlib.installation import PACKAGE
from coordlib.local.home import coord_home, pyspark_home
from coordlib.local.java import find_java
from coordlib.local.progress import Progress

CLASS: Final = "QuietLocalFileSystem"
#: Spark's property that puts it in the place of Hadoop's own.
PROPERTY: Final = "spark.hadoop.fs.file.impl"
_SOURCE: Final = PACKAGE / "local" / f"{CLASS}.java"
_TIMEOUT_S: Final = 120.0


def jar() -> Path | None:
    """The compiled class, if it was made."""
    path = _path()
    return path if path.is_file() else None


def build(progress: Progress) -> Path | None:
    """Compile the class if it is not there; None, and one line that says why, if that fails."""
    path = _path()
    if path.is_file():
        return path
    try:
        _compile(path)
    except (OSError, subprocess.SubprocessError) as problem:
        progress(f"Local files are written the slow way: {why(problem)}")
        return None
    return path


def _path() -> Path:
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    return coord_home() / "made" / f"quiet-files-{digest}.jar"


def _compile(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        subprocess.run(
            [
                *(_compiler(), "--release", "17", "-proc:none", "-d", folder),
                *("-cp", f"{pyspark_home() / 'jars'}/*", str(_SOURCE)),
            ],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        partial = Path(folder) / "partial.jar"
        with zipfile.ZipFile(partial, "w") as archive:
            for each in sorted(Path(folder).glob("*.class")):
                archive.write(each, each.name)
        partial.rename(path)  # a half-written jar never has the final name


def _compiler() -> str:
    beside = find_java().path.resolve().with_name("javac")
    found = str(beside) if beside.is_file() else shutil.which("javac")
    if found is None:
        raise FileNotFoundError("there is no javac; a JDK has one")
    return found


def why(problem: Exception) -> str:
    """The first line of what a failed program has said, or else of the failure."""
    told = getattr(problem, "stderr", None) or getattr(problem, "stdout", None) or str(problem)
    return told.strip().splitlines()[0] if told.strip() else type(problem).__name__
