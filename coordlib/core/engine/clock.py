"""Deadlines on the shard's clock. Source: TIME-AND-FENCING.md, rules 2 and 3.

A *plain* deadline counts from the clock at which it was set. A *reaction* deadline waits for
somebody who must first hear a question: it starts only when a tick's `published` covers the
record that caused the question, so that a job that was away judges nobody too early.
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


def advance(clock_ms: int, previous_ms: int, timestamp_ms: int, cap_ms: int) -> int:
    """Rule 1: the clock moves by the step between records, clipped to 0..CAP.  # INV-06"""
    return clock_ms + min(max(timestamp_ms - previous_ms, 0), cap_ms)


def rerun(timer: Timer, clock_ms: int) -> Timer:
    """The same timer with its full time again, if it runs."""
    if timer.due_ms is None:
        return timer
    return msgspec.structs.replace(timer, due_ms=clock_ms + timer.duration_ms)
