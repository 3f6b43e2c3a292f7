"""From an empty folder to a stopped stack: one act or several, and a verdict on each.

Whatever happens, also Ctrl-C, no process is left behind; the folder stays for inspection.
"""

import fcntl
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coordlib.demo import acts, show
from coordlib.demo.act import JOB_ARGS, NAME, Act
from coordlib.demo.members import end_leftovers
from coordlib.errors import NotReady, SetupError
from coordlib.installation import checkout, require_job_modules
from coordlib.local import stack_folder
from coordlib.local.home import stack_home
from coordlib.local.java import find_java
from coordlib.local.progress import Progress, ended_by_signals
from coordlib.local.stack import Stack


def play(
    progress: Progress, print_table: show.PrintTable, keep: bool, names: Sequence[str] = ()
) -> int:
    """The acts of these names, or the usual ones; returns the exit code. Raises as `run`."""
    wanted = acts.chosen(names)
    require_job_modules()
    find_java()
    live = show.Live(progress)
    with ended_by_signals(), _alone(stack_home(NAME).with_suffix(".lock")):
        stack = Stack(NAME, prefix=NAME)
        _require_own(stack.home)
        is_done = False
        try:
            _start(stack, live)
            played = [(act, act.play(stack, live)) for act in wanted]
            is_done = True
        finally:
            if not is_done:
                live("Interrupted or failed: everything is stopped first")
            with _undisturbed():
                end_leftovers(stack.home)
                if not (keep and is_done):
                    stack.down(progress=live)
    checks = []
    for act, found in played:
        checks += act.tell(found, print_table)
    show.end(checks, live.elapsed_s())
    _tell_where_to_look(live, wanted[-1], keep)
    return 0 if all(check.is_ok for check in checks) else 1


def _tell_where_to_look(live: show.Live, act: Act, keep: bool) -> None:
    for number, look in enumerate(act.looks()):
        live(f"{'' if number else 'Look around:':13}{look}")
    if checkout():
        live(f"             COORD_GROUP={act.group}: notebooks/who-owned-what.ipynb draws it")
    if keep:
        live(f"             coord status --stack {NAME}; and then: coord down --stack {NAME}")


def _require_own(home: Path) -> None:
    """Check that this folder may be deleted: the demo made it, or nothing is in it.

    Raises:
        SetupError: the folder has a stack that was not started by the demo.
    """
    if stack_folder.read_state(home) and not (home / stack_folder.DEMO).is_file():
        raise SetupError(
            f"The stack {NAME} is not of the demo: it is not deleted.",
            str(home),
            "Nothing was changed. The demo needs this name: move the folder away, or delete the "
            f"stack: coord down --wipe --stack {NAME}",
        )


def _start(stack: Stack, live: show.Live) -> None:
    """An empty folder, broker, job."""
    if stack_folder.read_state(stack.home):
        live("An earlier demo was left: it is stopped and deleted first")
        end_leftovers(stack.home)
        stack.down(wipe=True, progress=live)
    stack_folder.make(stack.home)
    (stack.home / stack_folder.DEMO).touch()  # first of all: the next steps may be interrupted
    stack.up(live, JOB_ARGS)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two demos at once would delete each other's folder."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotReady(
                "Another demo is running.", str(lock), "Wait until it is done, or stop it (Ctrl-C)."
            ) from None
        yield


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not stop the stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
