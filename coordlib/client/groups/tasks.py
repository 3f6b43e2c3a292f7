"""Groups that share something else than partitions: a program's own tasks.

A task is named as a partition is: a pool, in the place of the topic, and a number. The group has a
protocol type of its own, so that no consumer joins it by mistake. Metadata and assignments keep the
layout of consumers, so all assignors work; the numbers of tasks come from the program and not from
Kafka. Source: seed 002, "other uses of the protocol"; Kafka Connect's workers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from coordlib import limits
from coordlib.client.groups.assignor import Assignor, RebalanceMode, mode_of
from coordlib.client.groups.division import Metadata
from coordlib.client.kit.name_checks import require_name
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import CannotReach, SetupError

#: Pool -> number of tasks. Asked by the leader, from any thread; may block. If it raises, the
#: leader asks again later.
Tasks = Callable[[], Mapping[str, int]]

_EAGER: Final = "Name assignors that are not cooperative, such as range, roundrobin or sticky."


class TaskCounts:
    """The metadata of a group's tasks, in the place of Kafka's topics."""

    def __init__(self, tasks: Tasks, transport: Metadata) -> None:
        self._tasks, self._transport = tasks, transport

    def now_ms(self) -> int:
        return self._transport.now_ms()

    def features(self) -> frozenset[str]:
        return self._transport.features()

    def partition_counts(
        self,
        topics: Sequence[str] | None,
        own: Collection[str] | None = None,  # noqa: ARG002
    ) -> dict[str, int]:
        """Of the pools that exist. Raises CannotReach: the program could not say."""
        try:
            counts = dict(self._tasks())
        except Exception as problem:
            raise CannotReach(f"The tasks could not be counted: {problem!r}") from problem
        return {name: counts[name] for name in counts if topics is None or name in topics}

    def replica_racks(self, _: Sequence[str]) -> ReplicaRacks:
        """Tasks lie on no rack."""
        return {}


def check_type(protocol_type: str, tasks: Tasks | None, assignors: Sequence[Assignor]) -> None:
    """Refuse a type whose promise cannot be kept. Raises SetupError.

    What a cooperative member keeps while its JoinGroup is parked, the coordinator reads from the
    subscriptions of consumers alone (rule 14).
    """
    require_name("A protocol type", protocol_type, limits.NAME_LENGTH_MAX)
    if (protocol_type == cp.CONSUMER) != (tasks is None):
        raise SetupError(
            "A group shares partitions, or tasks under a protocol type of its own.",
            repr(protocol_type),
            "Give tasks with another protocol_type than consumer, or leave both out.",
        )
    if tasks is not None and mode_of(assignors) is RebalanceMode.COOPERATIVE:
        raise SetupError("Tasks are not shared cooperatively.", repr(protocol_type), _EAGER)
