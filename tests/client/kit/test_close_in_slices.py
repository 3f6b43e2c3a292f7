"""A close that waits for the log keeps no call of another client waiting.  # INV-141"""

import os
import signal
import threading
import time
from typing import Any

import pytest

from tests.client.world import World

#: The close waits so long if nothing answers it: who waits for its end, comes too late.
CLOSE_S = 20


def test_calls_of_another_client_return_while_one_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All uninterrupted calls of the main thread share one thread, which a close must not keep."""
    world = World()
    closing, other = (user.member for user in world.join("a", "b"))
    wait_until, found = closing._wait_until, []

    def waits(timeout_s: float, is_so: Any) -> bool:
        found.append(wait_until(timeout_s, is_so))
        return found[-1]

    def handle(*_: Any) -> None:
        other.may_work()
        world.log.pump()  # only now is the leaving member answered

    def interrupt_the_wait() -> None:
        while not closing._changed._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(closing, "_wait_until", waits)
    before = signal.signal(signal.SIGUSR1, handle)
    interrupting = threading.Thread(target=interrupt_the_wait)
    try:
        interrupting.start()
        closing.close(CLOSE_S)
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    assert found == [True], "the other's call returned when the close had given up"
