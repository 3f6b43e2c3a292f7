"""Which topic of a name a consumer reads, and whether that is still the one.  # INV-130

Messages name no topic's id. So the consumer asks for the id before it begins a partition, before
each commit, and every few seconds while it reads. Offsets are committed under the id with which
their partition was begun. If the topic has another id by now, it was deleted and made anew: what
was read may be of either, so it is not committed, and the partition is begun anew.

What is left: a consumer that begins a partition while a broker still serves the topic of before
reads records of that under the new id, until the broker has caught up.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from coordlib.client.kit.seen_ids import SeenIds
from coordlib.errors import CannotReach

if TYPE_CHECKING:
    from coordlib.client.groups.member import Member

_log = logging.getLogger("coordlib.client")

#: How often it is asked while nothing is committed.
LOOK_MS: Final = 5_000
#: Asynchronous commits that follow each other so closely are written after one question.
COMMITS_MS: Final = 100

Ask = Callable[[Collection[str]], dict[str, str]]


class TopicIds:
    """The ids of the topics that one consumer reads.

    Any thread asks; the one that reads takes in what was answered, and begins partitions.

    Args:
        ask: the ids of those of the topics that are there; raises CannotReach; may block.
        beside: does something beside everything else.
        now_ms: the client's clock.
    """

    def __init__(
        self,
        ask: Ask,
        beside: Callable[[Callable[[], None]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._ask, self._beside, self._now_ms = ask, beside, now_ms
        #: The id under which each topic was begun.
        self._begun: dict[str, str] = {}
        #: As answered; a topic that is gone keeps its last id.
        self._told = SeenIds()
        #: The same, as far as it was taken in.
        self._seen: dict[str, str] = {}
        #: Whether something was answered that was not taken in.
        self._is_news = False
        #: When each topic was asked for, and answered.
        self._asked: dict[str, int] = {}
        #: When all of those that are read were asked for.
        self._looked_ms = -LOOK_MS
        #: When the topics were asked for in vain.
        self._failed: dict[str, int] = {}

    @classmethod
    def of(cls, member: "Member[Any]") -> Self:
        """Asked over the member's transport."""
        transport = member.transport
        beside = partial(transport.beside, member)
        return cls(transport.topic_ids, beside, transport.now_ms)

    def ask(self, topics: Collection[str], no_older_ms: int = 0) -> bool:
        """Ask now, unless all were asked for within so many milliseconds; whether that is known.

        Who takes an older answer does not wait again so soon after there was none.
        """
        asked_ms = self._now_ms()
        if all(asked_ms - self._asked.get(each, -LOOK_MS) < no_older_ms for each in topics):
            return True
        failed_ms = max(self._failed.get(each, -LOOK_MS) for each in topics)
        if no_older_ms and asked_ms - failed_ms < LOOK_MS:
            return False
        try:
            answer = self._ask(topics)
        except CannotReach as problem:
            _log.info("The ids of topics are not known: %s", problem)
            self._failed.update(dict.fromkeys(topics, self._now_ms()))
            return False
        for each in topics:
            self._failed.pop(each, None)
        for topic, topic_id in answer.items():
            self._told.take(topic, topic_id, asked_ms)
        self._asked.update(dict.fromkeys(topics, asked_ms))
        self._is_news = True
        return True

    def ask_beside(self, topics: Collection[str]) -> "Future[bool]":
        """The same without waiting."""
        answer: Future[bool] = Future()
        self._beside(lambda: answer.set_result(self.ask(topics)))
        return answer

    def look(self, topics: Collection[str]) -> None:
        """Ask beside every few seconds."""
        if topics and self._now_ms() - self._looked_ms >= LOOK_MS:
            self._looked_ms = self._now_ms()
            self.ask_beside(topics)

    @property
    def is_due(self) -> bool:
        """Whether there is something to look for, or to be taken in."""
        return self._is_news or self._now_ms() - self._looked_ms >= LOOK_MS

    def refused(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that are not the ones that were begun, by the newest answers."""
        begun = [(each, self._begun.get(each, "")) for each in topics]
        return {each for each, id_ in begun if id_ and self._told.present(each, id_) != id_}

    def made_anew(self, topics: Collection[str], no_older_ms: int = 0) -> set[str]:
        """The same, once they are asked for as by `ask`."""
        self.ask(topics, no_older_ms)
        return self.refused(topics)

    def take_in(self) -> None:
        """From now on the reading goes by the newest answers."""
        self._is_news = False
        self._seen = self._told.copy()

    def anew(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that are not the ones that were begun."""
        return [each for each in topics if self.is_other(each, self._begun.get(each, ""))]

    def is_other(self, topic: str, topic_id: str) -> bool:
        """Whether the topic has another id now, as far as it is known."""
        return bool(topic_id) and self._seen.get(topic, topic_id) != topic_id

    def begun(self, topic: str) -> str:
        """The id under which it was begun; empty: that is not known."""
        return self._begun.get(topic, "")

    def begin(self, topic: str, committed: str) -> None:
        """A partition is begun. `committed`: the id of the offset at which it is; empty: of none.

        It counts where the topic is not there at the moment: then it is not the topic that comes.
        """
        self._told.suppose(topic, committed, self._now_ms())
        if topic_id := self._seen.get(topic, committed):
            self._begun[topic] = topic_id
