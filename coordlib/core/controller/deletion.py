"""Replicas are deleted by their brokers; the rows stay until all of them have said so.

OFFLINE ─▶ DELETION_STARTED ─▶ DELETION_SUCCESSFUL ─▶ the row loses it, or goes with the topic
   │             ▼
   └──▶ DELETION_INELIGIBLE: its broker is Inactive, or cannot; tried again when it comes
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from coordlib.core.controller.rows import Partition, Topic
from coordlib.core.controller.states import ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.table import Place
from coordlib.core.wire import stored

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
            retry(step, place, row.deleting)
        else:
            _stop(step, place, row)
    conclude(step, [name])


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
    start(step, place)


def start(step: ClusterStep, place: Place) -> None:
    """Tell those that are there to delete; others are waited for. Forgotten ones have nothing."""
    row = step.at_place(place)
    offline = [broker for broker, state in row.deleting.items() if state == _R.OFFLINE]
    live = {each: _R.DELETION_STARTED for each in offline if step.is_ready(each)}
    away = {each: _R.DELETION_INELIGIBLE for each in offline if not step.is_ready(each)}
    _set(step, place, live | away)
    strangers = [each for each in away if step.broker(each) is None]
    succeed(step, place, strangers)


def retry(step: ClusterStep, place: Place, brokers: Iterable[int]) -> None:
    """Try again what failed, where the broker is there."""
    row = step.at_place(place)
    failed = [
        each
        for each in brokers
        if row.deleting.get(each) == _R.DELETION_INELIGIBLE and step.is_ready(each)
    ]
    _set(step, place, dict.fromkeys(failed, _R.OFFLINE))
    _set(step, place, dict.fromkeys(failed, _R.DELETION_STARTED))


def fail(step: ClusterStep, place: Place, broker: int) -> None:
    """A replica cannot be deleted now."""
    _set(step, place, {broker: _R.DELETION_INELIGIBLE})


def succeed(step: ClusterStep, place: Place, brokers: Iterable[int]) -> None:
    """Replicas are deleted. That of a partition that stays is forgotten; else see `conclude`."""
    gone = list(brokers)
    _set(step, place, dict.fromkeys(gone, _R.DELETION_SUCCESSFUL))
    topic = step.topic(place[0])
    if gone and topic is not None and not topic.is_deleting:
        row = step.at_place(place)
        step.alter(place, deleting={b: s for b, s in row.deleting.items() if b not in gone})


def conclude(step: ClusterStep, topics: Iterable[str]) -> None:
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


def _set(step: ClusterStep, place: Place, states: Mapping[int, ReplicaState]) -> None:
    if states:
        row = step.at_place(place)
        numbers = {broker: int(state) for broker, state in states.items()}
        step.alter(place, deleting={**row.deleting, **numbers})
