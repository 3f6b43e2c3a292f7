"""The files in the folder of a stack, and how they are deleted.

        state.json   the stack's facts: bootstrap servers, prefix, shards, responses, claims
        broker/      the broker's ports, properties and segments
        secrets/  clients/   of a secured stack: passwords and certificates; a file for each role
        checkpoint/  checkpoint-archive/  checkpoint-claims/  tables/    the job's
        logs/        broker.log, job.log
        job.json     written by the job: state, driver pid, batch
        demo         empty: `coord demo` made this stack, and may delete it
        lock         held during up and down; the kernel frees it when its holder dies

`state.json` is written before all files but `lock`. A folder that holds other files and no
`state.json` of ours is never written to and never deleted, whatever the names of its files: many
folders have a `tables` beside a `logs`. Only this user can enter the folder (0700): member
ids, offsets' metadata and logs lie in it.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from coordlib.errors import SetupError

STATE: Final = "state.json"
NEW_STATE: Final = "state.json.new"  # while it is written
#: A job that was launched earlier waits for it.
BEGIN: Final = "begin"
LOCK: Final = "lock"
DEMO: Final = "demo"
PRIVATE: Final = 0o700
PRIVATE_UMASK: Final = 0o077  # of the broker and the job: their files are this user's alone
STATE_BYTES_MAX: Final = 64 * 1024

#: All files that a stack, its job or the demo makes there; patterns as in a shell.
CHILDREN: Final = (
    *(
        "broker",
        "secrets",
        "clients",
        "checkpoint",
        "checkpoint-archive",
        "checkpoint-claims",
        "tables",
        "logs",
        "witnesses",
    ),
    *(
        "job.json",
        "job.json.new",
        "launcher.json",
        "driver.pid",
        "driver.pid.*",
        "exit-code",
        BEGIN,
    ),
    *("history.jsonl", "history-assigned.jsonl"),
    *(BEGIN, DEMO, LOCK, STATE, NEW_STATE),
)
#: Files that a first start may leave if it was killed before it had written `state.json`.
_BEGUN: Final = frozenset({LOCK, NEW_STATE, DEMO})
_STATE_KEYS: Final = {"bootstrap_servers", "prefix", "shards", "responses"}


def read_state(home: Path) -> dict[str, Any]:
    """The content of `state.json`; empty if there is none, or one that is not ours."""
    path = home / STATE
    try:
        if path.is_symlink() or path.stat().st_size > STATE_BYTES_MAX:
            return {}
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) and state.keys() >= _STATE_KEYS else {}


def write_state(home: Path, state: Mapping[str, Any]) -> None:
    """Replace `state.json` whole: a full disk or a power cut must not make a stack unknown."""
    fresh = home / NEW_STATE
    fresh.write_text(json.dumps(state, indent=1) + "\n")
    fresh.replace(home / STATE)


def holds_stack(home: Path) -> bool:
    """Whether a stack was started in this folder, also one whose first start failed."""
    return bool(read_state(home))


def make(home: Path) -> None:
    """Make the folder for a stack, or take the one that is there if it is empty or a stack's.

    An empty one may have the files with which a first start begins.

    Raises:
        SetupError: something else lies there; nothing was changed.
    """
    try:
        home.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    except OSError as problem:
        raise SetupError(
            f"The stack's folder cannot be made: {problem.strerror}", str(home), "Name another."
        ) from problem
    if not holds_stack(home) and any(child.name not in _BEGUN for child in home.iterdir()):
        raise SetupError(
            "This folder holds something else than a stack.",
            str(home),
            "Nothing was written. Name an empty folder, or one that does not exist yet.",
        )
    home.chmod(PRIVATE)


def require_stack(home: Path) -> None:
    """Check that this folder may be deleted.

    Raises:
        SetupError: it is a link, or no stack was ever started in it.
    """
    if home.is_symlink() or not home.is_dir() or not read_state(home):
        raise SetupError(
            "This is no folder of a stack: it is not deleted.",
            f"{home}: " + ("a symbolic link" if home.is_symlink() else f"no {STATE} of a stack"),
            "Nothing was changed. Check --stack or --stack-folder.",
        )


def wipe(home: Path) -> list[str]:
    """Delete a stack's files, then the folder if no other file is in it.

    A link is removed and not followed. `state.json` goes last: a wipe that was cut short can be
    repeated.

    Returns:
        The names of files that were left, because no stack makes them.
    """
    require_stack(home)
    names = {child.name for child in home.iterdir()}
    left = sorted(name for name in names if not _is_ours(name))
    for name in sorted(names - {*left, LOCK, DEMO, STATE}):
        _remove(home / name)
    _remove(home / LOCK)
    _remove(home / DEMO)
    _remove(home / STATE)
    if not left:
        with contextlib.suppress(OSError):  # another process has just begun to use it again
            home.rmdir()
    return left


def _is_ours(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in CHILDREN)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
