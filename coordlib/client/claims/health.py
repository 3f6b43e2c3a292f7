"""Whether a consumer keeps up with a partition. Source: Marshal's claim.go; vectors V10 to V12."""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

#: Samples of which a velocity is made; cycles behind after which a claim is released.
SAMPLES_MAX: Final = 10
CYCLES_BEHIND_MAX: Final = 3


def velocity(samples: Sequence[int]) -> float:
    """Offsets per cycle: the spread of the positive samples over their number, less one.

    0 for fewer than two of them. The order of samples plays no part.
    """
    known = [each for each in samples if each > 0]
    if len(known) < 2:
        return 0.0
    return (max(known) - min(known)) / (len(known) - 1)


class Verdict(Enum):
    """What one look at a claim gives."""

    #: action: none.
    HEALTHY = "healthy"
    #: action: log a warning. transition: after CYCLES_BEHIND_MAX of them in a row -> RELEASE
    BEHIND = "behind"
    #: action: release the claim, and do not claim it again for one interval.
    RELEASE = "release"


class Health:
    """The last looks at one claim.

    Args:
        releases_if_behind: the option; without it a claim is never released for its speed.
        is_part_of_topic: a whole topic is claimed: one partition alone is not given up.
    """

    def __init__(self, releases_if_behind: bool = True, is_part_of_topic: bool = False) -> None:
        self._releases = releases_if_behind
        self._is_part = is_part_of_topic
        self.currents: deque[int] = deque(maxlen=SAMPLES_MAX)
        self.latests: deque[int] = deque(maxlen=SAMPLES_MAX)
        self.cycles_behind = 0

    def look(self, current: int, latest: int, is_silent: bool) -> Verdict:
        """Take one sample of each, and judge.

        Args:
            current: the claim's position; latest: the end of the partition's log.
            is_silent: no message was handed out for more than an interval.
        """
        self.currents.append(current)
        self.latests.append(latest)
        return self.judge(current, latest, is_silent)

    def judge(self, current: int, latest: int, is_silent: bool) -> Verdict:
        """The order of tests is Marshal's: a change of it would release other claims."""
        consumed, produced = velocity(self.currents), velocity(self.latests)
        is_wedged = is_silent and consumed == 0 and (produced > 0 or latest > current)
        if is_wedged and self._releases:
            return Verdict.RELEASE
        if self._is_part or not self._releases:
            return Verdict.HEALTHY
        if current + int(2 * consumed) >= latest or produced < consumed:
            self.cycles_behind = 0
            return Verdict.HEALTHY
        self.cycles_behind += 1
        if self.cycles_behind >= CYCLES_BEHIND_MAX:
            return Verdict.RELEASE
        return Verdict.BEHIND
