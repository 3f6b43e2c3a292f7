"""Where claims may begin, asked of Kafka."""

import logging
from collections.abc import Mapping, Sequence

from coordlib.client.claims import signals as sg
from coordlib.client.claims.transport import Transport
from coordlib.client.kit.signals import TopicPartition
from coordlib.errors import CannotReach

_log = logging.getLogger("coordlib.client")


def find_starts(
    transport: Transport, group: str, sought: Sequence[sg.Sought]
) -> tuple[sg.Found, ...]:
    """Bounds and committed offsets; nothing where Kafka does not answer. May block."""
    unknown = [each.place for each in sought if each.needs_committed]
    committed: Mapping[TopicPartition, int] = {}
    try:
        # First: if the topic is made anew meanwhile, its records are read under the former id.
        known = transport.describe({each.place.topic for each in sought})
        ids = {topic: each.topic_id for topic, each in known.items()}
        bounds = transport.bounds([each.place for each in sought])
        if unknown:
            committed = transport.committed(group, unknown)
    except CannotReach as problem:  # the state machine asks again
        _log.info("group %s: starts are not known: %s", group, problem.what)
        return ()
    return tuple(
        sg.Found(
            each.place,
            each.epoch,
            committed.get(each.place),
            *bounds[each.place],
            ids.get(each.place.topic, ""),
        )
        for each in sought
        if each.place in bounds
    )
