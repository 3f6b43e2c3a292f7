"""Consumers of claims: partitions are claimed by writing to a coordination topic. No job is needed.

    with Marshaler({"bootstrap.servers": …, "group.id": …, "client.id": …}) as marshaler:
        with marshaler.consumer(["orders"]) as consumer:
            message = consumer.poll(1.0)

Every process reads the coordination topic by the same fold and comes to the same conclusion
(`core/claims/`). `machine.py` is a consumer's state machine without IO; its parts are `claim.py`,
`holding.py`, `state.py`. Kafka around it: `transport.py` (what is needed), `kafka.py`,
`reading.py`. Public faces: `consumer.py`, `admin.py`; `resetting.py` sets positions.
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
