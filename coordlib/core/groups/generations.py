"""The order of a group's generations: after the last int32 comes 1, and the order goes on.

Generations are compared as serial numbers (RFC 1982): of two, the older one is the one from which
fewer steps lead to the other. So 2**31 - 1 is older than 1, and a number that a group never had
counts as older or newer, whichever is nearer.
"""

from typing import Final

from coordlib.limits import INT32_MAX

#: Steps from an older generation to a newer one are at most half of the ring.
_HALF: Final = INT32_MAX // 2


def after(generation: int) -> int:
    """The next generation; after the last int32 comes 1.  # INV-11

    Kafka's generation would turn negative there, and no member has a negative one.
    """
    return generation % INT32_MAX + 1


def is_older(generation: int, other: int) -> bool:
    """Whether a generation was issued before another one. None yet (0 or -1) is the oldest."""
    if generation < 1 or other < 1:
        return generation < other
    return 0 < (other - generation) % INT32_MAX <= _HALF
