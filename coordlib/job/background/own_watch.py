"""Whether what belongs to a plane's job is as the job has left it: its checkpoint, and its topics.

Neither failure ends the job, and neither shows by itself. Spark makes a checkpoint that was removed
again, without the file that says whose it is, and the next start has none. Partitions that are
added to a topic are not read: the log names them, and `coord status` finds them by itself.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaException

from coordlib.errors import CoordError
from coordlib.job.background.troubles import Troubles
from coordlib.kafka.clients import reason_of
from coordlib.kafka.layout import Grown

_log = structlog.get_logger()
LOOK_EVERY_S: Final = 30.0
#: Its name among the troubles.
CHECKPOINT: Final = "checkpoint"


class Owner(Protocol):
    """The part of `PlaneQuery` that is used here."""

    def lost_checkpoint(self) -> str: ...

    def grown(self) -> Sequence[Grown]: ...


class OwnWatch:
    """The thread. Trouble "checkpoint": the next start will not find it.

    Args:
        owner: the query that runs now; None: none does.
        word: how the trouble is worded for this plane.
    """

    def __init__(
        self,
        owner: Callable[[], Owner | None],
        troubles: Troubles,
        word: Callable[[str], str] = str,
    ) -> None:
        self._owner, self._troubles, self._word = owner, troubles, word
        #: What was named before.
        self._grown: Sequence[Grown] = ()
        self._lost = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="own-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(15)

    def turn(self) -> None:
        """One look at both."""
        if (owner := self._owner()) is None:
            return
        self._look_at_checkpoint(owner)
        try:
            found = owner.grown()
        except (KafkaException, CoordError) as problem:
            _log.warning("the job's topics are not looked at", error=reason_of(problem))
            return
        for each in found:
            if each not in self._grown:
                _log.warning("partitions were added, and are not read", **each._asdict())
        self._grown = found

    def _look_at_checkpoint(self, owner: Owner) -> None:
        lost = self._word(owner.lost_checkpoint())
        if lost and lost != self._lost:
            _log.error("the next start will not find its checkpoint", error=lost)
        self._lost = lost
        self._troubles.note(CHECKPOINT, lost)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self.turn()
            except Exception as problem:  # noqa: BLE001  in the job's status; the job goes on
                if self._stop.is_set():
                    return  # Spark ends under it
                _log.warning("the checkpoint is not looked at", error=repr(problem))
                self._troubles.failed(CHECKPOINT, f"cannot be looked at: {problem!r}")
