"""The first act: a group that divides by itself.

Three members share a topic while records come; when a third is consumed, one is killed without a
word; the others take its partitions over when its session has expired; then a fourth joins.
"""

from pathlib import Path
from typing import Final

from coordlib.local.demo import recorded, show
from coordlib.local.demo.act import UNCOMMITTED_MIN, Act
from coordlib.local.demo.verdict import Check, Facts, judge, last_commits
from coordlib.local.demo.watch import Watch
from coordlib.local.progress import phase
from coordlib.local.stack import Stack

TITLE: Final = "First act: consumers that divide among themselves"
ACT: Final = Act(
    topic="orders",
    group="order-readers",
    records=20_000,
    per_second=700,
    holds=(18_000,),
    victim="member-2",
    file=recorded.FILE,
)
KILL_AT: Final = ACT.records // 3
FIRST: Final = ("member-1", ACT.victim, "member-3")
FOURTH: Final = "member-4"


def tell(facts: Facts, home: Path, print_table: show.PrintTable) -> list[Check]:
    """Show what happened and whether the promises hold."""
    checks = [*judge(facts), recorded.check(home / ACT.file)]
    show.generations(facts, print_table)
    show.owners(facts, print_table)
    show.partitions(facts, last_commits(facts), print_table)
    show.verdict(checks)
    return checks


def play(stack: Stack, live: show.Live) -> Facts:
    return ACT.play(stack, live, _kill_one_and_start_another)


def _kill_one_and_start_another(watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {', '.join(FIRST)}; the job's first batches take longest"):
        for name in FIRST:
            members.start(name)
        watch.until("They share the partitions", lambda: watch.is_shared_among(FIRST))
    ACT.produce(watch)
    victim = members.witnesses[ACT.victim]
    watch.until(
        f"A third of the records is consumed by {len(FIRST)} members",
        lambda: (
            watch.consumed() >= KILL_AT
            and watch.is_shared_among(FIRST)
            and victim.uncommitted >= UNCOMMITTED_MIN
        ),
    )
    ACT.kill(watch)
    left = [name for name in FIRST if name != ACT.victim]
    watch.until(
        "The others own its partitions", lambda: watch.is_shared_among(left, victim.generation)
    )
    live(f"Its session has expired, the others own its partitions; starting {FOURTH}")
    members.start(FOURTH)
    watch.until(f"{FOURTH} owns partitions", lambda: watch.is_shared_among([*left, FOURTH]))
    live(f"{FOURTH} has joined and consumes too")
