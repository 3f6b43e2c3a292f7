"""How a replicated store is spoken to: requests and answers are JSON over TCP, a line each."""

import json
import socket
import socketserver
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

Address = tuple[str, int]
#: The leader could not acknowledge a put that stands in its log: it may be done, now or later.
UNKNOWN: Final = "REQUEST_TIMED_OUT"
ANSWER_TIMEOUT_S: Final = 3.0


class Refused(Exception):
    """A request that was refused; `error` is Kafka's name for why."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class Connection:
    """Requests to one store, one after the other.

    Raises:
        OSError: it cannot be reached.
    """

    def __init__(self, address: Address, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._file = self._socket.makefile("rwb")

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The answer. Raises Refused, OSError (no answer: what was asked may be done)."""
        self._file.write(json.dumps({"what": what, **fields}).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("closed before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self) -> None:
        """A late answer finds nobody."""
        with suppress(OSError):  # what was not flushed cannot be
            self._file.close()
        self._socket.close()


class Server(socketserver.ThreadingTCPServer):
    """Answers each connection's requests in a thread of its own.

    Args:
        answer: gets `what` and the other fields of a request; may raise Refused.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, address: Address, answer: Callable[..., dict[str, Any]]) -> None:
        super().__init__(address, _Handler)
        self.answer = answer


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        with suppress(ConnectionError):  # whoever asked is gone
            for line in self.rfile:
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            return self.server.answer(**json.loads(line))
        except Refused as refusal:
            return {"error": refusal.error}
        except (KeyError, TypeError, ValueError):
            return {"error": "INVALID_REQUEST"}
