"""How often something may happen: a leaky bucket in one number. A shard has one for its new groups
and one for its new transactional ids; each broker has one for its registrations.

Each time books a slice, a second divided by the times per second; what is kept is the next free
moment (the generic cell rate algorithm of ITU-T I.371). A request that would book more than
`BURST_MS` ahead is refused for now. The log's time alone moves it, so a replay refuses the same
ones.

New groups by requests and those by `coord.offsets` have a bucket each. Requests count on the
shard's clock. Records of `coord.offsets` do not move that clock, and a shard without members has no
ticks: there new groups would book a time that stands, and after five seconds' worth every further
one would be refused. So they count on the timestamps of their own topic. Because they are judged at
the end of a batch, wherever that is, they must keep no request waiting.  # INV-02
"""

from typing import Final

#: The time that may be booked ahead: as many as fit into it may come at once.
BURST_MS: Final = 5_000
_US: Final = 1_000


class Rate:
    """What has been booked.

    Args:
        free_us: from the state.
        per_second: how often, at most.
    """

    __slots__ = ("_slice_us", "free_us")

    def __init__(self, free_us: int, per_second: int) -> None:
        #: The next free moment, in microseconds.
        self.free_us = free_us
        self._slice_us = 1_000_000 // per_second

    def book(self, clock_ms: int, times: int = 1) -> None:
        """It has happened once more, at this time; `times`: it cost as much as so many, at most as
        those that may come at once."""
        more_us = min((times - 1) * self._slice_us, BURST_MS * _US)
        self.free_us = self._after(clock_ms) + more_us

    def wait_ms(self, clock_ms: int) -> int:
        """How long until it may happen once more, by the same clock; 0: it may now."""
        # No request books more than a burst ahead, but for one that counts as several: the next one
        # is told to wait for less than it takes, and asks again. Else, if the next free moment is
        # later, the topic's time went back, with another leader: nobody is told to wait for that.
        self.free_us = min(self.free_us, (clock_ms + BURST_MS) * _US)
        early_us = self._after(clock_ms) - (clock_ms + BURST_MS) * _US
        return max(0, -(-early_us // _US))  # rounded up: a sender that waits so long is not early

    def _after(self, clock_ms: int) -> int:
        return max(self.free_us, clock_ms * _US) + self._slice_us
