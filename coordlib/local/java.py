"""Find a Java that Spark and the broker run on."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coordlib.errors import NotReady, SetupError

JAVA_MIN = 17  # what Spark 4 and Kafka 4 ask for

_HINT = (
    f"Install a Java runtime {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless; "
    f"macOS: brew install openjdk@17), and set JAVA_HOME to it if it is not the first on the PATH."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable and its major version."""

    path: Path
    version: int


def find_java() -> Java:
    """The Java of JAVA_HOME, else the first on the PATH.

    Raises:
        SetupError: there is none, it does not run, or it is too old.
    """
    path = _executable()
    if path is None:
        raise SetupError("Java was not found.", "looked at JAVA_HOME and the PATH", _HINT)
    version = _major_version(path, path.stat().st_mtime_ns)
    if version < JAVA_MIN:
        raise SetupError(f"Java {version} is too old; {JAVA_MIN} is needed.", str(path), _HINT)
    return Java(path, version)


def property_value(text: str) -> str:
    """A text as `java.util.Properties` reads it from a file: that is Latin-1, and has escapes."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(
        chr(code) if code < 0x7F and code != ord("\\") else f"\\u{code:04x}" for code in codes
    )


def _executable() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        found = Path(home) / "bin" / "java"
        return found if found.is_file() else None
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


@lru_cache
def _major_version(path: Path, _mtime_ns: int) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired as error:
        hint = "A machine that has just booted may need another try."
        raise NotReady("Java has not printed its version in 30 s.", str(path), hint) from error
    except OSError as error:
        raise SetupError(f"Java does not run: {error}", str(path), _HINT) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if found is None:
        raise SetupError("Java did not print its version.", str(path), _HINT)
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8
