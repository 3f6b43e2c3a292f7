"""The acts of the demo: what is done to a group, by name of the act.

classic: a classic group, whose leader assigns the partitions. Three members share a topic while
records come; when a third is consumed, one is killed without a word; the others take its partitions
over when its session has expired; then a fourth joins.

assigned: a server-assigned group, most of whose members are Spark queries. Two queries share a
topic while records come; a Python member joins, and each of the queries gives it partitions; one
query is killed, JVM and all; the others take over when its session has expired.
"""

from collections.abc import Sequence
from typing import Final

from coordlib.demo import show
from coordlib.demo.act import UNCOMMITTED_MIN, Act
from coordlib.demo.members import SPARK
from coordlib.demo.verdict import last_commits, last_commits_of_tenures
from coordlib.demo.watch import Watch
from coordlib.errors import SetupError
from coordlib.local.progress import phase

ORDERS: Final = 20_000
VICTIM: Final = "member-2"
FIRST: Final = ("member-1", VICTIM, "member-3")
FOURTH: Final = "member-4"


def _kill_one_and_start_another(act: Act, watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {', '.join(FIRST)}; the job's first batches take longest"):
        for name in FIRST:
            members.start(name)
        watch.until("They share the partitions", lambda: watch.is_shared_among(FIRST))
    act.produce(watch)
    victim = members.witnesses[VICTIM]
    watch.until(
        f"A third of the records is consumed by {len(FIRST)} members",
        lambda: (
            watch.consumed() >= act.records // 3
            and watch.is_shared_among(FIRST)
            and victim.uncommitted >= UNCOMMITTED_MIN
        ),
    )
    act.kill(watch)
    left = [name for name in FIRST if name != VICTIM]
    watch.until(
        "The others own its partitions", lambda: watch.is_shared_among(left, victim.generation)
    )
    live(f"Its session has expired, the others own its partitions; starting {FOURTH}")
    members.start(FOURTH)
    watch.until(f"{FOURTH} owns partitions", lambda: watch.is_shared_among([*left, FOURTH]))
    live(f"{FOURTH} has joined and consumes too")


CLASSIC: Final = Act(
    title="Act classic: consumers in a classic group",
    topic="orders",
    group="order-readers",
    records=ORDERS,
    per_second=700,
    holds=(18_000,),
    victim=VICTIM,
    file="history.jsonl",
    course=_kill_one_and_start_another,
    last_commits=last_commits,
    show_owners=show.owners,
)


CLICKS: Final = 6_000
QUERY_VICTIM: Final = "query-2"
QUERIES: Final = ("query-1", QUERY_VICTIM)
PYTHON: Final = "member-5"
JOIN_AT: Final = CLICKS // 6


def _kill_a_query(act: Act, watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {' and '.join(QUERIES)}: Spark queries, each in a JVM of its own"):
        for name in QUERIES:
            members.start(name, SPARK)
        watch.until("They share the partitions", lambda: watch.is_divided_among(QUERIES))
    act.produce(watch)
    victim, read = members.witnesses[QUERY_VICTIM], members.witnesses
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
        f"{QUERY_VICTIM} has read on, and not committed",
        lambda: watch.is_divided_among(everybody) and victim.uncommitted >= UNCOMMITTED_MIN,
    )
    act.kill(watch)
    left = [name for name in everybody if name != QUERY_VICTIM]
    watch.until("The others own its partitions", lambda: watch.is_divided_among(left))
    live("Its session has expired, and the others own its partitions")


ASSIGNED: Final = Act(
    title="Act assigned: Spark queries and a consumer in a server-assigned group",
    topic="clicks",
    group="click-readers",
    records=CLICKS,
    per_second=300,
    holds=(2_000, 5_000),
    victim=QUERY_VICTIM,
    file="history-assigned.jsonl",
    # A query is started in the thread that polls; on a busy machine that takes its time.
    config={"group.protocol": "assigned", "max.poll.interval.ms": 60_000},
    course=_kill_a_query,
    last_commits=last_commits_of_tenures,
    show_owners=show.tenures,
)


ACTS: Final[dict[str, Act]] = {
    "classic": CLASSIC,
    "assigned": ASSIGNED,
}
#: The acts that are played when none is named; together two to three minutes.
USUAL: Final = ("classic", "assigned")
ALL: Final = "all"


def chosen(names: Sequence[str]) -> list[Act]:
    """The acts with these names, each once and in this order; the usual ones without a name.

    Raises:
        SetupError: an act of a given name does not exist.
    """
    wrong = [name for name in names if name not in ACTS and name != ALL]
    if wrong:
        raise SetupError(
            f"The demo has no act {wrong[0][:100]!r}.",
            f"its acts: {', '.join(ACTS)}",
            f"Name one of them, several (--act NAME --act NAME), or all: --act {ALL}",
        )
    wanted = ACTS if ALL in names else dict.fromkeys(names or USUAL)
    return [ACTS[name] for name in wanted]
