"""Callbacks of a client that several threads poll and close."""

import sys
import threading

import pytest

from coordlib.client.kit.calls import Callbacks, OnePoller
from coordlib.errors import CoordError


def test_two_threads_run_a_callback_once() -> None:
    """Another thread closes while the main thread is about to run it."""
    called: list[str] = []
    others: list[threading.Thread] = []

    def begins(_: str) -> None:
        if not others:
            others.append(threading.Thread(target=callbacks.run))
            others[0].start()
            others[0].join(0.2)

    callbacks = Callbacks[str](lambda each: (called.append, (each,)), lambda *_: None, begins)
    callbacks.due.append("a")
    callbacks.run()
    others[0].join()

    assert called == ["a"]
    assert not callbacks.due


def test_a_poll_inside_a_poll_does_not_end_that() -> None:
    """In a callback, say: it is still this thread that polls."""
    poller, problems = OnePoller(), list[CoordError]()
    frame = sys._getframe()
    me = threading.get_ident()
    assert poller.begin(frame, me) is None
    poller.end(poller.begin(frame, me))

    def other() -> None:
        with pytest.raises(CoordError, match="Another thread is polling") as told:
            poller.begin(frame, 1)
        problems.append(told.value)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert problems
