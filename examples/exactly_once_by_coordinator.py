"""Copy a topic exactly once, also into another cluster: the coordinator decides about transactions.

    python examples/exactly_once_by_coordinator.py copy localhost:9092 in out --id 1
    python examples/exactly_once_by_coordinator.py read localhost:9092 out

`copy --there HOST:PORT` writes to another cluster of Kafka than the one where the coordinator is.
Records carry the name of their transaction, and readers ask the coordinator which ones are
committed: they need a reader of coordlib, as `read` is.
"""

import argparse
import signal
import threading

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from coordlib.client import (
    CommittedReader,
    CoordinatedConsumer,
    CoordinatedProducer,
    MemberFenced,
    TransactionError,
    exactly_once,
)

BATCH = 500
POLL_S = 1.0


def copy(given: argparse.Namespace, stop: threading.Event) -> None:
    """Copy units of work until the program is to stop."""
    here = given.bootstrap_servers
    reading = {
        "bootstrap.servers": here,
        "group.id": given.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # the transaction commits
    }
    writing = {
        "bootstrap.servers": given.there or here,
        "coord.bootstrap.servers": here,
        "coord.decided.by": "coordinator",
        "transactional.id": f"{given.group}-{given.id}",
    }
    with CoordinatedConsumer(reading) as consumer, CoordinatedProducer(writing) as producer:
        producer.init_transactions()
        consumer.subscribe([given.source])
        while not stop.is_set():
            try:
                with exactly_once(consumer, producer):
                    found = [m for m in consumer.consume(BATCH, POLL_S) if m.error() is None]
                    for message in found:
                        producer.produce(given.to, message.value(), key=message.key())
                if found:
                    print(f"copied {len(found)} records", flush=True)
            except MemberFenced:
                print("aborted: another member may have the partitions", flush=True)
            except TransactionError as error:
                if not error.txn_requires_abort():
                    raise  # a supervisor starts this process again
                print(f"aborted: {error}", flush=True)
    print("left the group", flush=True)


def read(given: argparse.Namespace, stop: threading.Event) -> None:
    """Print the committed records of a topic from its beginning on."""
    there = given.there or given.bootstrap_servers
    config = {
        "bootstrap.servers": there,
        "coord.bootstrap.servers": given.bootstrap_servers,
        "auto.offset.reset": "earliest",
    }
    known = AdminClient({"bootstrap.servers": there}).list_topics(given.topic, timeout=10)
    with CommittedReader(config) as reader:
        numbers = known.topics[given.topic].partitions
        reader.assign([TopicPartition(given.topic, number) for number in numbers])
        while not stop.is_set():
            message = reader.poll(POLL_S)
            if message is not None and message.error() is None:
                where = f"{message.partition()}@{message.offset()}"
                print(f"record {where}: {message.value()!r}", flush=True)


def main() -> None:
    """Copy or read until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="Transactions that the coordinator decides.")
    uses = parser.add_subparsers(dest="use", required=True)
    copier, reader = uses.add_parser("copy"), uses.add_parser("read")
    for each in (copier, reader):
        each.add_argument("bootstrap_servers", help="HOST:PORT of the coordinator")
        each.add_argument("--there", help="HOST:PORT of the copy's cluster; usually the same")
    copier.add_argument("source", help="topic to read, beside the coordinator")
    copier.add_argument("to", help="topic to write")
    copier.add_argument("--group", default="copiers")
    copier.add_argument("--id", default="1", help="of this process: it ends what it left open")
    reader.add_argument("topic")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    (copy if given.use == "copy" else read)(given, stop)


if __name__ == "__main__":
    main()
