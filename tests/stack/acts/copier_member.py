"""One copier of the act `transactions`: it copies a topic in units of work, and writes each down.

Started by the demo as the other members are; its configuration has `sink`, `hold` and the keys of
the producer beside a consumer's. While the file `hold` is there, it stops between the group's
acceptance and the commit, where the demo kills it.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from coordlib.client import (
    CoordinatedConsumer,
    CoordinatedProducer,
    MemberFenced,
    TransactionError,
    exactly_once,
)
from coordlib.demo.member import run, write_down
from tests.stack.acts.copy_witness import ABORTED, COMMITTED, UNKNOWN, CopyWitnessFile

#: Of one unit: a batch of the job lies in each, so that many more records cost little more.
RECORDS: Final = 500
POLL_S: Final = 0.2
_HOLD_S: Final = 0.02
_PRODUCER: Final = ("bootstrap.servers", "transactional.id", "transaction.timeout.ms")


class Copier:
    """Copies unit by unit, until it is told to end."""

    def __init__(self, config: Mapping[str, Any], topic: str, witness: CopyWitnessFile) -> None:
        self._config, self._topic, self._witness = dict(config), topic, witness
        self._sink, self._hold = self._config.pop("sink"), Path(self._config.pop("hold"))
        self._for_producer = {key: self._config[key] for key in _PRODUCER}
        for key in _PRODUCER[1:]:
            del self._config[key]
        self._unit, self._offsets = -1, dict[int, int]()
        #: Where the unit began to read: there the consumer is set back to.
        self._beginnings: dict[int, int] = {}

    def work(self, is_over: Callable[[], bool]) -> None:
        """Until it is over; a producer that can do nothing more is followed by another one."""
        with CoordinatedConsumer({**self._config, "enable.auto.commit": False}) as consumer:
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=lambda _, some: self._witness.revoked(_numbers(some)),
                on_lost=lambda _, some: self._witness.lost(_numbers(some)),
            )
            while not is_over():
                with _Producer(self._for_producer, self) as producer:
                    producer.init_transactions()
                    with suppress(_ProducerEnded):
                        while not is_over():
                            self._copy(consumer, producer)

    def sends(self, offsets: Mapping[int, int]) -> None:
        """The unit is complete, and the group is about to be asked."""
        self._offsets = dict(offsets)
        self._witness.commit(offsets)

    def accepted(self) -> None:
        """The group has accepted the offsets; nothing is committed yet."""
        self._witness.unit(self._unit, "accepted")
        while self._hold.exists():
            time.sleep(_HOLD_S)

    def _assigned(self, consumer: CoordinatedConsumer, some: list[Any]) -> None:
        member = consumer.member
        fence = -1 if member.fence_token is None else member.fence_token
        self._witness.assigned(member.generation, _numbers(some), fence)

    def _copy(self, consumer: CoordinatedConsumer, producer: CoordinatedProducer) -> None:
        """One unit. What was aborted is read again by the next one."""
        self._unit, self._offsets, self._beginnings = self._unit + 1, {}, {}
        self._witness.unit(self._unit, "began")
        try:
            with exactly_once(consumer, producer) as unit:
                for message in consumer.consume(RECORDS, POLL_S):
                    if message.error() is None:
                        write_down(message, self._witness)
                        producer.produce(self._sink, **self._copied(message))
                self._beginnings = {each.partition: at for each, at in unit.beginnings.items()}
                self._witness.unit(self._unit, "written")
        except MemberFenced as fenced:
            self._ended(producer, fenced)
        except TransactionError as error:
            self._ended(producer, error)
            if not error.txn_requires_abort():
                raise _ProducerEnded from error
        else:
            self._witness.unit(self._unit, COMMITTED)
            if self._offsets:
                self._witness.committed(self._offsets)

    def _ended(self, producer: CoordinatedProducer, problem: Exception) -> None:
        is_aborted = not producer.may_be_committed
        self._witness.unit(self._unit, ABORTED if is_aborted else UNKNOWN)
        self._witness.refused(problem)
        if is_aborted and self._beginnings:
            self._witness.rewound(self._beginnings)

    def _copied(self, message: Any) -> dict[str, Any]:
        """A record of the copy: which record it is of, and who has written it."""
        value = {
            "number": json.loads(message.value() or b"")["number"],
            "offset": message.offset(),
            "copier": self._config["client.id"],
            "unit": self._unit,
        }
        return {
            "value": json.dumps(value).encode(),
            "key": message.key(),
            "partition": message.partition(),
        }


class _Producer(CoordinatedProducer):
    """Tells when the group is asked, and when it has accepted."""

    def __init__(self, config: Mapping[str, Any], copier: Copier) -> None:
        super().__init__(config)
        self._copier = copier

    def send_rows(self, rows: Any, metadata: Any, timeout: float) -> None:
        if rows:
            self._copier.sends({row.partition: row.offset for row in rows})
        super().send_rows(rows, metadata, timeout)
        if rows:
            self._copier.accepted()


class _ProducerEnded(Exception):
    """Another one goes on."""


def _numbers(some: list[Any]) -> list[int]:
    return [each.partition for each in some]


def _work(
    config: dict[str, Any], topic: str, witness: CopyWitnessFile, is_over: Callable[[], bool]
) -> None:
    Copier(config, topic, witness).work(is_over)


if __name__ == "__main__":
    sys.exit(run(_work, CopyWitnessFile))
