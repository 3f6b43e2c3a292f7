"""Running members of a group, each a consumer in a thread: ours and Kafka's, otherwise alike.

Both are the consumers that an application would use, with their defaults, polled in the same way;
`settle_light` has members for groups that are too large for so many consumers in one program.
With the protocol `assigned` the coordinator divides: ours by `sticky`, Kafka's as in its groups of
KIP-848 (`group.protocol=consumer`).
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from tests.tools.bench.settled import Ownership, Share

POLL_S: Final = 0.1
CLOSE_TIMEOUT_S: Final = 30.0

#: Groups whose coordinator divides.
ASSIGNED: Final = "assigned"
#: Makes a consumer and subscribes it, with what to tell when it is assigned or revoked.
Open = Callable[["Member"], Any]


class Member:
    """One member, from its construction on."""

    def __init__(self, number: int, ownership: Ownership, open_consumer: Open) -> None:
        self.number, self._open = number, open_consumer
        self.failure: Exception | None = None
        self._share = Share(number, ownership)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{number}", daemon=True)
        self._thread.start()

    def assigned(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._share.gain(partitions)

    def revoked(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._share.lose(partitions)

    def stop(self) -> None:
        """Let it end; `join` waits for that."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has left and closed."""
        self._thread.join(CLOSE_TIMEOUT_S)
        self._share.end()

    def _run(self) -> None:
        try:
            consumer = self._open(self)
            while not self._stop.is_set():
                consumer.poll(POLL_S)
            consumer.close()
        except Exception as problem:  # noqa: BLE001  # told by whoever measures
            self.failure = problem


def ours(config: dict[str, Any], topic: str, protocol: str) -> Open:
    """Members that the job coordinates; `config` has `coord.prefix` and `group.id`."""

    def open_consumer(member: Member) -> CoordinatedConsumer:
        consumer = CoordinatedConsumer(
            {
                **config,
                "client.id": f"bench-{member.number}",
                "enable.auto.commit": False,
                **_chosen(protocol, "assigned"),
            }
        )
        consumer.subscribe(
            [topic], on_assign=member.assigned, on_revoke=member.revoked, on_lost=member.revoked
        )
        return consumer

    return open_consumer


def kafkas(config: dict[str, Any], topic: str, protocol: str) -> Open:
    """Members that the broker coordinates; `config` has `group.id`."""

    def open_consumer(member: Member) -> Consumer:
        consumer = Consumer(
            {
                **config,
                "client.id": f"bench-{member.number}",
                **_chosen(protocol, "consumer"),
            }
        )
        consumer.subscribe([topic], on_assign=member.assigned, on_revoke=member.revoked)
        return consumer

    return open_consumer


def _chosen(protocol: str, name_of_assigned: str) -> dict[str, str]:
    """The settings that choose how a group assigns."""
    if protocol == ASSIGNED:
        return {"group.protocol": name_of_assigned}
    return {"partition.assignment.strategy": protocol}
