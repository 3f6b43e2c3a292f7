"""Files of a laptop: where generated ones lie, those with secrets, ends of logs, locks."""

import fcntl
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError
from coordlib.installation import checkout, how_to_install

DEFAULT_STACK: Final = "local"
STACK_VARIABLE: Final = "COORD_STACK_NAME"
STACK_NAME_LENGTH_MAX: Final = 100  # a folder's name may have 255 bytes; logs and messages name it

_STACK_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")


def coord_home() -> Path:
    """The folder of all generated files. Not created.

    COORD_HOME, else `.coord` in the checkout, else `.coord` in the user's home: never beside the
    installed package, where the next installation would delete it.

    Raises:
        SetupError: this user has no home folder.
    """
    chosen = os.environ.get("COORD_HOME")
    if chosen:
        return Path(chosen).resolve()
    try:
        return (checkout() or Path.home()) / ".coord"
    except RuntimeError as problem:
        raise SetupError(
            "This user has no home folder.", str(problem), "Name a folder in COORD_HOME."
        ) from problem


def stack_home(stack: str | Path) -> Path:
    """The folder of a stack: a name is a folder in stacks/, a `Path` is the folder itself.

    A path is made absolute, and symbolic links in it stay as they are.

    Raises:
        SetupError: the name is not allowed. A text is never taken as a path, so that no name can
            lead out of stacks/.
    """
    if isinstance(stack, Path):
        return Path(os.path.abspath(stack))  # noqa: PTH100  # resolve() would follow a link
    if (
        len(stack) > STACK_NAME_LENGTH_MAX
        or stack in (".", "..")
        or not _STACK_NAME.fullmatch(stack)
    ):
        raise SetupError(
            "This is no name of a stack.",
            repr(stack[: 2 * STACK_NAME_LENGTH_MAX]),
            f"A name has 1 to {STACK_NAME_LENGTH_MAX} letters, digits, dots, dashes and "
            "underscores, and no dash first. A folder elsewhere: --stack-folder FOLDER",
        )
    return coord_home() / "stacks" / stack


def command_for(home: Path, command: str) -> str:
    """A command of `coord` for the stack in this folder, as a user would type it."""
    words = ["coord", *command.split()]
    if home.parent != coord_home() / "stacks":
        words += ["--stack-folder", str(home)]
    elif home.name != DEFAULT_STACK or os.environ.get(STACK_VARIABLE):
        words += ["--stack", home.name]
    return shlex.join(words)


def pyspark_home() -> Path:
    """The installed pyspark package, found without importing it.

    Raises:
        SetupError: pyspark is not installed in this Python.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError(
            "pyspark is not installed in this Python.",
            "Spark and Ivy are taken from it",
            how_to_install("cli", "spark"),
        )
    return Path(spec.origin).parent


PRIVATE_FILE: Final = 0o600


def write_private(path: Path, text: str) -> None:
    """Write a file of this user alone, in place of an older one; never half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    fresh.replace(path)


def size_of(path: Path) -> int:
    """Bytes of a log so far; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, count: int, since: int = 0) -> str:
    """The last lines, of those written after byte `since`; empty if there is no log."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(since)
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-count:])


@contextmanager
def one_at_a_time(lock_file: Path) -> Iterator[None]:
    """Hold a lock, whose folder is made if there is none. It ends with its process."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
