"""Lag and mirror at secured brokers: what they may not do is a trouble, and the job goes on."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from coordlib.config import EngineConfig
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.offset_watch import OffsetWatch
from coordlib.kafka.acls import grant
from coordlib.kafka.roles import Kind, Operation, Right, Role, rights
from coordlib.local.stack import Stack
from tests.stack.secured.principals import Principals
from tests.stack.secured.scene import TOPIC, TRIAL

pytestmark = [pytest.mark.stack, pytest.mark.chaos]

MIRRORED = "mirrored"
RIGHTS = rights(Role.JOB, TRIAL, [TOPIC], [MIRRORED])
EVERY = Right(Kind.TOPIC, "*", Operation.DESCRIBE)
READING = Right(Kind.TOPIC, TOPIC, Operation.READ)
#: Missing right -> what is refused first: who may read a topic may describe it.
ROWS = {
    Right(Kind.GROUP, "coordlib-", Operation.DESCRIBE, True): (),
    EVERY: (READING,),
    READING: (),
    Right(Kind.GROUP, MIRRORED, Operation.READ): (),
    Right(Kind.GROUP, MIRRORED, Operation.DELETE): (),
}


class Watch:
    """The job's thread for offsets, and its failures."""

    def __init__(self, options: dict[str, str]) -> None:
        self._health = HealthReport()
        engine = EngineConfig(lag_interval_ms=1_000, mirror_offsets=(MIRRORED,))
        self._watch = OffsetWatch(options, TRIAL, engine, self._health)

    def start(self) -> None:
        self._watch.start(1)

    def stop(self) -> None:
        self._watch.stop()

    @property
    def told(self) -> str:
        """All that fails."""
        both = {**self._health.now, **self._watch.failing}
        return " ".join(each.error for each in both.values())


@contextmanager
def watching(options: dict[str, str]) -> Iterator[Watch]:
    watch = Watch(options)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def write(stack: Stack, offset: int | None) -> None:
    """A committed offset as the job writes it; None deletes it."""
    producer = Producer(stack.client())
    value = None if offset is None else json.dumps({"offset": offset}).encode()
    key = json.dumps([MIRRORED, TOPIC, 0]).encode()
    producer.produce(f"{TRIAL}.committed", value, key, partition=0)
    assert producer.flush(60) == 0


def until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.mark.parametrize("right", ROWS, ids=str)
def test_what_a_watch_may_not_do_is_named(
    secured_broker: Stack, principals: Principals, right: Right
) -> None:
    """Nobody looks at mirrored offsets and lag until they are needed."""
    write(secured_broker, 3)
    without = {right, *ROWS[right]}
    somebody = principals.new([each for each in RIGHTS if each not in without])
    named = TOPIC if right.name == "*" else right.name

    with watching(somebody) as watch:
        if right.operation is Operation.DELETE:
            time.sleep(3)  # it writes the group first: only then is it its own
            assert watch.told == ""
            write(secured_broker, None)
        until(lambda: f"A right is missing: {right.operation} on" in watch.told, lambda: watch.told)
        assert named in watch.told
        grant(
            secured_broker.client(), f"User:{somebody['sasl.username']}", sorted(without, key=str)
        )
        if right.kind is not Kind.GROUP or right.name == MIRRORED:
            until(lambda: "A right is missing" not in watch.told, lambda: watch.told)
