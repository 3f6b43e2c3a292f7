"""The act `classic`: a classic group, whose leader assigns the partitions.

Three members share a topic while records come; when a third is consumed, one is killed without a
word; the others take its partitions over when its session has expired; then a fourth joins.
"""

from typing import Final

from coordlib.demo import recorded, show
from coordlib.demo.act import UNCOMMITTED_MIN, Act
from coordlib.demo.verdict import judge, last_commits
from coordlib.demo.watch import Watch
from coordlib.local.progress import phase

RECORDS: Final = 20_000
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


ACT: Final = Act(
    title="Act classic: consumers in a classic group",
    topic="orders",
    group="order-readers",
    records=RECORDS,
    per_second=700,
    holds=(18_000,),
    victim=VICTIM,
    file=recorded.FILE,
    course=_kill_one_and_start_another,
    judge=judge,
    last_commits=last_commits,
    show_owners=show.owners,
)
