"""A program drops a client without `close`: its threads end, and no heartbeats follow (INV-143)."""

import gc
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from coordlib.client.shell.failing import FailingTransport, while_used
from coordlib.testing.fake_log import FakeLog
from tests.client.interrupting import HANGS_S
from tests.client.test_consumer import FakeReader, Program


class Transport(FailingTransport[Any]):
    """Two threads, as the real ones have."""

    def __init__(self) -> None:
        self._is_closed = threading.Event()
        pause = threading.Event()
        self.turns = SimpleQueue[int]()
        self.threads = [
            self._start(name, lambda: pause.wait(0.01), Transport._turn) for name in ("a", "b")
        ]

    def _turn(self, _found: object) -> None:
        self.turns.put(threading.get_ident())

    def _guarded(self, turn: Callable[[], None]) -> bool:
        turn()
        return True

    def _named(self, handler: object) -> str:
        return str(handler)


def test_the_threads_of_a_transport_that_nobody_has_end() -> None:
    """They held it, and each other: 26 descriptors of each dropped consumer stayed for ever."""
    transport = Transport()
    threads, turned = transport.threads, set[int]()
    while len(turned) < len(threads):  # each has had the transport
        turned.add(transport.turns.get())
    del transport

    for each in threads:
        each.join(HANGS_S)
    assert not any(each.is_alive() for each in threads)


def test_a_consumer_that_is_dropped_is_collected_with_its_member() -> None:
    """A fake transport holds its handlers, so that the member here is not the transport's."""
    program = Program(FakeLog({"t": 1}), "a")
    consumer = program.consumer
    program.transport.detach(consumer.member)
    gone = weakref.ref(consumer), weakref.ref(consumer.member)
    told = while_used(lambda handler: handler.poll(), consumer.member)
    assert isinstance(program.reader, FakeReader)
    del consumer, program
    gc.collect()

    assert [each() for each in gone] == [None, None]
    told()  # an acknowledgement that comes later
