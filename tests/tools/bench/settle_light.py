"""Hundreds of members in one program, light: they share one transport and one polling thread.

Each is the member that an application's consumer stands on, with its own protocol, heartbeats,
fence and callbacks; like a consumer it asks for the committed offsets of what it is given. It has
no data consumer, and no threads and connections of its own: a join begins with the Subscribe, while
a whole consumer connects first. Two hundred whole consumers in one program measure themselves.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from coordlib.client.groups.consumer import SLICE_S
from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions
from coordlib.client.kit.transport import KafkaTransport, Transport
from coordlib.errors import CoordError
from tests.tools.bench.settled import Ownership, Share

#: So that fences and the time between polls are looked at when nothing comes.
ALL_EVERY_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 30.0


class _Member(AssignedMember):
    """Says when something came for it: only then a callback may be due at once."""

    def __init__(self, group: str, woken: Callable[[], None], **more: Any) -> None:
        self._woken = woken
        super().__init__(group, **more)

    def feed(self, event: sg.Input) -> None:
        super().feed(event)
        if isinstance(event, sg.Received):
            self._woken()


class LightMember:
    """One member, from its Subscribe on."""

    def __init__(
        self, number: int, ownership: Ownership, crew: "Crew", transport: Transport, group: str
    ) -> None:
        self.failure: Exception | None = None
        self._share, self._crew = Share(number, ownership), crew
        #: Held while its callbacks may run: in the polling thread, at last in the one that closes.
        self._turn = threading.Lock()
        self._is_leaving = False
        self._closer = threading.Thread(target=self._close, daemon=True)
        self._member = _Member(
            group,
            woken=partial(crew.woke, self),
            transport=transport,
            prefix=transport.place.prefix,
            client=f"bench-{number}",
            on_assigned=self._assigned,
            on_revoked=self._share.lose,
            on_lost=self._share.lose,
        )

    def subscribe(self, topic: str) -> None:
        self._member.subscribe([topic])

    def poll(self) -> None:
        """Run what is due, without waiting; from the polling thread."""
        if not self._turn.acquire(blocking=False):
            return  # it is being closed
        try:
            while not self._is_leaving and self._member.poll():
                pass
        except CoordError as problem:
            self.failure = problem
            self._crew.forget(self)
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Let it leave; `join` waits for that."""
        self._crew.forget(self)
        self._closer.start()

    def join(self) -> None:
        """Wait until it has left."""
        self._closer.join(CLOSE_TIMEOUT_S)
        self._share.end()

    def _close(self) -> None:
        self._is_leaving = True
        try:
            with self._turn:
                self._member.close()
        except CoordError as problem:
            self.failure = problem

    def _assigned(self, partitions: Partitions) -> None:
        if partitions:  # where a consumer would start to read
            self._member.committed_async(partitions).add_done_callback(self._fetched)
        self._share.gain(partitions)

    def _fetched(self, answer: "Future[sg.Answer]") -> None:
        error = answer.result().error
        if error is not None and not self._is_leaving:
            self.failure = error


class Crew:
    """All light members of one group, and the thread that polls them."""

    def __init__(self, transport: Transport, group: str, topic: str) -> None:
        self._transport, self._group, self._topic = transport, group, topic
        self._lock = threading.Lock()
        self._members: dict[LightMember, None] = {}
        self._awake: set[LightMember] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="light-members", daemon=True)
        self._thread.start()

    def start(self, number: int, ownership: Ownership) -> LightMember:
        """One more member; it has said Subscribe on return."""
        member = LightMember(number, ownership, self, self._transport, self._group)
        with self._lock:
            self._members[member] = None
        member.subscribe(self._topic)
        return member

    def woke(self, member: LightMember) -> None:
        """Something came for it: it is to be polled soon."""
        with self._lock:
            self._awake.add(member)

    def forget(self, member: LightMember) -> None:
        """It is not polled any more."""
        with self._lock:
            self._members.pop(member, None)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _poll(self) -> None:
        all_due_s = 0.0
        while not self._is_over.wait(SLICE_S):  # as often as a consumer looks
            with self._lock:
                awake, self._awake = self._awake, set()
                due = [each for each in self._members if each in awake]
                if time.monotonic() >= all_due_s:
                    due, all_due_s = list(self._members), time.monotonic() + ALL_EVERY_S
            for member in due:
                member.poll()


@contextmanager
def crew(config: dict[str, Any], prefix: str, group: str, topic: str) -> Iterator[Crew]:
    """Light members over one transport, which is closed when all have left."""
    transport = KafkaTransport(config, prefix, "bench-light")
    made = Crew(transport, group, topic)
    try:
        yield made
    finally:
        made.end()
        transport.close()
