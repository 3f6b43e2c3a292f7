"""A consumer in a server-assigned group: the coordinator divides the partitions.

    python examples/assigned_consumer.py localhost:9092 orders --group clicks --capacity 2

Start it several times. Each partition moves on its own: its owner commits and lets go of it, and
reads its other partitions meanwhile. A member of capacity 2 gets twice as many as one with 1.
"""

import argparse
import os
import signal
import threading

from confluent_kafka import TopicPartition

from coordlib.client import AssignedMember, CoordinatedConsumer, MemberFenced

BATCH = 100
POLL_S = 1.0


def token_of(consumer: CoordinatedConsumer, topic: str, partition: int) -> int | None:
    """The fencing token of a partition: higher than that of every former owner."""
    member = consumer.member
    assert isinstance(member, AssignedMember)
    return member.fence_of(topic, partition)


def consume(consumer: CoordinatedConsumer, stop: threading.Event) -> None:
    """Print records and commit them, until the program is to stop."""
    while not stop.is_set():
        messages = consumer.consume(BATCH, POLL_S)
        for message in messages:
            if (error := message.error()) is not None:
                print(f"error: {error}", flush=True)
                continue
            where = f"{message.topic()}-{message.partition()}@{message.offset()}"
            print(f"record {where}: {message.value()!r}", flush=True)
        if messages:
            commit(consumer, asynchronous=False)


def commit(consumer: CoordinatedConsumer, *, asynchronous: bool) -> None:
    """Commit all records that were returned."""
    try:
        consumer.commit(asynchronous=asynchronous)
    except MemberFenced:
        print("not committed: another member may have the partitions", flush=True)


def assigned(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
    """Partitions have come."""
    for each in partitions:
        token = token_of(consumer, each.topic, each.partition)
        print(f"assigned: {each.topic}-{each.partition} token {token}", flush=True)


def revoked(consumer: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
    """Partitions are demanded: their commit is written in one record with their release."""
    commit(consumer, asynchronous=True)
    for each in partitions:
        print(f"revoked: {each.topic}-{each.partition}", flush=True)


def lost(_: CoordinatedConsumer, partitions: list[TopicPartition]) -> None:
    """Others may have these partitions already: nothing can be committed any more."""
    for each in partitions:
        print(f"lost: {each.topic}-{each.partition}", flush=True)


def main() -> None:
    """Consume until SIGTERM or Ctrl-C, then leave the group."""
    parser = argparse.ArgumentParser(description="A consumer in a server-assigned group.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka and of the coordinator")
    parser.add_argument("topic")
    parser.add_argument("--group", default="clicks")
    parser.add_argument("--capacity", type=int, default=1, help="its share, relative to others")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = {
        "bootstrap.servers": given.bootstrap_servers,
        "group.id": given.group,
        "client.id": f"consumer-{os.getpid()}",
        "group.protocol": "assigned",
        "group.remote.assignor": "sticky",
        "group.capacity": given.capacity,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with CoordinatedConsumer(config) as consumer:
        consumer.subscribe([given.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        consume(consumer, stop)
    print("left the group", flush=True)


if __name__ == "__main__":
    main()
