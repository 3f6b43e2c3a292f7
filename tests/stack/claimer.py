"""One consumer of claims in a process of its own, which writes down what happens.

Its `config` is a Marshaler's, its `options` are those of its consumer. Its witness
(`tests.kit.program`) has these lines:

    ready                                   the marshaler is open
    claimed, released, lost  partitions     told by the callback of that name
    working  partition offset epoch         is in the middle of a record (with `work_s`)
    record   partition offset epoch         did its work, with the claim's token
    gave_up  partition offset               may_work said no when the work was about to be done
    refused  partition offset error         the commit of such a record, tried all the same
    failed   code text                      poll raised; the program ends with 1
    closed                                  left as it was asked to; the program ends with 0
"""

import sys
import time
from typing import Any

from coordlib.client.claims import ClaimLost, ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.errors import CoordError
from tests.kit.program import Program, code_of

POLL_S = 0.05


class Claimer(Program):
    """Claims and consumes until it is asked to end."""

    def run(self) -> int:
        given = self.given
        options = ConsumerOptions(**given["options"])
        with Marshaler(given["config"], coordination_topic=given["coordination"]) as marshaler:
            consumer = marshaler.consumer([given["topic"]], options)
            consumer.on_claimed = lambda some: self._places("claimed", some)
            consumer.on_released = lambda some: self._places("released", some)
            consumer.on_lost = lambda some: self._places("lost", some)
            self.tell("ready")
            try:
                while not self.is_over:
                    message = consumer.poll(POLL_S)
                    if message is not None and message.error() is None:
                        self._work(consumer, message)
            except CoordError as problem:
                return self.failed(problem)
            consumer.close()
        self.tell("closed")
        return 0

    def _work(self, consumer: MarshalConsumer, message: Any) -> None:
        where = {"partition": message.partition(), "offset": message.offset()}
        try:
            epoch = consumer.token(message)
        except ClaimLost:
            self.tell("gave_up", **where)
            return
        if self.given["work_s"]:
            self.tell("working", **where, epoch=epoch)
            time.sleep(self.given["work_s"])
        if consumer.may_work(message):
            self.tell("record", **where, epoch=epoch)
        else:
            self.tell("gave_up", **where)
        try:
            consumer.commit(message)
        except CoordError as problem:
            self.tell("refused", **where, error=code_of(problem))

    def _places(self, what: str, places: Any) -> None:
        self.tell(what, partitions=[place.partition for place in places])


if __name__ == "__main__":
    sys.exit(Claimer.main())
