"""Consumers of claims: partitions are claimed by writing to a coordination topic. No job is needed.

    with Marshaler({"bootstrap.servers": …, "group.id": …, "client.id": …}) as marshaler:
        with marshaler.consumer(["orders"]) as consumer:
            message = consumer.poll(1.0)

Every process reads the coordination topic by the same fold and comes to the same conclusion
(`core/claims/`). Here are the consumer's part of it (`life.py`, a state machine without IO,
and what it is made of), Kafka around it (`kafka.py`), and the public faces: `marshaler.py`,
`consumer.py`, `admin.py`.
"""

from coordlib.client.claims.admin import ClaimsAdmin, NotSet
from coordlib.client.claims.claim import CommitToken
from coordlib.client.claims.consumer import MarshalConsumer, Marshaler, Offsets
from coordlib.client.claims.events import (
    ClaimLost,
    CoordinationTopicChanged,
    ForeignToken,
    UnseenOffset,
)
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.claims.resetting import Outcome

__all__ = [
    "ClaimLost",
    "ClaimsAdmin",
    "CommitToken",
    "ConsumerOptions",
    "CoordinationTopicChanged",
    "ForeignToken",
    "MarshalConsumer",
    "Marshaler",
    "NotSet",
    "Offsets",
    "Outcome",
    "UnseenOffset",
]
