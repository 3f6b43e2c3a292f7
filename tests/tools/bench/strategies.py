"""How long the strategies of server-assigned groups take, and expressions over many topics.

    python -m tests.tools.bench.strategies [NAME …]    sizes, or `expressions`

JSON lines on stdout: for each size and strategy the milliseconds of a first division, and of
divisions after one member joined, and after one left. One process, one core, nothing but the
division itself. `joins` is a batch of 200 joins, one division for each. Times are of the processor,
since others may be at work on the machine; `wall` is what passed meanwhile. What `expressions`
measures says `expressions.py`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from coordlib.core.groups.assignors.registry import BUILT_IN, check_total
from coordlib.core.groups.assignors.server_model import DEFAULT, Shares, Subscriber
from tests.tools.bench import expressions
from tests.tools.bench.figures import Took, summary, tell, tell_machine, timed

BENCH: Final = "strategies"
JOINS: Final = 200
REPEATS: Final = 15
EXPRESSIONS: Final = "expressions"

Members = dict[str, Subscriber]


@dataclass(frozen=True, slots=True)
class Size:
    """A group to measure; its members are numbered."""

    name: str
    members: int
    topics: int
    partitions: int  # of each topic
    #: Members want one half of the topics or the other.
    is_mixed: bool = False
    #: Capacities go around from 1 to this.
    capacity_max: int = 1

    @property
    def counts(self) -> dict[str, int]:
        """Topic -> partitions."""
        return {f"topic-{number:04}": self.partitions for number in range(self.topics)}

    def member(self, number: int) -> Subscriber:
        """A member that has nothing yet."""
        topics = tuple(self.counts)
        if self.is_mixed:
            half = self.topics // 2
            topics = topics[half:] if number % 2 else topics[:half]
        return Subscriber(topics=topics, capacity=1 + number % self.capacity_max)


SIZES: Final = (
    Size("one-topic", 1_000, 1, 20_000),
    Size("forty-topics", 1_000, 40, 500),
    Size("forty-topics-weighted", 1_000, 40, 500, capacity_max=8),
    Size("forty-topics-mixed", 1_000, 40, 500, is_mixed=True),
)


def run(size: Size, strategy: str, repeats: int = REPEATS) -> None:
    """Measure one size with one strategy, and say what it took."""
    counts, divide = size.counts, BUILT_IN[strategy]
    members = {_name(number): size.member(number) for number in range(size.members)}
    shares, first = timed(lambda: divide(members, counts))
    members = _holding(members, shares)
    joined = members | {_name(size.members): size.member(size.members)}
    left = {name: member for name, member in members.items() if name != _name(size.members // 2)}
    tell(
        BENCH,
        size.name,
        strategy=strategy,
        members=size.members,
        partitions=sum(counts.values()),
        first_ms=first.cpu_ms,
        one_joined_ms=_spread(joined, counts, strategy, repeats),
        one_left_ms=_spread(left, counts, strategy, repeats),
    )


def run_joins(size: Size, strategy: str, joins: int = JOINS) -> None:
    """Measure a batch of joins: each is divided on its own, over what the one before it gave."""
    counts, divide = size.counts, BUILT_IN[strategy]
    members = {_name(number): size.member(number) for number in range(size.members - joins)}
    members = _holding(members, divide(members, counts))
    took: list[Took] = []
    for number in range(size.members - joins, size.members):
        members[_name(number)] = size.member(number)
        shares, each = timed(partial(divide, members, counts))
        took.append(each)
        members = _holding(members, shares)
    tell(
        BENCH,
        f"{size.name}-joins",
        strategy=strategy,
        joins=joins,
        all_ms=round(sum(each.cpu_ms for each in took), 1),
        each_ms=summary(took),
    )


def _name(number: int) -> str:
    return f"member-{number:05}"


def _holding(members: Members, shares: Shares) -> Members:
    return {
        name: msgspec.structs.replace(member, share=shares[name])
        for name, member in members.items()
    }


def _spread(
    members: Members, counts: dict[str, int], strategy: str, repeats: int
) -> dict[str, float]:
    took: list[Took] = []
    for _ in range(repeats):
        shares, each = timed(lambda: BUILT_IN[strategy](members, counts))
        check_total(members, counts, shares)
        took.append(each)
    return summary(took)


def main(names: Sequence[str]) -> int:
    """All sizes with a batch of joins each, and the expressions; or what is named of it."""
    known = [*(size.name for size in SIZES), EXPRESSIONS]
    if unknown := [name for name in names if name not in known]:
        print(f"{unknown[0]!r} is no size; there are {', '.join(known)}", file=sys.stderr)
        return 2
    tell_machine(BENCH)
    for size in SIZES:
        if not names or size.name in names:
            for strategy in BUILT_IN:
                run(size, strategy)
            run_joins(size, DEFAULT)
    if not names or EXPRESSIONS in names:
        expressions.run_all(BENCH)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
