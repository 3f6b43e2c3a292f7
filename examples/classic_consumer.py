"""A consumer in a classic group: the members share a topic, and one of them divides its partitions.

    python examples/classic_consumer.py localhost:9092 orders --group billing

Start it several times: each process gets a share of the partitions. End one with Ctrl-C, and the
others have its partitions at once; end one with `kill -9`, and they have them when its session has
expired. They begin at the offsets that it has committed last.
"""

import argparse
import os
import signal
import threading
from typing import Any

from confluent_kafka import TopicPartition

from coordlib.client import CoordinatedConsumer, MemberFenced

BATCH = 100
POLL_S = 1.0


def consume(consumer: CoordinatedConsumer, stop: threading.Event) -> None:
    """Print records and commit them, until the program is to stop."""
    while not stop.is_set():
        messages = consumer.consume(BATCH, POLL_S)
        for message in messages:
            if (error := message.error()) is not None:
                print(f"error: {error}", flush=True)
                continue
            # A system that refuses smaller tokens than the greatest it has seen refuses a member
            # that was replaced and does not know yet.
            token = consumer.member.fence_token
            where = f"{message.topic()}-{message.partition()}@{message.offset()}"
            print(f"record {where} token {token}: {message.value()!r}", flush=True)
        if messages:
            commit(consumer, asynchronous=False)


def commit(consumer: CoordinatedConsumer, *, asynchronous: bool) -> None:
    """Commit all records that were returned."""
    try:
        consumer.commit(asynchronous=asynchronous)
    except MemberFenced:
        # The member was silent for too long. `on_lost` follows, and the next owner reads these
        # records again.
        print("not committed: another member may have the partitions", flush=True)


def show(what: str) -> Any:
    """A callback that prints which partitions have come or gone."""

    def callback(_: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in partitions)
        print(f"{what}: {names or 'nothing'}", flush=True)

    return callback


def revoked(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
    """Before another member gets partitions: commit what was processed of them.

    Nobody waits for the answer: the commit stands in the log before this member's next request, so
    the next owner begins behind it.
    """
    commit(consumer, asynchronous=True)
    show("revoked")(consumer, partitions)


def main() -> None:
    """Consume until SIGTERM or Ctrl-C, then leave the group."""
    parser = argparse.ArgumentParser(description="A consumer in a classic group.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka and of the coordinator")
    parser.add_argument("topic")
    parser.add_argument("--group", default="billing")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = {
        "bootstrap.servers": given.bootstrap_servers,
        "group.id": given.group,
        "client.id": f"consumer-{os.getpid()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        # Partitions that stay with their owner are not interrupted when members come or go.
        "partition.assignment.strategy": "cooperative-sticky",
    }
    with CoordinatedConsumer(config) as consumer:
        consumer.subscribe(
            [given.topic], on_assign=show("assigned"), on_revoke=revoked, on_lost=show("lost")
        )
        consume(consumer, stop)
    print("left the group", flush=True)


if __name__ == "__main__":
    main()
