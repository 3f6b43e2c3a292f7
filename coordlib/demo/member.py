"""One member of the demo's group: a process that consumes, records what it read, and commits.

Started by the demo; ends on SIGTERM, or when its parent process is gone.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Message, TopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.groups.member import AssignedMember
from coordlib.demo.witness import WitnessFile
from coordlib.errors import CoordError, GroupError

COMMIT_EVERY = 150
POLL_S = 0.2


WitnessFileT = TypeVar("WitnessFileT", bound=WitnessFile)
#: Works on a topic by a configuration, and records what it did, until it is stopped.
Work = Callable[[dict[str, Any], str, WitnessFileT, Callable[[], bool]], None]


def run(work: Work[WitnessFileT], witness_of: Callable[[Path], WitnessFileT]) -> int:
    """Work until SIGTERM. Returns the exit code."""
    parser = argparse.ArgumentParser(description="A member of one of the demo's groups.")
    parser.add_argument("--config", type=json.loads, required=True, help="as JSON")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--witness", type=Path, required=True)
    arguments = parser.parse_args()
    stop, parent = threading.Event(), os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    witness = witness_of(arguments.witness)
    witness.started()
    try:
        work(
            arguments.config,
            arguments.topic,
            witness,
            lambda: stop.is_set() or os.getppid() != parent,
        )
    except CoordError as problem:
        witness.error(problem)
        return 1
    witness.closed()
    return 0


def _consume(
    config: dict[str, Any], topic: str, witness: WitnessFile, is_over: Callable[[], bool]
) -> None:
    own = {"on_commit": _on_commit(witness), "enable.auto.commit": False}
    with CoordinatedConsumer({**config, **own}) as consumer:
        consumer.subscribe(
            [topic],
            on_assign=lambda consumer, partitions: _begin(consumer, witness, partitions),
            on_revoke=lambda consumer, partitions: _let_go(consumer, witness, partitions),
            on_lost=lambda _, partitions: witness.lost(_numbers(partitions)),
        )
        since_commit = 0
        while not is_over():
            message = _next(consumer, witness)
            if message is None:
                continue
            write_down(message, witness)
            since_commit += 1
            if since_commit >= COMMIT_EVERY:
                since_commit = 0
                _commit(consumer, witness)


def _next(consumer: CoordinatedConsumer, witness: WitnessFile) -> Message | None:
    try:
        message = consumer.poll(POLL_S)
    except GroupError as refusal:
        if not refusal.code.retriable:
            raise
        witness.error(refusal)
        return None
    if message is not None and (error := message.error()) is not None:
        witness.error(error)
        return None
    return message


def write_down(message: Message, witness: WitnessFile) -> None:
    """Record a message of the demo's production."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    witness.record(partition, offset, int(json.loads(value)["number"]))


def _begin(
    consumer: CoordinatedConsumer, witness: WitnessFile, partitions: list[TopicPartition]
) -> None:
    """Record an assignment; in a server-assigned group each partition has a token of its own."""
    member = consumer.member
    fences = {
        each.partition: member.fence_of(each.topic, each.partition)
        if isinstance(member, AssignedMember)
        else member.fence_token
        for each in partitions
    }
    witness.assigned_by_fence(member.generation, fences)


def _let_go(
    consumer: CoordinatedConsumer, witness: WitnessFile, partitions: list[TopicPartition]
) -> None:
    """Commit without waiting: the commit stands before the rejoin or leave in the log, so the next
    owner starts behind it."""
    _commit(consumer, witness)
    witness.revoked(_numbers(partitions))


def _commit(consumer: CoordinatedConsumer, witness: WitnessFile) -> None:
    witness.commit(_offsets(consumer.position(consumer.assignment())))
    try:
        consumer.commit()
    except CoordError as refusal:
        # Fenced, or refused: `on_lost` follows, and the next owner reads on from the
        # last commit.
        witness.refused(refusal)


def _on_commit(witness: WitnessFile) -> Any:
    def on_commit(error: CoordError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            witness.refused(error)
        else:
            witness.committed(_offsets(partitions))

    return on_commit


def _numbers(some: list[TopicPartition]) -> list[int]:
    return [each.partition for each in some]


def _offsets(some: list[TopicPartition]) -> dict[int, int]:
    return {each.partition: each.offset for each in some if each.offset >= 0}


if __name__ == "__main__":
    sys.exit(run(_consume, WitnessFile))
