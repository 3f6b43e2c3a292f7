"""One consumer of claims: a process that claims partitions, records what it read, and commits.

Started by the demo as the other members are; `coordination.topic` and `maximum.claims` stand in its
configuration beside a Marshaler's keys.
"""

import sys
from collections.abc import Callable
from typing import Any

from coordlib.client.claims import ClaimLost, ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.client.kit.events import TopicPartition
from coordlib.demo.member import POLL_S, run, write_down
from coordlib.demo.witness import WitnessFile


def _consume(
    config: dict[str, Any], topic: str, witness: WitnessFile, is_over: Callable[[], bool]
) -> None:
    options = ConsumerOptions(
        maximum_claims=config.pop("maximum.claims", 0),
        release_claims_if_behind=False,  # a busy machine is no reason for another course
    )
    coordination = config.pop("coordination.topic")
    with (
        Marshaler(config, coordination_topic=coordination) as marshaler,
        marshaler.consumer([topic], options) as consumer,
    ):
        _tell_claims(consumer, witness)
        tokens: dict[int, int] = {}
        while not is_over():
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                witness.error(error)
                continue
            _work(consumer, message, witness, tokens)


def _tell_claims(consumer: MarshalConsumer, witness: WitnessFile) -> None:
    consumer.on_claimed = lambda places: witness.assigned(-1, _numbers(places))
    consumer.on_released = lambda places: witness.revoked(_numbers(places))
    consumer.on_lost = lambda places: witness.lost(_numbers(places))


def _work(
    consumer: MarshalConsumer, message: Any, witness: WitnessFile, tokens: dict[int, int]
) -> None:
    """Record a message under its claim's token, unless the claim has ended since it was read."""
    partition = message.partition()
    try:
        token = consumer.token(message)
        if tokens.get(partition) != token:
            tokens[partition] = token
            witness.assigned(-1, [partition], token)
        write_down(message, witness)
        consumer.commit(message)
    except ClaimLost as refusal:
        # `on_lost` follows, and the next owner reads on from the last position in the log.
        witness.refused(refusal)


def _numbers(places: tuple[TopicPartition, ...]) -> list[int]:
    return [each.partition for each in places]


if __name__ == "__main__":
    sys.exit(run(_consume, WitnessFile))
