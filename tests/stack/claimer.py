"""One consumer of claims in a process of its own, which writes down what happens.

    python -m tests.stack.claimer --config '{…}' --topic orders --coordination __marshal.6s
        --witness FILE [--options '{…}'] [--work-s 0.5]

Every line of the witness is a JSON object with `what` and `at_ns`, the time since the machine's
boot, the same for all processes. It is handed to the operating system before anything else is
done, so a SIGKILL takes nothing away:

    ready                                   the marshaler is open
    claimed, released, lost  partitions     told by the callback of that name
    working  partition offset epoch         is in the middle of a record (with --work-s)
    record   partition offset epoch         did its work, with the claim's token
    gave_up  partition offset               may_work said no when the work was about to be done
    refused  partition offset error         the commit of such a record, tried all the same
    failed   text                           poll raised; the program ends with 1
    closed                                  left as it was asked to by SIGTERM

Ends on SIGTERM, or when whoever started it is gone.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from coordlib.client.claims import ClaimLost, ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.client.kit.process import boottime_ns
from coordlib.errors import CoordError

POLL_S = 0.05


class Program:
    """Consume until told to stop."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._witness = given.witness.open("a", buffering=1)  # by the line
        self._parent, self._stop = os.getppid(), threading.Event()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        given = self._given
        options = ConsumerOptions(**given.options)
        with Marshaler(given.config, coordination_topic=given.coordination) as marshaler:
            consumer = marshaler.consumer([given.topic], options)
            consumer.on_claimed = lambda some: self._places("claimed", some)
            consumer.on_released = lambda some: self._places("released", some)
            consumer.on_lost = lambda some: self._places("lost", some)
            self._tell("ready")
            try:
                while not self._stop.is_set() and os.getppid() == self._parent:
                    message = consumer.poll(POLL_S)
                    if message is not None and message.error() is None:
                        self._work(consumer, message)
            except CoordError as problem:
                self._tell("failed", text=str(problem))
                return 1
            consumer.close()
        self._tell("closed")
        return 0

    def _work(self, consumer: MarshalConsumer, message: Any) -> None:
        where = {"partition": message.partition(), "offset": message.offset()}
        try:
            epoch = consumer.token(message)
        except ClaimLost:
            self._tell("gave_up", **where)
            return
        if self._given.work_s:
            self._tell("working", **where, epoch=epoch)
            time.sleep(self._given.work_s)
        if consumer.may_work(message):
            self._tell("record", **where, epoch=epoch)
        else:
            self._tell("gave_up", **where)
        try:
            consumer.commit(message)
        except CoordError as problem:
            self._tell("refused", **where, error=type(problem).__name__)

    def _places(self, what: str, places: Any) -> None:
        self._tell(what, partitions=[place.partition for place in places])

    def _tell(self, what: str, **fields: Any) -> None:
        self._witness.write(json.dumps({"what": what, "at_ns": boottime_ns(), **fields}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--coordination", required=True)
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--work-s", type=float, default=0.0)
    return Program(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
