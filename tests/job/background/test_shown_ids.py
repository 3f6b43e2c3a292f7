"""INV-150. The ids that the driver has listed stand in `coord.progress`, for a rebuild."""

from typing import Any

from coordlib import limits
from coordlib.core.wire import stored
from coordlib.core.wire.api import Topic, TopicMetadata
from coordlib.job.background.topic_watch import TopicWatch
from coordlib.job.sink import ShownIds
from tests.job.background.test_topic_watch import FakeCluster

OLD, NEW = "A" * 21 + "Q", "B" * 21 + "Q"


def listing(topic: str, topic_id: str) -> TopicMetadata:
    return TopicMetadata(v=1, after=None, through=None, topics=(Topic(topic, 1, topic_id),))


def test_ids_are_kept_before_their_listing_can_be_judged() -> None:
    """Else a batch might commit it, and the job end: the rebuild would not have the id."""
    shown, order = ShownIds({}), []

    class Cluster(FakeCluster):
        def write(self, record: TopicMetadata, told: Any) -> None:
            order.append([stored.read_topic_ids(dict(shown.take())), record.topics[0].topic_id])
            super().write(record, told)

    cluster = Cluster()
    cluster.id = OLD
    watch = TopicWatch(cluster, 1.0, shown=shown)
    for _ in range(2):
        watch.turn()
    cluster.id = NEW
    for _ in range(12):
        watch.turn()

    assert order == [[{"a": (OLD,)}, OLD], [{"a": (OLD, NEW)}, NEW]]


def test_a_start_goes_on_with_what_is_kept() -> None:
    """A driver that has just begun has seen no id that was replaced before."""
    first = ShownIds({})
    for each in (OLD, NEW):
        first.note(listing("t", each), {"t"})
    again = ShownIds(stored.read_topic_ids(dict(first.take())))
    again.note(listing("t", NEW), {"t"})

    assert (first.take(), again.take()) == ([], []), "nothing has changed"
    again.note(listing("u", NEW), {"t", "u"})
    pages = dict(again.take())
    assert len(pages) == 1
    assert stored.read_topic_ids(pages) == {"u": (NEW,)}


def test_a_record_has_a_bound() -> None:
    """Names that meet in one page: nobody's topics may end the job."""
    name = "n" * 240
    same = [f"{name}{n}" for n in range(200_000) if stored.topic_id_page_of(f"{name}{n}") == 7]
    ids = dict.fromkeys(same, (OLD,) * limits.TOPIC_IDS_MAX)
    ((_, value),) = stored.topic_id_records(ids, [7])

    assert len(same) > stored.PAGE_TOPICS_MAX
    assert len(value) < limits.OUTPUT_BYTES_MAX - limits.KIB
