"""How long the assignors take: one process, one core, nothing but the assignment itself.

    python -m tests.tools.bench_assignors [NAME …]

JSON lines on stdout, one for each run: what it was, its wall and processor seconds for a first
assignment and for the one after a member left, and the target, if there is one. The sizes with
`large` are those of Kafka's `AbstractStickyAssignorTest`, which allows 30 s for equal and 90 s for
different subscriptions, both assignments together.
"""

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordlib.core.groups.assignors.model import Assignments, Member
from tests.tools.assignor_group import ASSIGNORS, Cluster, described, pairs
from tests.tools.bench.figures import tell, tell_machine

BENCH: Final = "assignors"
STICKY: Final = ("sticky", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class Size:
    """A group to measure."""

    name: str
    assignors: Sequence[str]
    members: int
    topics: int
    partitions: int  # of each topic
    target_s: float | None = None
    #: The topics of a member, by its number; None: all.
    wants: Callable[[int, Sequence[str]], Sequence[str]] | None = None
    leaving: int = 1
    has_racks: bool = False


def _but_the_last(members: int) -> Callable[[int, Sequence[str]], Sequence[str]]:
    return lambda number, topics: topics[:1] if number == members - 1 else topics


def _two_kinds(number: int, topics: Sequence[str]) -> Sequence[str]:
    half = len(topics) // 2
    return topics[half:] if number % 4 else topics[:half]


def _some(number: int, topics: Sequence[str]) -> Sequence[str]:
    lot = random.Random(number)
    return lot.sample(topics, lot.randrange(1, 20))


SIZES: Final = (
    Size("2000x20x100", ("range", "roundrobin", *STICKY, "uniform"), 2_000, 20, 100, 5.0),
    Size("2000x20x100-one-differs", STICKY, 2_000, 20, 100, 5.0, _but_the_last(2_000)),
    Size("2000x20x100-racks", ("range", *STICKY), 2_000, 20, 100, 5.0, has_racks=True),
    Size("200x200x1000", STICKY, 200, 200, 1_000),
    Size("not-timeout", STICKY, 500, 100, 200, 90.0, _two_kinds),
    Size("all-different", STICKY, 2_000, 400, 100, wants=_some),
    Size("large-random", STICKY, 200, 40, 5, 60.0, _some, leaving=50),
    Size("large-uniform-racks", STICKY, 2_000, 50, 2_000, 30.0, has_racks=True),
    Size("large-uniform", STICKY, 2_000, 500, 2_000, 30.0),
    Size("large-nonequal", STICKY, 2_000, 500, 2_000, 90.0, _but_the_last(2_000)),
)


def run(size: Size, assignor: str) -> None:
    """Measure one size with one assignor, and say what it took."""
    topics = [f"topic-{number:04}" for number in range(size.topics)]
    racks = ("east", "west", "north") if size.has_racks else (None,)
    members = {}
    for number in range(size.members):
        wanted = topics if size.wants is None else size.wants(number, topics)
        members[f"consumer-{number:05}"] = Member(tuple(wanted), rack=racks[number % len(racks)])
    cluster = Cluster(dict.fromkeys(topics, size.partitions), _replicas(size, topics))
    given, first = _timed(assignor, members, cluster)
    held = pairs(given)
    step = size.members // size.leaving
    after = {
        name: described(assignor, member, held[name], 1)
        for number, (name, member) in enumerate(members.items())
        if number % step
    }
    _, again = _timed(assignor, after, cluster)
    tell(
        BENCH,
        size.name,
        assignor=assignor,
        members=size.members,
        partitions=size.topics * size.partitions,
        **{f"first_{name}": took for name, took in first.items()},
        **{f"after_{size.leaving}_left_{name}": took for name, took in again.items()},
        target_s=size.target_s,
    )


def _replicas(size: Size, topics: Sequence[str]) -> dict[str, list[list[str]]]:
    """Two of the three racks, in turn: racks then make a difference."""
    if not size.has_racks:
        return {}
    places = (["east", "west"], ["west", "north"], ["north", "east"])
    return {topic: [places[n % 3] for n in range(size.partitions)] for topic in topics}


def _timed(
    assignor: str, members: Mapping[str, Member], cluster: Cluster
) -> tuple[Assignments, dict[str, float]]:
    wall, processor = time.perf_counter(), time.process_time()
    given = ASSIGNORS[assignor](members, cluster)
    took = {"s": time.perf_counter() - wall, "cpu_s": time.process_time() - processor}
    return given, {name: round(value, 3) for name, value in took.items()}


def main(names: Sequence[str]) -> int:
    """All sizes, or those that are named."""
    known = [size.name for size in SIZES]
    if unknown := [name for name in names if name not in known]:
        print(f"{unknown[0]!r} is no size; there are {', '.join(known)}", file=sys.stderr)
        return 2
    tell_machine(BENCH)
    for size in SIZES:
        if not names or size.name in names:
            for assignor in size.assignors:
                run(size, assignor)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
