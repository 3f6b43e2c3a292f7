"""The cluster as its brokers know it: a picture as of one place of the log, then every change."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordlib.client.kit.asks import known
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire import responses as rs


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """All ready brokers, topics and partitions, as of one place of the log."""

    #: Those that are Active or Stopping, with incarnation and endpoints, by broker id.
    brokers: Mapping[int, rs.BrokerRow]
    topics: Mapping[str, rs.TopicRow]
    partitions: Mapping[TopicPartition, rs.ReplicaRow]
    #: Whether all topics are there. Else the cluster's metadata are too large for one answer, and
    #: these are the topics that were named, and those that have changed since.
    is_whole: bool = True


class Picture:
    """Asked for once with each registration; MetadataChanged of all later records come on top."""

    def __init__(self) -> None:
        self._brokers: dict[int, rs.BrokerRow] = {}
        self._topics: dict[str, rs.TopicRow] = {}
        self._partitions: dict[TopicPartition, rs.ReplicaRow] = {}
        #: Whether all of it was read; before that there is nothing to show.
        self._is_read = False
        #: Whether topics were asked for by name, so that answers add to each other.
        self._is_narrow = False
        #: The parts of the answer that were read.
        self._parts: list[rs.MetadataResponse] = []
        #: What was handed out since the newest change, which need not be copied again.
        self._shown: ClusterMetadata | None = None

    def show(self) -> ClusterMetadata | None:
        """A picture that stays as it is; None: it was not read yet."""
        if self._shown is None and self._is_read:
            self._shown = ClusterMetadata(
                MappingProxyType(dict(self._brokers)),
                MappingProxyType(dict(self._topics)),
                MappingProxyType(dict(self._partitions)),
                is_whole=not self._is_narrow,
            )
        return self._shown

    def forget(self) -> None:
        """A new registration asks for a new picture."""
        self._is_read, self._is_narrow, self._shown = False, False, None
        self._parts.clear()

    def narrow(self) -> None:
        """All of it is too much; the answers that come have some topics each."""
        self._is_narrow = True
        self._brokers, self._topics, self._partitions = {}, {}, {}
        self._parts.clear()

    def complete(self) -> None:
        """All answers were read."""
        self._is_read, self._shown = True, None

    def answered(self, part: rs.MetadataResponse) -> bool:
        """Take one part of the answer; whether it is complete. Nothing comes between parts."""
        if known(part.part, 0) == 0:
            self._parts.clear()
        self._parts.append(part)
        if len(self._parts) < known(part.parts, 1):
            return False
        if not self._is_narrow:
            self._topics, self._partitions = {}, {}
        self._brokers = {}
        for each in self._parts:
            self._put(known(each.brokers, ()), known(each.topics, ()), known(each.partitions, ()))
        self._parts.clear()
        self._shown = None
        return True

    def changed(self, notice: rs.MetadataChanged) -> None:
        """Take what one record changed."""
        for gone in notice.gone:
            row = self._brokers.get(gone.broker)
            if row is not None and row.incarnation == gone.incarnation:
                del self._brokers[gone.broker]
        self._put(notice.brokers, notice.topics, notice.partitions)
        self._shown = None

    def _put(
        self,
        brokers: tuple[rs.BrokerRow, ...],
        topics: tuple[rs.TopicRow, ...],
        partitions: tuple[rs.ReplicaRow, ...],
    ) -> None:
        self._brokers |= {row.broker: row for row in brokers}
        for topic in topics:
            if topic.partitions:
                self._topics[topic.topic] = topic
            else:
                self._topics.pop(topic.topic, None)
        for row in partitions:
            place = TopicPartition(row.topic, row.partition)
            if row.replicas:
                self._partitions[place] = row
            else:
                self._partitions.pop(place, None)
