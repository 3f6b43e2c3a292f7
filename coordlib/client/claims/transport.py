"""What consumers of claims need from outside, and what the outside needs of them.

One lock guards the views and all handlers of a transport: a handler asks its views while it takes
an input, and the thread that reads feeds handlers while it holds the views.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from coordlib.client.claims import signals as sg
from coordlib.client.claims.view import LogView
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.claims.slot import Judgement
from coordlib.core.wire.marshal import AnyMessage
from coordlib.kafka.places import Bounds


@dataclass(frozen=True, slots=True)
class Coordination:
    """The coordination topic, as it was found at the start; it may not change (section 5)."""

    topic: str
    #: N.
    partitions: int
    #: Kafka's. Epochs compare within one topic id.
    topic_id: str
    #: HI, by the topic's name.
    interval_ms: int


class Described(NamedTuple):
    """A topic whose partitions are claimed, as brokers describe it."""

    partitions: int
    #: Kafka's; empty: these brokers give none.
    topic_id: str


class Handler(Protocol):
    """A consumer, or an admin's work, as the transport sees it. Called with the lock held."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics whose coordination partitions are read for it."""

    def feed(self, event: sg.Input) -> None:
        """Take what happened; quick, from any thread."""

    def judged(self, view: LogView, judgement: Judgement) -> None:
        """A record was judged; the view shows what follows."""

    def wake_ms(self) -> int | None:
        """When its next timer is due; None: it has none."""

    def fail(self, problem: Exception) -> None:
        """It raised in a thread of the transport, or the coordination topic has changed."""


class Transport(Protocol):
    """The services that consumers need. Times are of CLOCK_BOOTTIME, in ms."""

    @property
    def place(self) -> Coordination: ...

    @property
    def lock(self) -> threading.RLock:
        """Guards views and handlers."""

    def now_ms(self) -> int: ...

    def new_instance(self) -> str:
        """8 lower-case hexadecimal digits that no other process has."""

    def luck(self) -> Random:
        """For jitter: every consumer has its own."""

    def view_of(self, topic: str) -> LogView:
        """The coordination partition of a topic. Read since a handler with this topic came."""

    def attach(self, handler: Handler) -> None:
        """Read its topics' coordination partitions and deliver to it from now on. May block.

        Raises CannotReach, NotAllowed.
        """

    def keep(self, handler: Handler) -> None:
        """Go on with one that its program is done with, until it is detached.

        Others are no more delivered to once their programs have dropped them.
        """

    def detach(self, handler: Handler) -> None: ...

    def send(
        self, handler: Handler, id_: int, partition: int, made: Callable[[int], AnyMessage]
    ) -> None:
        """Write a message; its outcome is fed to the handler later. Never blocks or raises.

        Args:
            partition: of the coordination topic.
            made: makes the message from the time of day in seconds.
        """

    def beside(self, handler: Handler, work: Callable[[], None]) -> None:
        """Do something for this handler that may block, without the lock."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was sent is acknowledged or given up; whether it is."""

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """Those of the topics that exist. Raises CannotReach, NotAllowed."""

    def bounds(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        """Where the logs of these partitions begin and end; without those that do not answer.

        Raises CannotReach, NotAllowed. May block.
        """

    def committed(
        self, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Kafka's committed offsets of a group, where there are any.

        Raises CannotReach, NotAllowed.
        """

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], is_awaited: bool) -> None:
        """Commit to Kafka's group of this name.

        Awaited: raises CannotReach or NotAllowed unless Kafka has them. Else best effort, and never
        blocks.
        """

    def check(self) -> None:
        """Raises CannotReach when the transport itself has failed; NotAllowed."""

    def close(self) -> None: ...
