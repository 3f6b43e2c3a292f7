"""Topics and their replicas: where new partitions lie, and how replicas are deleted.

CreateTopics makes topics with so many partitions and replicas, or with an assignment of one's own.
CreatePartitions adds partitions; those that are there stay where they are. Kafka's AdminUtils
places replicas (`assignReplicasToBrokersRackUnaware` and `…RackAware`, KIP-36), with its random
numbers from the log: they come of the record's offset, and only have to differ from topic to topic.

DeleteTopics: nobody leads or follows their partitions any more, and all replicas are deleted.
They stay, and no topic of the name can be made, until every broker has deleted what it has, or is
unregistered. Said again, the request tries again what failed. ReplicasDeleted: a broker has deleted
replicas, or cannot; rows are judged in order.

    OFFLINE ─▶ DELETION_STARTED ─▶ DELETION_SUCCESSFUL ─▶ the row loses it, or goes with the topic
       │             ▼
       └──▶ DELETION_INELIGIBLE: its broker is Inactive, or cannot; tried again when it comes

Keeps INV-82.
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.controller import leadership
from coordlib.core.controller.leadership import finish
from coordlib.core.controller.states import (
    NUMBER_BYTES,
    ROW_BYTES,
    Broker,
    Partition,
    ReplicaState,
    Topic,
)
from coordlib.core.controller.step import ClusterStep, find_own
from coordlib.core.engine.step import SHARD_IS_TOO_LARGE
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api, stored
from coordlib.core.wire.envelope import is_topic
from coordlib.errors import ErrorCode


def partition_result(
    topic: str, partition: int, code: ErrorCode, why: str | None = None
) -> api.PartitionResult:
    """The row of a partition; `why`: where the error's own sentence does not do."""
    message = UNSET if code is ErrorCode.NONE else why or code.what_to_do
    return api.PartitionResult(topic=topic, partition=partition, error=code.name, message=message)


def topic_result(topic: str, code: ErrorCode, why: str | None = None) -> api.TopicResult:
    """The row of a topic."""
    message = UNSET if code is ErrorCode.NONE else why or code.what_to_do
    return api.TopicResult(topic=topic, error=code.name, message=message)


_R = ReplicaState


def delete_topic(step: ClusterStep, name: str) -> None:
    """Begin to delete a topic, or try again what failed."""
    topic = step.topic(name)
    if topic is None:
        return
    if not topic.is_deleting:
        step.put_topic(name, replace(topic, is_deleting=True))
        detail = {"topic": name, "topic_id": topic.topic_id, "partitions": topic.partitions}
        step.record(stored.EVENT_TOPIC_DELETION_STARTED, reason=step.reason, detail=detail)
    for place, row in step.rows_of_topic(name):
        if topic.is_deleting:
            retry_deletion(step, place, row.deleting)
        else:
            _stop(step, place, row)
    conclude_deletion(step, [name])


def _stop(step: ClusterStep, place: Place, row: Partition) -> None:
    """No replica leads or follows any more; its leader does until it has read so."""
    offline = {each: int(_R.OFFLINE) for each in row.replicas}
    leader = step.broker(row.leader) if row.leader >= 0 else None
    step.alter(
        place,
        leader=-1,
        guard=row.guard if leader is None or leader.is_legacy else leader.incarnation,
        adding=(),
        removing=(),
        new=(),
        deleting={**offline, **row.deleting},
    )
    start_deletion(step, place)


def start_deletion(step: ClusterStep, place: Place) -> None:
    """Tell those that are there to delete; others are waited for. Forgotten ones have nothing."""
    row = step.at_place(place)
    offline = [broker for broker, state in row.deleting.items() if state == _R.OFFLINE]
    live = {each: _R.DELETION_STARTED for each in offline if step.is_ready(each)}
    away = {each: _R.DELETION_INELIGIBLE for each in offline if not step.is_ready(each)}
    _set_states(step, place, live | away)
    strangers = [each for each in away if step.broker(each) is None]
    succeed_deletion(step, place, strangers)


def retry_deletion(step: ClusterStep, place: Place, brokers: Iterable[int]) -> None:
    """Try again what failed, where the broker is there."""
    row = step.at_place(place)
    failed = [
        each
        for each in brokers
        if row.deleting.get(each) == _R.DELETION_INELIGIBLE and step.is_ready(each)
    ]
    _set_states(step, place, dict.fromkeys(failed, _R.OFFLINE))
    _set_states(step, place, dict.fromkeys(failed, _R.DELETION_STARTED))


def fail_deletion(step: ClusterStep, place: Place, broker: int) -> None:
    """A replica cannot be deleted now."""
    _set_states(step, place, {broker: _R.DELETION_INELIGIBLE})


def succeed_deletion(step: ClusterStep, place: Place, brokers: Iterable[int]) -> None:
    """Replicas are deleted. That of a partition that stays is forgotten; else see
    `conclude_deletion`."""
    gone = list(brokers)
    _set_states(step, place, dict.fromkeys(gone, _R.DELETION_SUCCESSFUL))
    topic = step.topic(place[0])
    if gone and topic is not None and not topic.is_deleting:
        row = step.at_place(place)
        step.alter(place, deleting={b: s for b, s in row.deleting.items() if b not in gone})


def conclude_deletion(step: ClusterStep, topics: Iterable[str]) -> None:
    """Topics whose replicas are all deleted go, unless a former leader may still act: another topic
    of the name would have a second one.  # INV-71"""
    for name in sorted(set(topics)):
        topic = step.topic(name)
        if topic is None or not topic.is_deleting or not _are_all_deleted(step, name, topic):
            continue
        rows = step.rows_of_topic(name)
        for place, _ in rows:
            step.drop(place)
        step.put_topic(name, None)
        counts = {
            "topic_count": step.live.topic_count - 1,
            "partition_count": step.live.partition_count - len(rows),
        }
        step.change(**counts)
        detail = {"topic": name, "topic_id": topic.topic_id}
        step.record(stored.EVENT_TOPIC_DELETED, reason=step.reason, detail=detail)


def _are_all_deleted(step: ClusterStep, name: str, topic: Topic) -> bool:
    """From the last one on: brokers report in order, and so the first look finds most often that
    they are not. A topic may have a hundred thousand partitions, and as many reports."""
    rows = (step.row(name, number) for number in reversed(range(topic.partitions)))
    return all(row is None or _is_deleted(row) for row in rows)


def _is_deleted(row: Partition) -> bool:
    return row.guard < 0 and all(state == _R.DELETION_SUCCESSFUL for state in row.deleting.values())


def _set_states(step: ClusterStep, place: Place, states: Mapping[int, ReplicaState]) -> None:
    if states:
        row = step.at_place(place)
        numbers = {broker: int(state) for broker, state in states.items()}
        step.alter(place, deleting={**row.deleting, **numbers})


#: Broker -> its rack, if it has one.
Racks = Mapping[int, str | None]


def place_replicas(
    racks: Racks, count: int, replicas: int, seed: int, first: int = 0
) -> dict[int, tuple[int, ...]]:
    """Partitions `first` to `first + count - 1` by number, over at least `replicas` brokers."""
    brokers = sorted(racks)
    start, shift = seed % len(brokers), seed // len(brokers) % len(brokers)
    by_rack = all(rack is not None for rack in racks.values())
    order = _alternating(racks) if by_rack else brokers
    found: dict[int, tuple[int, ...]] = {}
    for number in range(first, first + count):
        if number > 0 and number % len(order) == 0:
            shift += 1
        index = (number + start) % len(order)
        if by_rack:
            found[number] = _over_racks(racks, order, index, shift, replicas)
        else:
            found[number] = _in_turn(order, index, shift, replicas)
    return found


def _in_turn(brokers: list[int], index: int, shift: int, replicas: int) -> tuple[int, ...]:
    rest = (_at(index, shift, each, len(brokers)) for each in range(replicas - 1))
    return (brokers[index], *(brokers[each] for each in rest))


def _over_racks(
    racks: Racks, order: list[int], index: int, shift: int, replicas: int
) -> tuple[int, ...]:
    """A rack gets a second replica only when all racks have one."""
    rack_count = len(set(racks.values()))
    chosen = [order[index]]
    used = {racks[order[index]]}
    turn = 0
    while len(chosen) < replicas:
        broker = order[_at(index, shift * rack_count, turn, len(order))]
        turn += 1
        is_new_rack = racks[broker] not in used or len(used) == rack_count
        if is_new_rack and broker not in chosen:
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)


def _at(first: int, shift: int, turn: int, count: int) -> int:
    return (first + 1 + (shift + turn) % (count - 1)) % count


def _alternating(racks: Racks) -> list[int]:
    """Brokers, a rack after the other in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(str(racks[broker]), []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


#: An error, and a sentence where the error's own does not do.
Fault = tuple[ErrorCode, str | None]
#: Partition -> its replicas.
Assignment = dict[int, tuple[int, ...]]
TOO_MANY_REPLICAS = f"Ask for at most {limits.REPLICAS_MAX} replicas."
CLUSTER_IS_FULL = "Delete topics that nobody needs, or raise brokers.partitions_max."
ASK_IN_PARTS = f"Ask for at most {limits.ROWS_PER_REQUEST_MAX} partitions in one request."


class ReplicaQuota:
    """How many partitions a request may still make. One object for each request."""

    def __init__(self, step: ClusterStep) -> None:
        self._cluster = step.config.partitions_max - step.cluster.partition_count
        self._request = limits.ROWS_PER_REQUEST_MAX
        self._bytes = step.room_bytes

    def fault(self, count: int, replicas: int) -> Fault | None:
        """Why these partitions do not fit; None: they do."""
        if count > self._request:
            return ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS
        if count > self._cluster:
            return ErrorCode.POLICY_VIOLATION, CLUSTER_IS_FULL
        if self.bytes_of(count, replicas) > self._bytes:
            return ErrorCode.POLICY_VIOLATION, SHARD_IS_TOO_LARGE
        return None

    def take(self, count: int, replicas: int) -> None:
        """Subtract new partitions from the quota."""
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
    return place_replicas(racks, len(numbers), replicas, seed, numbers.start)


def make_partitions(step: ClusterStep, topic: str, topic_id: int, assignment: Assignment) -> None:
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


BEING_DELETED: Final = "Wait until the topic of this name is deleted, or use another name."
#: Between the ids of topics that one record makes. A JSON reader may keep 53 bits of a number: 39
#: are left for the record's offset.
_IDS_APART: Final = 2**39
assert limits.ROWS_PER_REQUEST_MAX <= 2**53 // _IDS_APART
EITHER_OR: Final = "Give partitions and replication_factor, or an assignment, and not both."


def create_topics(step: ClusterStep, request: api.CreateTopics) -> None:
    """Judge one CreateTopics."""
    step.reason = "topic created"
    room = ReplicaQuota(step)
    results = tuple(
        _create(step, request, topic, room, index) for index, topic in enumerate(request.topics)
    )
    finish(step)
    step.answer(request, results=results)


def _create(
    step: ClusterStep,
    request: api.CreateTopics,
    wanted: api.NewTopic,
    room: ReplicaQuota,
    index: int,
) -> api.TopicResult:
    assignment = _judge_new(step, wanted, room, step.at.offset + index)
    if isinstance(assignment, tuple):
        return topic_result(wanted.topic, *assignment)
    room.take(len(assignment), len(assignment[0]))
    if not request.validate_only:
        topic_id = step.at.offset + index * _IDS_APART
        _make_topic(step, wanted, assignment, topic_id, request.client)
    return topic_result(wanted.topic, ErrorCode.NONE)


def _judge_new(
    step: ClusterStep, wanted: api.NewTopic, room: ReplicaQuota, seed: int
) -> Assignment | Fault:
    """Where its partitions lie, or why it is not made."""
    if not is_topic(wanted.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, None
    if (topic := step.topic(wanted.topic)) is not None:
        return ErrorCode.TOPIC_ALREADY_EXISTS, BEING_DELETED if topic.is_deleting else None
    if wanted.assignment is None:
        count, replicas = wanted.partitions, wanted.replication_factor
    else:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            return ErrorCode.INVALID_REQUEST, EITHER_OR
        count, replicas = len(wanted.assignment), 1
    if count < 1:
        return ErrorCode.INVALID_PARTITIONS, None
    if fault := room.fault(count, min(max(replicas, 1), limits.REPLICAS_MAX)):
        return fault  # before anything is computed for millions of partitions
    if wanted.assignment is None:
        return placed(step, range(count), replicas, seed)
    return assigned(step, wanted.assignment, range(count))


def _make_topic(
    step: ClusterStep, wanted: api.NewTopic, assignment: Assignment, topic_id: int, client: str
) -> None:
    step.put_topic(wanted.topic, Topic(topic_id, len(assignment), wanted.min_isr, wanted.unclean))
    step.change(topic_count=step.live.topic_count + 1)
    step.record(
        stored.EVENT_TOPIC_CREATED,
        reason=step.reason,
        detail={
            "topic": wanted.topic,
            "topic_id": topic_id,
            "partitions": len(assignment),
            "replicas": len(assignment[0]),
            "min_isr": wanted.min_isr,
            "unclean": wanted.unclean,
            "client": client,
        },
    )
    make_partitions(step, wanted.topic, topic_id, assignment)


def create_partitions(step: ClusterStep, request: api.CreatePartitions) -> None:
    """Judge one CreatePartitions."""
    step.reason = "partitions created"
    topic = step.topic(request.topic)
    fault = _extend(step, request, topic) or (ErrorCode.NONE, None)
    finish(step)
    step.answer(request, results=(topic_result(request.topic, *fault),))


def _extend(step: ClusterStep, request: api.CreatePartitions, topic: Topic | None) -> Fault | None:
    if topic is None or topic.is_deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    assignment = _judge_extension(step, request, topic)
    if isinstance(assignment, tuple):
        return assignment
    step.put_topic(request.topic, replace(topic, partitions=request.count))
    make_partitions(step, request.topic, topic.topic_id, assignment)
    return None


def _judge_extension(
    step: ClusterStep, request: api.CreatePartitions, topic: Topic
) -> Assignment | Fault:
    numbers = range(topic.partitions, request.count)
    if not numbers:
        return ErrorCode.INVALID_PARTITIONS, None
    replicas = len(step.at_place((request.topic, 0)).target)
    if fault := ReplicaQuota(step).fault(len(numbers), replicas):
        return fault
    if request.assignment is not None:
        return assigned(step, request.assignment, numbers)
    return placed(step, numbers, replicas, step.at.offset)


def delete_topics(step: ClusterStep, request: api.DeleteTopics) -> None:
    """Judge one DeleteTopics."""
    step.reason = f"deleted by {request.client}"
    left = limits.ROWS_PER_REQUEST_MAX
    results: list[api.TopicResult] = []
    for name in request.topics:
        topic = step.topic(name)
        if topic is None:
            results.append(topic_result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.partitions > left and left < limits.ROWS_PER_REQUEST_MAX:
            results.append(topic_result(name, ErrorCode.POLICY_VIOLATION, ASK_IN_PARTS))
        else:
            left -= topic.partitions
            delete_topic(step, name)
            results.append(topic_result(name, ErrorCode.NONE))
    finish(step)
    step.answer(request, results=tuple(results))


NOT_ASKED = "Delete only what the newest metadata tell you to delete: this replica is not of that."


def replicas_deleted(step: ClusterStep, request: api.ReplicasDeleted) -> None:
    """Judge one ReplicasDeleted."""
    broker = find_own(step, request)
    if not isinstance(broker, Broker):
        return step.refuse(request, *broker)
    step.reason = "replicas deleted"
    judged = [(row, _judge_deleted(step, broker, row)) for row in request.results]
    failed = [
        {"topic": row.topic, "partition": row.partition}
        for row, code in judged
        if code is ErrorCode.NONE and row.error != ErrorCode.NONE.name
    ]
    if failed:
        step.record(
            stored.EVENT_REPLICA_DELETION_FAILED,
            member=broker.member,
            detail={"broker": broker.broker, "partitions": failed},
        )
    conclude_deletion(step, [row.topic for row, code in judged if code is ErrorCode.NONE])
    finish(step)
    results = (
        partition_result(row.topic, row.partition, code, _sentence(code)) for row, code in judged
    )
    return step.answer(request, results=tuple(results))


def _sentence(code: ErrorCode) -> str | None:
    return NOT_ASKED if code is ErrorCode.INVALID_REQUEST else None


def _judge_deleted(step: ClusterStep, broker: Broker, deleted: api.DeletedReplica) -> ErrorCode:
    """A late report of a topic made anew, or of a deletion that is over, changes nothing."""
    place = (deleted.topic, deleted.partition)
    row = step.row(*place)
    if row is None or row.topic_id != deleted.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if row.deleting.get(broker.broker) != ReplicaState.DELETION_STARTED:
        return ErrorCode.INVALID_REQUEST
    if row.guard == broker.incarnation:
        step.alter(place, guard=-1)  # it has read that it leads no more
    if deleted.error == ErrorCode.NONE.name:
        succeed_deletion(step, place, (broker.broker,))
    else:
        fail_deletion(step, place, broker.broker)
    return ErrorCode.NONE
