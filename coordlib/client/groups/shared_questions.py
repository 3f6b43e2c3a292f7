"""Questions that block, asked by few threads for all `AsyncConsumer`s of a transport and loop.

Topic ids that many consumers ask for at a time are one question to Kafka: each asks before it
begins a partition, before each commit, and every few seconds while it reads.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from itertools import count
from time import monotonic, sleep
from typing import Any, Final

from coordlib.client.kit.transport import Transport
from coordlib.errors import CannotReach

_log = logging.getLogger("coordlib.client")

#: They end when there is nothing to ask.
THREADS_MAX: Final = 2
#: Topic ids are asked for no more often, for so many topics at once.
ASK_INTERVAL_S: Final = 0.05
TOPICS_MAX: Final = 1_000


class SharedTransport:
    """A transport whose members share the threads for their questions, and topic ids.

    An answer serves every member that had asked before the question was put to Kafka.
    """

    def __init__(self, of_all: Transport) -> None:
        self._of_all = of_all
        self._lock = threading.Lock()
        #: What is to be done, with its number; and how many threads do it.
        self._works: deque[tuple[int, Callable[[], None]]] = deque()
        self._threads = 0
        #: Numbers what is to be done, and the questions for ids as of their asking.
        self._numbers = count(1)
        #: The number of what a thread does.
        self._own = threading.local()
        self._asking = threading.Lock()
        #: Topic -> the number as of which it was asked for, and its id; the newest last.
        self._answers: dict[str, tuple[int, str | None]] = {}
        self._asked_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_all, name)

    def in_thread(self, work: Callable[[], None]) -> None:
        """Do something that may block, and does not raise."""
        with self._lock:
            self._works.append((next(self._numbers), work))
            if self._threads >= THREADS_MAX:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="coord-questions", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._works:
                    self._threads -= 1
                    return
                self._own.number, work = self._works.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001  # logged; the thread goes on with those behind it
                _log.exception("A question failed")

    def in_background(self, handler: Any, work: Callable[[], None]) -> None:
        """As the transport's."""

        def whole() -> None:
            try:
                work()
            except Exception as problem:  # noqa: BLE001  # its poll raises it
                _log.warning("A question of a member failed: %s", problem)
                handler.fail(problem)
            handler.on_change()

        self.in_thread(whole)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """As the transport's; asked at most every ASK_INTERVAL_S, for all known topics at once.

        In the loop's thread nothing is asked: there the last answer counts, at most some seconds
        old, since consumers look at their topics every few seconds. Raises CannotReach: there is
        none.
        """
        number = getattr(self._own, "number", None)
        if number is None:
            if unknown := [each for each in topics if each not in self._answers]:
                raise CannotReach("The ids of topics are not known yet.", ", ".join(unknown))
            return self._known(topics)
        with self._asking:
            if any(self._answers.get(each, (0, None))[0] < number for each in topics):
                sleep(max(0.0, self._asked_s + ASK_INTERVAL_S - monotonic()))
                self._ask(topics)
            return self._known(topics)

    def _known(self, topics: Collection[str]) -> dict[str, str]:
        found = {each: self._answers[each][1] for each in topics}
        return {each: id_ for each, id_ in found.items() if id_ is not None}

    def _ask(self, topics: Collection[str]) -> None:
        self._asked_s, as_of = monotonic(), next(self._numbers)
        known = [each for each in self._answers if each not in topics]
        asked = [*topics, *known[max(0, len(known) + len(topics) - TOPICS_MAX) :]]
        answer = self._of_all.topic_ids(asked)
        self._answers = {each: (as_of, answer.get(each)) for each in reversed(asked)}
