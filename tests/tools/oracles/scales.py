"""A topic's members by load: who gets the next partition, and who gives one up.

Two ranges of members in order of load: those with fewest, which grows from the left, and those with
most, which grows from the right. Within a range all have equally many; once each had a turn, the
range's level moves by one and takes in those who stand there. Source: `MemberAssignmentBalancer` in
`UniformHeterogeneousAssignmentBuilder.java`.
"""

from collections.abc import Sequence


class Scales:
    """Members are numbers. Loads change while the scales are in use, as they say."""

    def __init__(self, members: Sequence[int], loads: list[int]) -> None:
        self._loads = loads
        self._order = sorted(members, key=lambda number: (loads[number], number))
        size = len(self._order)
        low, high = loads[self._order[0]], loads[self._order[-1]]
        #: How far apart members are at the beginning.
        self.imbalance = high - low
        # Members before `_low_end` have `_low_level`; the next of them to get one is `_low_next`.
        self._low_end, self._low_level, self._low_next = 0, low - 1, 0
        # Members from `_high_start` to before `_high_end` have `_high_level`. Those from
        # `_high_end` on have more but nothing of this topic.
        self._high_start, self._high_end, self._high_level = size, size, high + 1
        self._high_next = size - 1

    def is_balanced(self) -> bool:
        """Whether the two ranges are at most one apart."""
        return self._high_level - self._low_level <= 1

    def next_least(self) -> int:
        """Who gets the next partition."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._order) and self._load(self._low_end) == self._low_level:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._order[self._low_next - 1]

    def next_most(self) -> int | None:
        """The member that gives one up; None if none is left that could."""
        if self._high_next < self._high_start:
            if 0 < self._high_start >= self._high_end:
                # All of the range were left out: on to the next ones, wherever they stand.
                self._high_level = self._load(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return None
        self._high_next -= 1
        return self._order[self._high_next + 1]

    def leave_out_most(self) -> None:
        """The one just named has nothing to give up."""
        at, end = self._high_next + 1, self._high_end - 1
        self._order[at], self._order[end] = self._order[end], self._order[at]
        self._high_end = end

    def _load(self, at: int) -> int:
        return self._loads[self._order[at]]
