"""The arguments and the result of a strategy.

A strategy is a pure function `assign(members, partitions) -> shares`: no clock, no randomness, no
set whose order shows. The same members and partitions in the same order give the same shares, on
every machine and when a batch runs again. It must be total: every partition of a wanted topic goes
to exactly one member that wants it, and no member gets any other partition; `registry.check_total`
checks that.

Members are weighted: where possible, a member's share is in proportion to its capacity. Each
strategy's module defines that for itself.
Source: seed 000 (`partition.assignment.strategies`); KIP-848's server-side assignors.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

#: Topic to partitions, in ascending order; no topic without partitions.
Share = dict[str, tuple[int, ...]]
#: By member id; names every member, also one that gets nothing.
Shares = dict[str, Share]


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """One member, with the fields that a strategy may read."""

    #: Topics that it wants and that exist, in ascending order, none twice.
    topics: tuple[str, ...]
    #: Its share of the last target assignment; may name what is not wanted or is no more.
    share: Mapping[str, tuple[int, ...]] = {}
    #: At least 1; its share is to be in proportion to it.
    capacity: int = 1


#: Members by id in the order in which they joined; partitions: topic to how many it has.
Strategy = Callable[[Mapping[str, Subscriber], Mapping[str, int]], Shares]

DEFAULT: Final = "sticky"
