"""How long a claim may be worked on, by the consumer's own clock. Source: design, section 6.

Others count a slot as live for two intervals of the log's clock; a consumer stops after one of its
own. The interval between is the margin: for steps of the broker's clock, each of them clipped, and
for the rates of both clocks. There is no way back: a claim that has stopped is given up, and comes
back by a new attempt only, which the log judges.
"""

from dataclasses import dataclass
from enum import Enum


class Stop(Enum):
    """Why a claim was given up: the end of the sentence "The partition may not be worked on"."""

    #: The first produce() of its newest acknowledged sign is an interval old.
    NO_SIGN = "no sign of life was acknowledged for one heartbeat interval"
    #: Its coordination partition was not read to its end, asked for within the interval.
    UNREAD = "the coordination topic was not read to its end for one heartbeat interval"
    #: The log names another owner, or another epoch.
    TAKEN = "another consumer has claimed it"
    #: The log has freed the slot.
    FREED = "the log says that it was released"
    #: The user's thread did not take the release for an interval.
    UNHEARD = "it was to be released, and poll was not called for one heartbeat interval"


@dataclass(slots=True)
class Fence:
    """Of one claim. Times are of CLOCK_BOOTTIME, in ms."""

    interval_ms: int
    #: First produce() of the newest acknowledged sign; the winning attempt is the first one.
    sign_ms: int

    def acknowledged(self, produced_ms: int) -> None:
        """The log took a sign. The caller has looked whether the claim still stands before."""
        self.sign_ms = max(self.sign_ms, produced_ms)

    def closes_ms(self, read_ms: int | None) -> int:
        """The first moment at which the claim may not be worked on, if nothing else comes."""
        oldest = self.sign_ms if read_ms is None else min(self.sign_ms, read_ms)
        return oldest + self.interval_ms

    def broken(self, now_ms: int, read_ms: int | None) -> Stop | None:
        """The rule that closes it now; None: it is open.

        Args:
            read_ms: when the end was asked for that the newest complete reading has reached.
        """
        if now_ms - self.sign_ms >= self.interval_ms:
            return Stop.NO_SIGN
        if read_ms is None or now_ms - read_ms >= self.interval_ms:
            return Stop.UNREAD
        return None
