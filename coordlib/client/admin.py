"""Requests of operators: one question, one answer, in the order of the group's own log."""

import os
import queue
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from coordlib.client import signals as sg
from coordlib.client.transport import KafkaTransport, Transport
from coordlib.client.wording import WIRE_VERSION, Identity
from coordlib.errors import CannotReach, ErrorCode, GroupError
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records.partitioner import shard_of

ANSWER_TIMEOUT_S = 30.0


class Admin:
    """Asks the coordinator about groups, or tells it what to do with them.

    Args:
        config: confluent-kafka's keys for all clients, at least `bootstrap.servers`.
        prefix: the coordinator's topic prefix.
        transport: an open one to share; this class then does not close it.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        prefix: str = "coord",
        *,
        transport: Transport | None = None,
        client: str | None = None,
    ) -> None:
        self._client = client or f"admin-{socket.gethostname()[:60]}-{os.getpid()}"
        self._owned = (
            KafkaTransport(config or {}, prefix, self._client) if transport is None else None
        )
        self._transport: Transport = transport or self._owned  # type: ignore[assignment]

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the transport, if it was opened here."""
        if self._owned is not None:
            self._owned.close()

    def release_quarantine(self, group: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Let a quarantined group go on from the state that was kept; its timers start anew.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND; INVALID_REQUEST, when it is not quarantined or its
                state is unsound.
            CannotReach: no answer in time; the request may still be judged later.
        """
        question = _Question(self._identity(group))
        self._ask(question, rq.ReleaseQuarantine(**question.envelope()), timeout_s)

    def _identity(self, group: str) -> Identity:
        place = self._transport.place
        return Identity(
            group=group,
            client=self._client,
            token=secrets.token_hex(8),
            shard=shard_of(group, place.shards),
            reply=self._transport.reply,
            incarnation=place.incarnation,
        )

    def _ask(self, question: "_Question", request: rq.Request, timeout_s: float) -> rs.Response:
        self._transport.attach(question)
        try:
            self._transport.send(question, request)
            answer = question.wait(timeout_s)
        finally:
            self._transport.detach(question)
        if answer.error != ErrorCode.NONE.name:
            message = answer.message if isinstance(answer.message, str) else ""
            raise GroupError(ErrorCode[answer.error], f"group {request.group}", message)
        return answer


class _Question:
    """A transport's handler that waits for one answer."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._id = f"{identity.token}-1"
        self._heard: queue.SimpleQueue[rs.Response | sg.NotWritten] = queue.SimpleQueue()

    def envelope(self) -> dict[str, Any]:
        identity = self.identity
        return {
            "v": WIRE_VERSION,
            "id": self._id,
            "client": identity.client,
            "group": identity.group,
            "reply": identity.reply,
        }

    def feed(self, event: sg.Input) -> None:
        match event:
            case sg.NotWritten():
                self._heard.put(event)
            case sg.Received(message=rs.Response() as answer) if answer.id == self._id:
                self._heard.put(answer)

    def wake_ms(self) -> int | None:
        return None

    def wait(self, timeout_s: float) -> rs.Response:
        try:
            heard = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            raise CannotReach(
                f"The coordinator did not answer within {timeout_s:.0f} s",
                f"group {self.identity.group}",
                "Look whether the job runs: coord status. The request stays in the log and is "
                "judged when the job is back.",
            ) from None
        if isinstance(heard, sg.NotWritten):
            raise CannotReach(
                f"The request could not be written: {heard.why}",
                f"group {self.identity.group}",
                "Check the broker and the permission to write the requests topic.",
            )
        return heard
