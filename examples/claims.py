"""A consumer that claims partitions in a log: nobody coordinates, and no job is needed.

    coord claims create __marshal --bootstrap-servers localhost:9092
    python examples/claims.py localhost:9092 orders --group payments --client worker-1

Start it several times, each with a client id of its own: each claims partitions that are free, and
renews its claims by heartbeats in the coordination topic. A process that dies loses its claims
after two heartbeat intervals: two minutes with `__marshal`, 12 s with `__marshal.6s`. A second
process with the same client id takes over the claims of the first one, which stops.
"""

import argparse
import signal
import threading

from coordlib.client import TopicPartition
from coordlib.client.claims import ClaimLost, ConsumerOptions, MarshalConsumer, Marshaler

POLL_S = 1.0


def consume(consumer: MarshalConsumer, stop: threading.Event) -> None:
    """Print records and commit them, until the program is to stop."""
    had: tuple[TopicPartition, ...] = ()
    while not stop.is_set():
        message = consumer.poll(POLL_S)
        if (has := consumer.claims()) != had:
            had = has
            names = ", ".join(f"{each.topic}-{each.partition}" for each in has)
            print(f"claims: {names or 'nothing'}", flush=True)
        if message is None:
            continue
        if (error := message.error()) is not None:
            print(f"error: {error}", flush=True)
            continue
        try:
            # The token is the offset of the record that won the claim: it rises from owner to
            # owner. Send it with writes to other systems.
            token = consumer.token(message)
            where = f"{message.topic()}-{message.partition()}@{message.offset()}"
            print(f"record {where} token {token}: {message.value()!r}", flush=True)
            consumer.commit(message)
        except ClaimLost as problem:
            print(f"not committed: {problem}", flush=True)


def main() -> None:
    """Consume until SIGTERM or Ctrl-C, then release what is claimed."""
    parser = argparse.ArgumentParser(description="A consumer that claims partitions.")
    parser.add_argument("bootstrap_servers", help="HOST:PORT of Kafka")
    parser.add_argument("topic")
    parser.add_argument("--group", default="payments")
    parser.add_argument("--client", default="worker-1", help="for one process at a time")
    parser.add_argument("--coordination-topic", default="__marshal")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = {
        "bootstrap.servers": given.bootstrap_servers,
        "group.id": given.group,
        "client.id": given.client,
    }
    with (
        Marshaler(config, coordination_topic=given.coordination_topic) as marshaler,
        marshaler.consumer([given.topic], ConsumerOptions()) as consumer,
    ):
        consume(consumer, stop)
    print("released all claims", flush=True)


if __name__ == "__main__":
    main()
