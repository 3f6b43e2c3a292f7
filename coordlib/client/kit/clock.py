"""The one clock of a member: monotonic, and going on while the machine sleeps (rule 8)."""

import time

# Linux has it; elsewhere the monotonic clock is the nearest thing.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_ms() -> int:
    """Milliseconds since some fixed moment; no relation to the time of day."""
    return boottime_ns() // 1_000_000


def boottime_ns() -> int:
    """The same in nanoseconds, to put in order what several processes of a machine did."""
    return time.clock_gettime_ns(_CLOCK)
