"""Calls that are done whole, and the locks of the main thread.  # INV-141"""

import logging
import threading
from typing import Any

from coordlib.client.kit.calls import uninterrupted
from coordlib.client.kit.data import open_reader

LOG = logging.getLogger("coordlib.client")


class _OfMainThread(logging.Handler):
    """As if the main thread held its lock all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def acquire(self) -> None:
        assert threading.current_thread() is threading.main_thread(), "it would block for ever"
        super().acquire()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@uninterrupted
def logs(*lines: str, level: int = logging.WARNING) -> None:
    for each in lines:
        LOG.log(level, "%s", each)


def test_what_a_call_logs_needs_no_lock_of_the_main_thread(monkeypatch: Any) -> None:
    """A signal handler that closes a client comes while the main thread logs itself."""
    askers: list[threading.Thread] = []
    is_enabled = logging.Logger.isEnabledFor

    def noted(self: logging.Logger, level: int) -> bool:  # takes the lock of all of logging
        askers.append(threading.current_thread())
        return is_enabled(self, level)

    monkeypatch.setattr(logging.Logger, "isEnabledFor", noted)
    handler = _OfMainThread()
    LOG.addHandler(handler)
    try:
        logs("a", "b")
        logs("not shown", level=logging.DEBUG)
        LOG.warning("c")
    finally:
        LOG.removeHandler(handler)
    assert handler.lines == ["a", "b", "c"]
    assert set(askers) == {threading.main_thread()}


def test_a_callback_of_the_library_runs_in_the_main_thread_after_the_call() -> None:
    runners: list[threading.Thread] = []
    reader = open_reader(
        {
            "bootstrap.servers": "localhost:1",
            "log_level": 0,
            "error_cb": lambda _: runners.append(threading.current_thread()),
        }
    )
    poll = uninterrupted(lambda: reader.poll(0.05))
    while not runners:
        poll()
    reader.close()
    assert set(runners) == {threading.main_thread()}
