"""Copy a topic exactly once: each unit of work is a transaction of Kafka, with the group's offsets.

    python examples/exactly_once_by_kafka.py localhost:9092 in out --group copiers --id 1

Start it several times, each with an id of its own, and kill some with `kill -9`: a reader of
committed records finds each record of the input once. The copies and the offsets are in the cluster
of Kafka where the coordinator is. (`exactly_once_by_coordinator.py` may write to another one.)
"""

import argparse
import signal
import threading

from coordlib.client import (
    CoordinatedConsumer,
    CoordinatedProducer,
    MemberFenced,
    TransactionError,
    exactly_once,
)

BATCH = 500
POLL_S = 1.0


def copy(consumer: CoordinatedConsumer, producer: CoordinatedProducer, to: str) -> int:
    """One unit of work; how many records were copied."""
    with exactly_once(consumer, producer):
        messages = [each for each in consumer.consume(BATCH, POLL_S) if each.error() is None]
        for message in messages:
            producer.produce(to, message.value(), key=message.key())
    return len(messages)


def main() -> None:
    """Copy until SIGTERM or Ctrl-C, then leave the group."""
    parser = argparse.ArgumentParser(description="Copy a topic in transactions of Kafka.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka and of the coordinator")
    parser.add_argument("source", help="topic to read")
    parser.add_argument("to", help="topic to write")
    parser.add_argument("--group", default="copiers")
    parser.add_argument("--id", default="1", help="of this process: it ends what it left open")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    where = {"bootstrap.servers": given.bootstrap_servers}
    # The transaction commits.
    own = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    reading = {**where, "group.id": given.group, **own}
    writing = {**where, "transactional.id": f"{given.group}-{given.id}"}
    with CoordinatedConsumer(reading) as consumer, CoordinatedProducer(writing) as producer:
        producer.init_transactions()
        consumer.subscribe([given.source])
        while not stop.is_set():
            try:
                if count := copy(consumer, producer, given.to):
                    print(f"copied {count} records", flush=True)
            except MemberFenced:
                print("aborted: another member may have the partitions", flush=True)
            except TransactionError as error:
                if not error.txn_requires_abort():
                    raise  # a supervisor starts this process again
                print(f"aborted: {error}", flush=True)
    print("left the group", flush=True)


if __name__ == "__main__":
    main()
