"""A file system whose rename copies, as an object store's does: CopyingFileSystem.java, compiled.

Spark's classes for object stores are not among pyspark's jars, and the store's own client is some
hundreds of MB. What matters for a checkpoint is here: renames that copy and overwrite, and requests
that take a while.
"""

import subprocess
import zipfile
from pathlib import Path
from typing import Final

from coordlib.local import class_archive
from coordlib.local.home import pyspark_home

CLASS: Final = "CopyingFileSystem"
SCHEME: Final = "copying"
_SOURCE: Final = Path(__file__).with_name(f"{CLASS}.java")
_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing"


def build(folder: Path) -> Path:
    """Compile it into a jar in this folder.

    Raises:
        FileNotFoundError: there is no Java compiler.
        CalledProcessError: it does not compile.
    """
    compiler = class_archive._compiler()
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "--release", "17", "-proc:none", "-d", str(folder)]
    command += ["-cp", f"{pyspark_home() / 'jars'}/*", str(_SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    jar = folder / "copying.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(folder / f"{CLASS}.class", f"{CLASS}.class")
    return jar


def settings(latency_ms: int = 0) -> dict[str, str]:
    """Spark's settings that make `copying://store/folder` a place for a checkpoint."""
    return {
        f"spark.hadoop.fs.{SCHEME}.impl": CLASS,
        f"spark.hadoop.fs.{SCHEME}.latency.ms": str(latency_ms),
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{_MANAGER}.FileSystemBasedCheckpointFileManager"
        ),
    }
