"""The cluster's topics, as the driver lists them in the log.

A topic that is deleted and made anew has its name again, and another id. Ids have no order, so the
listings give one: an id that one of them has shown, and a later one has replaced, is old. What was
committed under it means nothing in the topic of now.  # INV-130

A broker that is behind may show an old id, and a late record of an older driver too. So an old id
becomes the present one again only when two whole listings in a row show it: the one that replaced
it was such an error then.

An id that no listing has shown is no old one: the client may have seen the topic before the driver
has, or reads it in another cluster. And a topic that a listing leaves out keeps its id: a right
that was taken away looks the same.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import UNSET

from coordlib import limits
from coordlib.core.wire import requests as rq
from coordlib.core.wire.topic_ids import Ids

NO_IDS: Final[tuple[str, ...]] = ()


def learn(
    known: Mapping[str, int], metadata: rq.TopicMetadata
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The topics after one record, and the names of the topics that it changed, in order.

    A topic that was deleted and created again with fewer partitions just has fewer. A shard keeps
    a bounded number of topics. Those that it has stay, since they may be read; new ones get the
    remaining room in order of name. The driver logs that some were left out.
    """
    listed = {row.topic: row.partitions for row in metadata.topics}
    kept = {
        name: listed.get(name, count)
        for name, count in known.items()
        if name in listed or not _lies_in(name, metadata)
    }
    new = sorted(listed.keys() - kept.keys())[: max(limits.TOPICS_MAX - len(kept), 0)]
    topics = dict(sorted((kept | {name: listed[name] for name in new}).items()))
    changed = sorted(
        name for name in known.keys() | topics.keys() if known.get(name) != topics.get(name)
    )
    return topics, tuple(changed)


def learn_ids(
    ids: Ids, metadata: rq.TopicMetadata, topics: Collection[str]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The ids after one record, and the names of the topics that were made anew, in order.

    The ids of topics that are gone are forgotten where others need the room.

    Args:
        topics: those that the shard keeps, after this record.
    """
    known, anew = dict(ids), []
    # A change of one topic is a record of its row alone, with a bound.
    is_whole = metadata.through is None or len(metadata.topics) > 1
    for row in metadata.topics:
        shown = known.get(row.topic, NO_IDS)
        if row.topic_id is UNSET or row.topic not in topics:
            continue
        known[row.topic] = now = _with(shown, row.topic_id, is_whole)
        if shown and shown[-1] != now[-1]:
            anew.append(row.topic)
    gone = sorted(known.keys() - set(topics)) if len(known) > limits.TOPICS_MAX else []
    for name in gone[: len(known) - limits.TOPICS_MAX]:
        del known[name]
    return dict(sorted(known.items())), tuple(anew)


def _with(shown: tuple[str, ...], topic_id: str, is_whole: bool) -> tuple[str, ...]:
    """The ids of a topic after a listing has shown this one."""
    once = tuple(dict.fromkeys(shown))
    if topic_id not in once:
        return (*once, topic_id)[-limits.TOPIC_IDS_MAX :]
    if topic_id == once[-1]:
        return once
    if not is_whole:
        return shown
    if shown.count(topic_id) > 1:
        return (*(each for each in once if each != topic_id), topic_id)
    return (*once[:-1], topic_id, once[-1])


def present_id(ids: Ids, topic: str, topic_id: str) -> str:
    """The id that has replaced this one; empty: it is not known as an old one."""
    shown = ids.get(topic, NO_IDS)
    return shown[-1] if topic_id in shown[:-1] else ""


def _lies_in(name: str, metadata: rq.TopicMetadata) -> bool:
    is_behind = metadata.after is None or name > metadata.after
    return is_behind and (metadata.through is None or name <= metadata.through)
