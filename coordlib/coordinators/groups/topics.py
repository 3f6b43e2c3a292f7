"""The cluster's topics, as the driver tells them in the log."""

from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from typing import Any

from msgspec import Raw

from coordlib import limits
from coordlib.coordinators.registry import MACHINES
from coordlib.coordinators.shard.kind import NO_WISHES, UNKNOWN_WISHES
from coordlib.coordinators.shard.row import Row
from coordlib.coordinators.shard.step import Step
from coordlib.records import requests as rq


def learn(
    known: Mapping[str, int], metadata: rq.TopicMetadata
) -> tuple[dict[str, int], tuple[str, ...]]:
    """What is known after one record, and the names of what it changed, in order.

    A topic that was made anew with fewer partitions just has fewer. Of more topics than a shard
    can keep in mind those that it knows keep their place, since they may be read; the first of the
    new ones by name have what room there is. The driver, who can tell people, says so.
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


def concerned(
    cells: Mapping[str, Row], changed: Collection[str]
) -> list[tuple[str, Exception | None]]:
    """The groups to which such a change may matter, in order; no other group is decoded.

    With a group that could not be asked comes what it raised: it is set aside.  # INV-42
    """
    asks = {each.KIND: each.concerned(changed) for each in MACHINES.values() if each.topics_changed}
    found: list[tuple[str, Exception | None]] = []
    for name, cell in cells.items():
        ask = asks.get(cell.stored.kind)
        try:
            if ask is not None and _may_matter(cell, ask):
                found.append((name, None))
        except Exception as problem:  # noqa: BLE001
            found.append((name, problem))
    return sorted(found, key=itemgetter(0))


def _may_matter(cell: Row, ask: Callable[[Raw], bool]) -> bool:
    wishes = cell.wishes
    return wishes != NO_WISHES and (wishes == UNKNOWN_WISHES or ask(wishes))


def tell(
    judge: Callable[[Any, Collection[str]], None], changed: Collection[str], step: Step[Any]
) -> None:
    """A group's step in which its kind judges what changed."""
    judge(step, changed)


def _lies_in(name: str, metadata: rq.TopicMetadata) -> bool:
    is_behind = metadata.after is None or name > metadata.after
    return is_behind and (metadata.through is None or name <= metadata.through)
