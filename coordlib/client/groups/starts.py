"""Where partitions are begun: at what is committed, of the topic that is there now."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from coordlib.client.groups.topic_ids import TopicIds
from coordlib.client.kit import signals as sg
from coordlib.client.kit.signals import Partitions, TopicPartition

_log = logging.getLogger("coordlib.client")


@dataclass(slots=True)
class Start:
    """Partitions whose start positions are being fetched."""

    partitions: Partitions
    answer: "Future[sg.Answer]"
    #: Whether their topics' ids are known; asked together with the offsets.
    ids: "Future[bool]"
    #: Of a unit whose outcome is unknown: where it began, and the offset that is committed if it
    #: counts. Any other offset, or none, means that it does not.
    spans: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def is_ready(self, ids: TopicIds) -> bool:
        """Whether all is here; ids are asked for again where nobody answered."""
        if self.ids.done() and not self.ids.result():
            self.ids = ids.ask_beside({each.topic for each in self.partitions})
        return self.answer.done() and self.ids.done()

    def begin(self, ids: TopicIds) -> dict[TopicPartition, int]:
        """The offsets to begin at; without those that are of a topic of before."""
        answer = self.answer.result()
        found: dict[TopicPartition, int] = {}
        spans = {each: at for each, at in self.spans.items() if not ids.anew([each.topic])}
        committed: dict[str, str] = {}
        # An answer may name a partition twice: the last row counts.
        for row in {(row.topic, row.partition): row for row in answer.offsets}.values():
            place, topic_id = TopicPartition(row.topic, row.partition), row.topic_id or ""
            if topic_id:
                committed[row.topic] = topic_id
            if ids.is_other(row.topic, topic_id):
                _log.warning("%s-%d is begun anew: the offset is of topic %s", *place, topic_id)
            else:
                found[place] = row.offset
        for topic in {each.topic for each in self.partitions}:
            ids.begin(topic, committed.get(topic, ""))
        for partition, (first, end) in spans.items():
            if found.get(partition) != end:
                found[partition] = first
        return found
