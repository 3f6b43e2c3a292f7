"""The second act: a group that the coordinator divides, and most of its members are Spark queries.

Two queries share a topic while records come; a Python member joins, and each of the queries gives
it something; one query is killed, JVM and all; the others take over when its session has expired.
"""

from pathlib import Path
from typing import Final

from coordlib.local.demo import recorded, show
from coordlib.local.demo.act import UNCOMMITTED_MIN, Act
from coordlib.local.demo.members import SPARK
from coordlib.local.demo.second_verdict import judge, last_commits
from coordlib.local.demo.verdict import Check, Facts
from coordlib.local.demo.watch import Watch
from coordlib.local.progress import phase
from coordlib.local.stack import Stack

TITLE: Final = "Second act: Spark queries and a consumer, divided by the coordinator"
ACT: Final = Act(
    topic="clicks",
    group="click-readers",
    records=6_000,
    per_second=300,
    holds=(2_000, 5_000),
    victim="query-2",
    file=recorded.SECOND_FILE,
    # A query is started in the thread that polls; on a busy machine that takes its time.
    config={"group.protocol": "assigned", "max.poll.interval.ms": 60_000},
)
QUERIES: Final = ("query-1", ACT.victim)
PYTHON: Final = "member-5"
JOIN_AT: Final = ACT.records // 6


def tell(facts: Facts, home: Path, print_table: show.PrintTable) -> list[Check]:
    """Show what happened and whether the promises hold."""
    checks = [*judge(facts), recorded.check(home / ACT.file)]
    show.generations(facts, print_table)
    show.tenures(facts, print_table)
    show.partitions(facts, last_commits(facts), print_table)
    show.verdict(checks)
    return checks


def play(stack: Stack, live: show.Live) -> Facts:
    return ACT.play(stack, live, _kill_a_query)


def _kill_a_query(watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {' and '.join(QUERIES)}: Spark queries, each in a JVM of its own"):
        for name in QUERIES:
            members.start(name, SPARK)
        watch.until("They share the partitions", lambda: watch.is_divided_among(QUERIES))
    ACT.produce(watch)
    victim, read = members.witnesses[ACT.victim], members.witnesses
    watch.until(
        f"{JOIN_AT:,} records are consumed, by both",
        lambda: watch.consumed() >= JOIN_AT and all(read[name].consumed for name in QUERIES),
    )
    live(f"{JOIN_AT:,} records are consumed; starting {PYTHON}, a consumer in Python")
    members.start(PYTHON)
    everybody = (*QUERIES, PYTHON)
    watch.until(f"{PYTHON} owns partitions", lambda: watch.is_divided_among(everybody))
    watch.production.go_on()
    watch.until(
        f"{ACT.victim} has read on, and not committed",
        lambda: watch.is_divided_among(everybody) and victim.uncommitted >= UNCOMMITTED_MIN,
    )
    ACT.kill(watch)
    left = [name for name in everybody if name != ACT.victim]
    watch.until("The others own its partitions", lambda: watch.is_divided_among(left))
    live("Its session has expired, and the others own its partitions")
