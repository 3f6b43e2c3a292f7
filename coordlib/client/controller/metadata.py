"""The cluster as its brokers know it: a picture as of one place of the log, then every change.

Metadata are asked for with each registration: all of them, or those of this broker's own topics. An
answer has 16 MiB at most, some 90,000 partitions. A broker of a larger cluster asks for the topics
of its own replicas, some at a time: with those, and with all ready brokers, it leads, follows and
changes ISRs. What changes later it is told in any case.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from coordlib.client.controller.requests import MetadataRefused
from coordlib.client.controller.state import BrokerStanding
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.requests import Step, error_of, known, refusal_of, throttle_ms
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """All ready brokers, topics and partitions, as of one place of the log."""

    #: Those that are Active or Stopping, with incarnation and endpoints, by broker id.
    brokers: Mapping[int, api.BrokerRow]
    topics: Mapping[str, api.TopicRow]
    partitions: Mapping[TopicPartition, api.ReplicaRow]
    #: Whether all topics are there. Else the cluster's metadata are too large for one answer, and
    #: these are the topics that were named, and those that have changed since.
    is_whole: bool = True


class Picture:
    """Asked for once with each registration; MetadataChanged of all later records come on top."""

    def __init__(self) -> None:
        self._brokers: dict[int, api.BrokerRow] = {}
        self._topics: dict[str, api.TopicRow] = {}
        self._partitions: dict[TopicPartition, api.ReplicaRow] = {}
        #: Whether all of it was read; before that there is nothing to show.
        self._is_read = False
        #: Whether topics were asked for by name, so that answers add to each other.
        self._is_narrow = False
        #: The parts of the answer that were read.
        self._parts: list[api.MetadataResponse] = []
        #: What was handed out since the newest change, which need not be copied again.
        self._shown: ClusterMetadata | None = None

    def show(self) -> ClusterMetadata | None:
        """An immutable copy; None: nothing was read yet."""
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
        """Read the topics of this broker only: the whole answer is too large."""
        self._is_narrow = True
        self._brokers, self._topics, self._partitions = {}, {}, {}
        self._parts.clear()

    def complete(self) -> None:
        """All answers were read."""
        self._is_read, self._shown = True, None

    def answered(self, part: api.MetadataResponse) -> bool:
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

    def changed(self, notice: api.MetadataChanged) -> None:
        """Take what one record changed."""
        for gone in notice.gone:
            row = self._brokers.get(gone.broker)
            if row is not None and row.incarnation == gone.incarnation:
                del self._brokers[gone.broker]
        self._put(notice.brokers, notice.topics, notice.partitions)
        self._shown = None

    def _put(
        self,
        brokers: tuple[api.BrokerRow, ...],
        topics: tuple[api.TopicRow, ...],
        partitions: tuple[api.ReplicaRow, ...],
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


#: Of one question; 125 KB with the longest names.
TOPICS_MAX: Final = 500
TOO_LARGE: Final = (
    "The metadata of %s are too large for one answer: metadata() has the topics of this broker's "
    "own replicas, and what has changed since. Ask for others by name: Admin.metadata(cluster, "
    "topics)."
)
LEFT_OUT: Final = "metadata() of %s lacks topics each of which is too large for one answer: %s"
#: Fewer topics are asked for then: the answer is too large, or the question was set aside, as its
#: answer needs more memory than the job has.
_TOO_MUCH: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION)

_log = logging.getLogger("coordlib.client")


class Question:
    """The Metadata requests of one broker; one at a time."""

    def __init__(self, me: BrokerStanding, picture: Picture) -> None:
        self._me, self._picture = me, picture
        #: The question that is open; None: all is answered.
        self.step: Step | None = None
        #: Why there is no picture; None: there is one, or it may come.
        self.refusal: GroupError | None = None
        #: What is to be asked for next, by name.
        self._left: list[tuple[str, ...]] = []
        #: What is too large even alone.
        self._left_out: list[str] = []

    def begin(self, now_ms: int) -> None:
        """The broker is registered: ask for everything."""
        self.stop()
        self.refusal = None
        self._picture.forget()
        self._ask(now_ms, None)

    def stop(self) -> None:
        """Ask nothing any more."""
        self.step = None
        self._left.clear()
        self._left_out.clear()

    def is_answered_by(self, id_: str) -> bool:
        """Whether the open question has this id."""
        return self.step is not None and self.step.id == id_

    def answered(self, response: api.Response, now_ms: int, own_topics: Iterable[str]) -> None:
        """Take a part of the answer, or its refusal.

        Args:
            own_topics: of which this broker has replicas.
        """
        assert self.step is not None
        code, asked = error_of(response), self._asked
        if code is ErrorCode.NONE and isinstance(response, api.MetadataResponse):
            if self._picture.answered(response):
                self._go_on(now_ms)
        elif code.retriable:
            again = self._me.wording.renewed(self.step)
            self.step.replace_later(now_ms, again, throttle_ms(response))
        elif code not in _TOO_MUCH:
            self._refused(response)
        elif asked is None:
            self._narrow(now_ms, own_topics)
        elif len(asked) > 1:
            half = len(asked) // 2
            self._left[:0] = [asked[:half], asked[half:]]
            self._go_on(now_ms)
        elif asked:
            self._left_out += asked
            self._go_on(now_ms)
        else:
            self._refused(response)

    @property
    def _asked(self) -> tuple[str, ...] | None:
        """The topics that the open question names; None: all."""
        output = self.step.output if self.step is not None else None
        request = output.request if isinstance(output, sg.Send) else None
        return request.topics if isinstance(request, api.Metadata) else None

    def _narrow(self, now_ms: int, own_topics: Iterable[str]) -> None:
        _log.warning(TOO_LARGE, self._me.where)
        self._picture.narrow()
        names = sorted(set(own_topics))
        starts = range(0, len(names), TOPICS_MAX)
        # Without any topic there are still the brokers.
        self._left = [tuple(names[start : start + TOPICS_MAX]) for start in starts] or [()]
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        if self._left:
            self._ask(now_ms, self._left.pop(0))
        else:
            if self._left_out:
                _log.warning(LEFT_OUT, self._me.where, ", ".join(self._left_out))
            self._picture.complete()
            self.stop()

    def _ask(self, now_ms: int, topics: tuple[str, ...] | None) -> None:
        question = sg.Send(self._me.wording.ask_metadata(topics))
        self.step = Step(question, now_ms)
        self._me.say(question)

    def _refused(self, response: api.Response) -> None:
        self.stop()
        self.refusal = refusal_of(response, self._me.where)
        _log.warning("%s", MetadataRefused(self.refusal))
