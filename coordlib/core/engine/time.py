"""Time on the shard's clock: deadlines, and how often something may happen.

A *plain* deadline counts from the clock at which it was set. A *reaction* deadline waits for
somebody who must first hear a question: it starts only when a tick's `published` covers the
record that caused the question, so that a job that was away judges nobody too early. Source:
time-and-fencing.md, rules 2 and 3.

A *rate* is a leaky bucket in one number. A shard has one for its new groups and one for its new
transactional ids; each broker has one for its registrations. Each time books a slice, a second
divided by the times per second; what is kept is the next free moment (the generic cell rate
algorithm of ITU-T I.371). A request that would book more than `BURST_MS` ahead is refused for now.
The log's time alone moves it, so a replay refuses the same ones.

New groups by requests and those by `coord.offsets` have a bucket each. Requests count on the
shard's clock. Records of `coord.offsets` do not move that clock, and a shard without members has no
ticks: there new groups would book a time that stands, and after five seconds' worth every further
one would be refused. So they count on the timestamps of their own topic. Because they are judged at
the end of a batch, wherever that is, they must keep no request waiting.  # INV-02
"""

from typing import Final

import msgspec

#: Later than every clock: the due time of what has no deadline.
NEVER: Final = 2**63 - 1


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A one-shot deadline of a group."""

    duration_ms: int
    #: Offset of the record whose outputs somebody must react to.
    cause: int
    #: On the shard's clock; None: not started, because its cause is not covered yet.
    due_ms: int | None = None

    def covered_by(self, published: int, clock_ms: int) -> "Timer":
        """The same timer, started if `published` covers its cause."""
        if self.due_ms is not None or self.cause > published:
            return self
        return msgspec.structs.replace(self, due_ms=clock_ms + self.duration_ms)


class Due(msgspec.Struct, frozen=True, order=True):
    """A deadline; sorted by time, then by kind and member, so that ties have one order."""

    due_ms: int
    kind: str = ""
    member: str = ""

    @property
    def name(self) -> str:
        """What history gives as the cause."""
        return f"deadline:{self.kind}" + (f":{self.member}" if self.member else "")


def plain(duration_ms: int, cause: int, clock_ms: int) -> Timer:
    """A deadline that nobody has to hear of: it runs at once."""
    return Timer(duration_ms=duration_ms, cause=cause, due_ms=clock_ms + duration_ms)


def reaction(duration_ms: int, cause: int) -> Timer:
    """A deadline for a reaction: it runs from the tick that covers its cause."""
    return Timer(duration_ms=duration_ms, cause=cause)


def rerun(timer: Timer, clock_ms: int) -> Timer:
    """The same timer with its full time again, if it runs."""
    if timer.due_ms is None:
        return timer
    return msgspec.structs.replace(timer, due_ms=clock_ms + timer.duration_ms)


#: The time that may be booked ahead: as many as fit into it may come at once.
BURST_MS: Final = 5_000
_US: Final = 1_000


class Rate(msgspec.Struct):
    """What has been booked."""

    #: The next free moment, in microseconds; from the state.
    free_us: int
    #: How often it may happen, at most.
    per_second: int

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

    @property
    def _slice_us(self) -> int:
        return 1_000_000 // self.per_second
