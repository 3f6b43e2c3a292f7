"""What CreateTopics and CreatePartitions share: where partitions lie, room for them, their rows."""

from collections.abc import Mapping

from coordlib import limits
from coordlib.core.controller import leadership, placement
from coordlib.core.controller.rows import NUMBER_BYTES, ROW_BYTES, Partition
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.errors import ErrorCode

#: An error, and a sentence where the error's own does not do.
Fault = tuple[ErrorCode, str | None]
#: Partition -> its replicas.
Assignment = dict[int, tuple[int, ...]]
TOO_MANY_REPLICAS = f"Ask for at most {limits.REPLICAS_MAX} replicas."
CLUSTER_IS_FULL = "Delete topics that nobody needs, or raise brokers.partitions_max."
ASK_IN_PARTS = f"Ask for at most {limits.ROWS_PER_REQUEST_MAX} partitions in one request."


class Room:
    """How many partitions a request may still make. One object for each request."""

    def __init__(self, step: ClusterStep) -> None:
        self._cluster = step.config.partitions_max - step.cluster.partition_count
        self._request = limits.ROWS_PER_REQUEST_MAX
        self._bytes = step.room_for(is_known=False)

    def fault(self, count: int, replicas: int) -> Fault | None:
        """Why there is no room for so many; None: there is."""
        if count > self._request:
            return ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS
        if count > self._cluster:
            return ErrorCode.POLICY_VIOLATION, CLUSTER_IS_FULL
        if self.bytes_of(count, replicas) > self._bytes:
            return ErrorCode.POLICY_VIOLATION, SHARD_IS_TOO_LARGE
        return None

    def take(self, count: int, replicas: int) -> None:
        """So many are made."""
        self._cluster -= count
        self._request -= count
        self._bytes -= self.bytes_of(count, replicas)

    @staticmethod
    def bytes_of(count: int, replicas: int) -> int:
        """What they add to the shard, at most, beside their names."""
        return limits.NAME_LENGTH_MAX + count * (ROW_BYTES + 3 * replicas * NUMBER_BYTES)


def assigned(
    step: ClusterStep, given: Mapping[str, tuple[int, ...]], numbers: range
) -> Assignment | Fault:
    """An assignment that was given, or what is wrong with it."""
    wanted = {str(number): number for number in numbers}
    if given.keys() != wanted.keys():
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "assignment must name each new partition once."
    found = {number: tuple(given[text]) for text, number in wanted.items()}
    if any(fault := replicas_fault(step, replicas) for replicas in found.values()):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
    if len({len(replicas) for replicas in found.values()}) > 1:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have as many replicas."
    return found


def replicas_fault(step: ClusterStep, replicas: tuple[int, ...]) -> str | None:
    """What is wrong with the replicas of one partition."""
    if not replicas or len(replicas) > limits.REPLICAS_MAX:
        return f"A partition has 1 to {limits.REPLICAS_MAX} replicas."
    if len(set(replicas)) < len(replicas):
        return "replicas name one broker twice: name each once."
    unknown = next((each for each in replicas if step.broker(each) is None), None)
    return None if unknown is None else f"Broker {unknown} is not registered."


def placed(step: ClusterStep, numbers: range, replicas: int, seed: int) -> Assignment | Fault:
    """An assignment over the brokers that are Active, or why there is none."""
    active = step.active
    if replicas > limits.REPLICAS_MAX:
        return ErrorCode.INVALID_REPLICATION_FACTOR, TOO_MANY_REPLICAS
    if not 1 <= replicas <= len(active):
        return ErrorCode.INVALID_REPLICATION_FACTOR, None
    racks = {number: step.live.brokers[number].rack for number in sorted(active)}
    return placement.place(racks, len(numbers), replicas, seed, numbers.start)


def make(step: ClusterStep, topic: str, topic_id: int, assignment: Assignment) -> None:
    """Make partitions, and let the first elections take place."""
    for number, replicas in assignment.items():
        place = (topic, number)
        step.make(
            place,
            Partition(
                topic_id=topic_id,
                leader=-1,
                leader_epoch=-1,
                partition_epoch=0,
                fence=-1,
                replicas=replicas,
                isr=(),
                new=replicas,
            ),
        )
        leadership.fill(step, place)
    count = step.live.partition_count + len(assignment)
    step.change(partition_count=count)
