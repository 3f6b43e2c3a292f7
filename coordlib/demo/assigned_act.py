"""The act `assigned`: a server-assigned group, most of whose members are Spark queries.

Two queries share a topic while records come; a Python member joins, and each of the queries gives
it partitions; one query is killed, JVM and all; the others take over when its session has expired.
"""

from typing import Final

from coordlib.demo import recorded, show
from coordlib.demo.act import UNCOMMITTED_MIN, Act
from coordlib.demo.assigned_verdict import judge, last_commits
from coordlib.demo.members import SPARK
from coordlib.demo.watch import Watch
from coordlib.local.progress import phase

RECORDS: Final = 6_000
VICTIM: Final = "query-2"
QUERIES: Final = ("query-1", VICTIM)
PYTHON: Final = "member-5"
JOIN_AT: Final = RECORDS // 6


def _kill_a_query(act: Act, watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {' and '.join(QUERIES)}: Spark queries, each in a JVM of its own"):
        for name in QUERIES:
            members.start(name, SPARK)
        watch.until("They share the partitions", lambda: watch.is_divided_among(QUERIES))
    act.produce(watch)
    victim, read = members.witnesses[VICTIM], members.witnesses
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
        f"{VICTIM} has read on, and not committed",
        lambda: watch.is_divided_among(everybody) and victim.uncommitted >= UNCOMMITTED_MIN,
    )
    act.kill(watch)
    left = [name for name in everybody if name != VICTIM]
    watch.until("The others own its partitions", lambda: watch.is_divided_among(left))
    live("Its session has expired, and the others own its partitions")


ACT: Final = Act(
    title="Act assigned: Spark queries and a consumer in a server-assigned group",
    topic="clicks",
    group="click-readers",
    records=RECORDS,
    per_second=300,
    holds=(2_000, 5_000),
    victim=VICTIM,
    file=recorded.ASSIGNED_FILE,
    # A query is started in the thread that polls; on a busy machine that takes its time.
    config={"group.protocol": "assigned", "max.poll.interval.ms": 60_000},
    course=_kill_a_query,
    judge=judge,
    last_commits=last_commits,
    show_owners=show.tenures,
)
