"""What a consumer has read since a unit of work began, where it was then, and who it was."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import Transport
from coordlib.core.wire import api as rq


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member at one moment: what it has read from now on belongs to this generation.

    Take it when a unit of work begins. Offsets that are sent under it are refused once the member
    has lost what it read: by a rebalance of a classic group, or, in a server-assigned group, when
    it lost one of the partitions.
    """

    member: str
    generation: int
    #: How the answer reaches this program.
    identity: Identity = field(repr=False)
    transport: Transport = field(repr=False, compare=False)

    def asking(self) -> Identity:
        """The same member under a token of its own, so that answers are told apart."""
        return replace(self.identity, token=self.transport.new_token())


class Outcome(Enum):
    """How a unit of work has ended, and what its consumer does then."""

    #: Action: go on.
    COMMITTED = "committed"
    #: Action: read it again.
    ABORTED = "aborted"
    #: Its commit was called, and nobody can say whether it counts. Action: wait until the group's
    #: offsets are stable; go on if they are the unit's, else read it again.
    UNKNOWN = "unknown"


class Unit:
    """The messages of one unit, by their positions. For the consumer's own thread."""

    def __init__(self) -> None:
        #: Called before it is asked, to note what was returned to the program last.
        self.note: Callable[[], object] = tuple
        #: Whether it has ended, also where its consumer was not given the outcome.
        self.is_over: Callable[[], bool] = bool
        #: The first message of each partition since it was let go of, lost or given: before that,
        #: another member may have gone on.
        self._first: dict[TopicPartition, int] = {}
        #: The position after the last one, with the leader epoch.
        self._next: dict[TopicPartition, tuple[int, int]] = {}

    def read(self, partition: TopicPartition, position: int, epoch: int) -> None:
        """A message was returned to the program; `position` is that after it."""
        self._first.setdefault(partition, position - 1)
        self._next[partition] = position, epoch

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """These have come or gone."""
        for each in partitions:
            self._first.pop(each, None)

    @property
    def offsets(self) -> tuple[rq.CommittedOffset, ...]:
        """What is done when this unit is. Also of partitions that have gone: the group refuses

        them, and so the whole unit. To leave them out would commit the output of what others read
        again.
        """
        self.note()
        return tuple(
            rq.CommittedOffset(each.topic, each.partition, offset, epoch)
            for each, (offset, epoch) in sorted(self._next.items())
        )

    @property
    def beginnings(self) -> dict[TopicPartition, int]:
        """Where to read again when the unit was aborted. A partition that has moved was begun at

        what is committed, which another member may have pushed on: not before that.
        """
        self.note()
        return dict(self._first)

    @property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """`beginnings`, each with the offset that the group has if the unit counts."""
        self.note()
        return {each: (at, self._next[each][0]) for each, at in self._first.items()}
