"""A TCP proxy in front of a broker, which can hold up one request and break its connection.

The client's connection is closed, so it sends the request again on another one. The first one
reaches the broker when the test says so: as behind a load balancer, or from the socket's buffer of
a broker that stood still.
"""

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Final, NamedTuple

from coordlib.local.processes import LOOPBACK

END_TXN: Final = 26
_PATIENCE_S: Final = 30.0


class Seen(NamedTuple):
    """A request that came by; `at_s` on the monotonic clock."""

    api: int
    version: int
    at_s: float


class Proxy:
    """Passes on what comes to `port`, to the broker's port.

    Args:
        port: where clients connect; the broker must advertise it.
        broker_port: where it is passed on to.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker_port = broker_port
        self._holds: int | None = None
        self._held: tuple[socket.socket, bytes] | None = None
        self._has_held, self._is_answered = threading.Event(), threading.Event()
        self._open: list[socket.socket] = []
        #: All requests, in order.
        self.seen: list[Seen] = []
        self._listener = socket.create_server((LOOPBACK, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_next(self, api: int) -> None:
        """The next request of this kind is held up, and its connection is closed."""
        self._has_held.clear()
        self._is_answered.clear()
        self._holds = api

    def deliver(self) -> None:
        """Let the broker have the request that was held up; returns when it has answered."""
        assert self._has_held.wait(_PATIENCE_S), "no request was held up"
        assert self._held is not None
        upstream, frame = self._held
        upstream.sendall(frame)
        assert self._is_answered.wait(_PATIENCE_S), "the broker did not answer it"

    def times_of(self, api: int) -> list[float]:
        """When requests of this kind came by."""
        return [each.at_s for each in self.seen if each.api == api]

    def close(self) -> None:
        """Close all connections."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection((LOOPBACK, self._broker_port))
                self._open += [client, upstream]
                for target in (self._pass_requests, self._pass_answers):
                    threading.Thread(target=target, args=(client, upstream), daemon=True).start()

    def _pass_requests(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError):
            while frame := _frame(client):
                api, version = struct.unpack(">hh", frame[4:8])
                self.seen.append(Seen(api, version, time.monotonic()))
                if api == self._holds:
                    self._holds, self._held = None, (upstream, frame)
                    client.shutdown(socket.SHUT_RDWR)
                    self._has_held.set()
                    return
                upstream.sendall(frame)
            upstream.shutdown(socket.SHUT_RDWR)

    def _pass_answers(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError):
            while frame := _frame(upstream):
                if self._held is not None and self._held[0] is upstream:
                    self._is_answered.set()  # nobody is left who could be given it
                else:
                    client.sendall(frame)


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer with its length in front; empty: the connection was closed."""
    head = _read(connection, 4)
    return head and head + _read(connection, int.from_bytes(head))


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            return b""
        found += more
    return found
