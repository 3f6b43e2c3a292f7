"""The cluster's topics, as the driver lists them in the log."""

from collections.abc import Mapping

from coordlib import limits
from coordlib.records import requests as rq


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


def _lies_in(name: str, metadata: rq.TopicMetadata) -> bool:
    is_behind = metadata.after is None or name > metadata.after
    return is_behind and (metadata.through is None or name <= metadata.through)
