"""What a change of positions is to do, what else than claims it writes, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass

from coordlib.client.claims.claim import Asked
from coordlib.client.claims.fence import Fence
from coordlib.client.kit.signals import TopicPartition


@dataclass(frozen=True, slots=True)
class Pause:
    """Write a ReleaseGroup for so long to this coordination partition; 0 resumes the group."""

    id: int
    partition: int
    for_s: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition."""

    place: TopicPartition
    #: The position before; None: it was not found out.
    prior: int | None
    #: The position afterwards, as judged; None: it is not known to have been set.
    new: int | None
    #: Why it was not set; "": it was.
    error: str = ""
    #: Whether Kafka's group of the same name has the position, too: the new one, or the prior one
    #: where the new one was not set. False: it may differ until the next owner copies its own. All
    #: positions go in one commit, so one refusal is told of all of them.
    is_copied: bool = True


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What is to be done, by whom."""

    group: str
    client: str
    #: 8 hexadecimal digits.
    instance: str
    positions: Mapping[TopicPartition, int]
    #: The number of coordination partitions.
    partitions: int
    interval_ms: int
    #: The whole work is given up after this.
    timeout_ms: int

    @property
    def pause_s(self) -> int:
        """It outlives the work by the intervals in which the last claims of a dead admin expire."""
        return self.timeout_ms // 1_000 + 4 * self.interval_ms // 1_000


@dataclass(slots=True)
class Target:
    """One partition on its way."""

    place: TopicPartition
    new: int
    prior: int | None = None
    #: Of the topic that the position before is of.
    topic_id: str = ""
    #: The position of an older snapshot, where the log has none.
    saved: int | None = None
    asked: Asked | None = None
    epoch: int | None = None
    fence: Fence | None = None
    beat_ms: int = 0
    next_ms: int = 0
    is_set: bool = False
    error: str = ""
