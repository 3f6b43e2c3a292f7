"""What makes a JVM of Spark start faster on a laptop: loaded classes (AppCDS), local files."""

import errno
import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordlib.errors import CoordError
from coordlib.installation import PACKAGE, conf_file
from coordlib.local.home import coord_home, pyspark_home
from coordlib.local.java import find_java
from coordlib.local.progress import Progress, to_stderr

QUIET_CLASS: Final = "QuietLocalFileSystem"
#: Spark's property that puts it in the place of Hadoop's own.
QUIET_PROPERTY: Final = "spark.hadoop.fs.file.impl"
_SOURCE: Final = PACKAGE / "local" / f"{QUIET_CLASS}.java"
_COMPILE_TIMEOUT_S: Final = 120.0


def quiet_jar() -> Path | None:
    """The compiled class, if it was made."""
    path = _quiet_path()
    return path if path.is_file() else None


def build_quiet_jar(progress: Progress) -> Path | None:
    """Compile the class if it is not there; None, and one line that says why, if that fails."""
    path = _quiet_path()
    if path.is_file():
        return path
    try:
        _compile(path)
    except (OSError, subprocess.SubprocessError) as problem:
        progress(f"Local files are written the slow way: {why(problem)}")
        return None
    return path


def _quiet_path() -> Path:
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
            timeout=_COMPILE_TIMEOUT_S,
            check=True,
        )
        partial = Path(folder) / "partial.jar"
        with zipfile.ZipFile(partial, "w") as archive:
            for each in sorted(Path(folder).glob("*.class")):
                archive.write(each, each.name)
        partial.rename(path)  # a half-written jar never has the final name


def _compiler() -> str:
    compiler = find_java().path.resolve().with_name("javac")
    found = str(compiler) if compiler.is_file() else shutil.which("javac")
    if found is None:
        raise FileNotFoundError("there is no javac; a JDK has one")
    return found


def why(problem: Exception) -> str:
    """The first line of what a failed program has said, or else of the failure."""
    output = getattr(problem, "stderr", None) or getattr(problem, "stdout", None) or str(problem)
    return output.strip().splitlines()[0] if output.strip() else type(problem).__name__


#: `off`: neither make nor use an archive; `use`: use it if it is there.
VARIABLE: Final = "COORD_CLASS_ARCHIVE"
FREE_SPACE_MIN: Final = 1 << 30
_TIMEOUT_S: Final = 900.0
_NICE: Final = 19
_FAILED: Final = "No archive of classes, so the job starts slower:"
#: With other options, as another collector, Java ignores what it cannot use.
_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g")


def options(jars: Sequence[Path]) -> str:
    """Java's options that use the archive for these jars; empty: there is none.

    As Spark's launcher reads them: a blank outside of quotes ends an option, and homes have blanks.
    Java says nothing of an archive that does not fit, and goes on without it.
    """
    path = _path(jars) if _is_wanted(os.environ) else None
    if path is None or not path.is_file():
        return ""
    return f'"-XX:SharedArchiveFile={_quoted(path)}" -Xlog:cds=off'


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def make_in_background(jars: Sequence[Path], progress: Progress = to_stderr) -> None:
    """Begin to make the archive, unless it is there; returns at once.

    One line says why it cannot be made, or why the try before this one came to nothing.
    """
    is_wanted = _is_wanted(os.environ) and os.environ.get(VARIABLE) != "use"
    path = _path(jars) if is_wanted else None
    if path is None or path.is_file():
        return
    log_file = path.with_name("class-archive.log")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if failure := _failure_in(log_file):
            progress(failure)
        with log_file.open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-m", "coordlib.local.class_archive", *map(str, jars)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it goes on when the command has ended
            )
    except OSError as problem:
        progress(f"{_FAILED} {problem}")


def _failure_in(log_file: Path) -> str | None:
    """What the last try wrote as its end, if that was a failure."""
    if not log_file.exists():
        return None
    lines = log_file.read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.startswith(_FAILED)), None)


def make(jars: Sequence[Path]) -> Path | None:
    """The archive for these jars, made now if it is not there; None: another process makes it.

    Raises:
        SetupError: no Java.
        OSError, subprocess.SubprocessError: it could not be made, as where no space is left.
    """
    path = _path(jars)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder) as is_alone:
        if not is_alone or path.is_file():
            return path if path.is_file() else None
        if shutil.disk_usage(folder).free < FREE_SPACE_MIN:
            raise OSError(errno.ENOSPC, "less than 1 GiB is free", str(folder))
        for stale in folder.glob("classes-*.jsa"):
            stale.unlink()
        _dump(path, _class_path(jars))
    return path


def _is_wanted(environ: Mapping[str, str]) -> bool:
    return environ.get(VARIABLE) != "off" and not environ.get("COORD_SPARK_HOME")


def _path(jars: Sequence[Path]) -> Path:
    """Named by all that Java compares, so that one that does not fit is not even tried."""
    digest = hashlib.sha256(str(find_java().path.resolve()).encode())
    digest.update(_list_file().read_bytes())
    for jar in (*_extra(jars), *sorted((pyspark_home() / "jars").glob("*.jar"))):
        about = jar.stat()
        digest.update(f"{jar} {about.st_size} {about.st_mtime_ns}\n".encode())
    return coord_home() / "made" / f"classes-{digest.hexdigest()[:12]}.jsa"


def _list_file() -> Path:
    return conf_file("classes.txt.gz")


def _extra(jars: Sequence[Path]) -> list[Path]:
    quiet = quiet_jar()
    return [*([] if quiet is None else [quiet]), *jars]


def _class_path(jars: Sequence[Path]) -> str:
    """The class path of the job's JVM, as Spark's own launcher composes it."""
    spark = pyspark_home()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as properties:
        extra = ":".join(map(str, _extra(jars)))
        properties.write(f"spark.driver.extraClassPath {extra}\n")
        properties.flush()
        command = [str(spark / "bin" / "spark-submit"), "--properties-file", properties.name]
        environment = {**os.environ, "SPARK_PRINT_LAUNCH_COMMAND": "1"}
        launched = subprocess.run(
            [*command, "--version"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    found = re.search(r"^Spark Command: .*? -cp (.*?) -X", launched.stderr, re.MULTILINE)
    if found is None:
        raise OSError(f"Spark does not say its class path: {launched.stderr[:500]}")
    return found.group(1)


def _dump(path: Path, class_path: str) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        listed, partial = Path(folder) / "classes.txt", Path(folder) / "partial.jsa"
        listed.write_bytes(gzip.decompress(_list_file().read_bytes()))
        command = [str(find_java().path), *_OPTIONS, "-Xshare:dump", "-Xlog:cds=off"]
        command += [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={partial}"]
        subprocess.run(
            [*command, "-cp", class_path],
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
        partial.rename(path)  # a half-written archive never has the final name


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other process makes one. The lock ends with its process."""
    with (folder / "class-archive.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main(jars: Sequence[str]) -> int:
    """Make the archive for these jars, at the lowest priority; returns the exit code."""
    os.nice(_NICE)
    try:
        path = make([Path(each) for each in jars])
    except (CoordError, OSError, subprocess.SubprocessError) as problem:
        to_stderr(f"{_FAILED} {why(problem)}")
        return 1
    to_stderr(f"The archive of classes: {path or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
