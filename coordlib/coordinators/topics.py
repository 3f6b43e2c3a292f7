"""The cluster's topics, as the driver tells them in the log."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from coordlib import limits
from coordlib.coordinators.draft import Draft
from coordlib.records import requests as rq


def learn(
    known: Mapping[str, int], metadata: rq.TopicMetadata
) -> tuple[dict[str, int], tuple[str, ...]]:
    """What is known after one record, and the names of what it changed, in order.

    A topic that was made anew with fewer partitions just has fewer. Of more topics than a shard
    can keep in mind the last ones by name are not known to it; the driver, who can tell people,
    says so.
    """
    listed = {row.topic: row.partitions for row in metadata.topics}
    topics = {name: count for name, count in known.items() if not _lies_in(name, metadata)}
    topics.update(listed)
    topics = dict(sorted(topics.items())[: limits.TOPICS_MAX])
    changed = sorted(
        name for name in known.keys() | topics.keys() if known.get(name) != topics.get(name)
    )
    return topics, tuple(changed)


def tell(
    judge: Callable[[Any, Collection[str]], None], changed: Collection[str], draft: Draft[Any]
) -> None:
    """A group's step in which its kind judges what changed."""
    judge(draft, changed)


def _lies_in(name: str, metadata: rq.TopicMetadata) -> bool:
    is_behind = metadata.after is None or name > metadata.after
    return is_behind and (metadata.through is None or name <= metadata.through)
