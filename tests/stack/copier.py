"""A program that copies topics exactly once, in a process of its own.

    python -m tests.stack.copier --bootstrap B --group G --source in --sink out --name a --folder F

It writes a line into `F/a.accepted` when its offsets were accepted and `F/a.hold` is there, and
then waits between acceptance and commit for as long as that file stays. Ends on SIGTERM, or when
whoever started it is gone.

Where the coordinator decides, it waits between the decision and the markers while there is a file
`F/a.hold-markers`, and writes a line into `F/a.decided`.
"""

import argparse
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from coordlib.client import (
    CoordinatedConsumer,
    CoordinatedProducer,
    MemberFenced,
    TransactionError,
    exactly_once,
)
from coordlib.client.transactions.data_cluster import MarkerWriter
from coordlib.core.wire.offsets import COORDINATOR

#: The job may be started twice meanwhile.
TIMEOUT_S = 120.0
MESSAGES = 100


class HeldProducer(CoordinatedProducer):
    """Waits between acceptance and commit, while a file says so."""

    def __init__(self, config: dict[str, Any], hold: Path, accepted: Path) -> None:
        super().__init__(config)
        self._hold, self._accepted = hold, accepted

    def send_rows(self, rows: Any, metadata: Any, timeout: float) -> None:
        super().send_rows(rows, metadata, timeout)
        if rows and self._hold.exists():
            self._accepted.write_text("accepted\n")
            while self._hold.exists():
                time.sleep(0.02)


def hold_markers(hold: Path, decided: Path) -> None:
    """Let this process wait between the decision and its markers, while a file says so."""
    turn = MarkerWriter.turn

    def held(writer: MarkerWriter) -> Any:
        while hold.exists():
            decided.write_text("decided\n")
            time.sleep(0.02)
        return turn(writer)

    MarkerWriter.turn = held  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "source", "sink", "name", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--decided-by", default="kafka")
    parser.add_argument("--sink-bootstrap", help="of the cluster of the sink, if it is another one")
    given = parser.parse_args()
    stop, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    folder = Path(given.folder)
    config = {
        "bootstrap.servers": given.bootstrap,
        "client.id": given.name,
        "group.id": given.group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        "max.poll.interval.ms": 20_000,
        "enable.auto.commit": False,
    }
    if given.decided_by == COORDINATOR:
        hold_markers(folder / f"{given.name}.hold-markers", folder / f"{given.name}.decided")
    producer = HeldProducer(
        {
            "bootstrap.servers": given.sink_bootstrap or given.bootstrap,
            "coord.bootstrap.servers": given.bootstrap,
            "coord.decided.by": given.decided_by,
            "transactional.id": f"{given.group}-{given.name}",
            "transaction.timeout.ms": 8_000,
        },
        folder / f"{given.name}.hold",
        folder / f"{given.name}.accepted",
    )
    with CoordinatedConsumer(config) as consumer, producer:
        producer.init_transactions(TIMEOUT_S)
        consumer.subscribe([given.source])
        while not stop.is_set() and os.getppid() == parent:
            copy(consumer, producer, given.sink)


def copy(consumer: CoordinatedConsumer, producer: CoordinatedProducer, sink: str) -> None:
    """One unit; what was aborted is read again."""
    try:
        with exactly_once(consumer, producer, TIMEOUT_S):
            for message in consumer.consume(MESSAGES, 0.3):
                if message.error() is None:
                    producer.produce(sink, value=message.value())
    except TransactionError as error:
        if not error.txn_requires_abort():
            raise
        print(f"aborted: {error}", flush=True)
    except MemberFenced as fenced:
        print(f"fenced: {fenced}", flush=True)


if __name__ == "__main__":
    main()
