"""The ids that listings have shown, in `coord.progress`: a rebuild needs them.  # INV-150

Committed offsets name ids, too, but not in which order they came, and some are of topics of another
cluster. Topics stand in pages, by a hash of their names: a record is written for what has changed.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

import msgspec

from coordlib.core.wire import codec

#: Topic -> the ids that listings have shown, the present one last. An old one that stands there
#: twice is shown again by the newest whole listing.
Ids = Mapping[str, tuple[str, ...]]
PAGES: Final = 64
#: Topics of a page: below 1 MiB with the longest names, and 100,000 topics fill no page.
PAGE_TOPICS_MAX: Final = 2_000
_KEY: Final = b"topic-ids-"


class TopicIdsValue(msgspec.Struct, frozen=True, kw_only=True):
    """A page. Key `topic-ids-0` to `topic-ids-63` of `coord.progress`."""

    v: int = 1
    ids: dict[str, tuple[str, ...]]


_decode: Final = msgspec.json.Decoder(TopicIdsValue).decode


def page_of(topic: str) -> int:
    """The page of a topic."""
    return crc32(topic.encode()) % PAGES


def written(ids: Ids, pages: Iterable[int]) -> list[tuple[bytes, bytes]]:
    """Keys and values of these pages."""
    of_page: dict[int, dict[str, tuple[str, ...]]] = {each: {} for each in sorted(pages)}
    for topic in sorted(ids):
        found = of_page.get(page_of(topic))
        if found is not None and len(found) < PAGE_TOPICS_MAX:
            found[topic] = ids[topic]
    return [
        (_KEY + str(page).encode(), codec.encode(TopicIdsValue(ids=found)))
        for page, found in of_page.items()
    ]


def is_page(key: bytes) -> bool:
    """Whether a record of `coord.progress` is one."""
    return key.startswith(_KEY)


def read(found: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """All pages among the records of `coord.progress`. Raises msgspec.MsgspecError."""
    ids: dict[str, tuple[str, ...]] = {}
    for key, value in found.items():
        if is_page(key):
            ids |= _decode(value).ids
    return dict(sorted(ids.items()))
