"""The table of faults: what can break in worlds of groups, how it begins, and in which worlds.

Each section is drawn from luck of its own. So what a seed drew before a section was there has
stayed as it was, and a known bug is still met by the seeds that once met it. Who adds a kind adds
it to a later section than the first.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.tools.simulation import (
    assignors,
    company,
    crowds,
    forgeries,
    people,
    poison,
    positions,
    reassigned,
    store_moments,
    strangers,
)
from tests.tools.simulation import job_faults as job
from tests.tools.simulation import member_faults as members
from tests.tools.simulation import store_faults as stores
from tests.tools.simulation import user_faults as users
from tests.tools.simulation.lake import faults as lake
from tests.tools.simulation.lasting import Begin, killed, paused, slowed, switched
from tests.tools.simulation.plan import ASSIGNED, CLASSIC
from tests.tools.simulation.transactions import courier_faults as couriers
from tests.tools.simulation.transactions import faults as copiers
from tests.tools.simulation.transactions.couriers import Couriers
from tests.tools.simulation.user import CLOSES, RAISES


class Kind(NamedTuple):
    """A kind of fault."""

    #: Its number in reliability.
    risk: str
    #: For how long it lasts, in milliseconds; in worlds of claims, in heartbeat intervals.
    shortest: float
    longest: float
    #: Breaks it, and heals it.
    begin: Begin[Any]
    #: Whether it meets members only: neither the job, the brokers, nor the shard's other groups.
    is_calm: bool = False
    #: The kind of the groups that it happens to; empty: of all.
    of: str = ""
    #: What the world must be like, as fields of the plan: bounds that it can reach.
    needs: Mapping[str, int] = {}


Kinds = dict[str, Kind]

#: What others than drivers write for them.
FORGERY_KINDS: Final[Kinds] = {
    "forged-ticks": Kind("F-36", 3_000, 20_000, forgeries.forged_ticks),
    "forged-listings": Kind("F-36", 3_000, 20_000, forgeries.forged_listings),
    "copied-control": Kind("F-36", 3_000, 20_000, forgeries.copied_control),
}
#: Closed: one more would give every seed another world.
FIRST_KINDS: Final[Kinds] = {
    "duplicate-request": Kind("F-01", 0, 0, members.duplicate, True),
    "late-consent": Kind("F-01", 2_000, 20_000, members.late_consent, True, CLASSIC),
    "late-commits": Kind("F-04", 2_000, 20_000, members.late_commits, True),
    "slow-network": Kind("F-04", 2_000, 20_000, slowed(members.network, 300, 1_000, 4_000), True),
    "member-paused": Kind("F-05", 500, 30_000, paused(people.disturbed), True),
    "member-busy": Kind("F-05", 2_000, 30_000, switched(people.disturbed, "habits.is_busy"), True),
    "member-killed": Kind("F-06", 0, 0, members.kill, True),
    "member-closed": Kind("F-06", 0, 0, members.close, True),
    "member-joins": Kind("F-06", 0, 0, people.join, True),
    "all-leave": Kind("F-06", 0, 0, members.all_leave, True),
    "member-cut-off": Kind("F-04", 500, 30_000, switched(members.network, "is_cut"), True),
    "member-deaf": Kind("F-34", 500, 30_000, switched(members.network, "is_deaf"), True),
    "deaf-while-joining": Kind("F-34", 2_000, 30_000, members.deaf_while_joining, True),
    "late-and-mute": Kind("F-34", 8_000, 40_000, members.late_and_mute, True),
    "acks-lost": Kind("F-01", 500, 20_000, switched(members.network, "loses_acks"), True),
    "rows-again": Kind("F-02", 5_000, 30_000, switched(job.engine, "repeats_rows")),
    "driver-crashes": Kind("F-07", 0, 0, job.crash),
    "driver-crashes-twice": Kind("F-07", 0, 0, job.crash_twice),
    "driver-away": Kind("F-08", 10_000, 90_000, job.away),
    "driver-paused": Kind("F-08", 1_000, 30_000, paused(job.driver)),
    "slow-batches": Kind("F-09", 5_000, 30_000, slowed(job.engine_of_all, 2_000, 5_000, 9_000)),
    "broker-clock-jumps": Kind("F-10", 0, 0, job.clock_jumps),
    "leaders-move": Kind("F-10", 0, 0, job.leaders_move),
    "ticks-lost": Kind("F-10b", 5_000, 30_000, job.ticks_lost),
    "broker-away": Kind("F-16", 500, 40_000, job.broker_away),
    "garbage": Kind("F-18", 0, 0, strangers.garbage),
    "flood-of-joins": Kind("F-21", 2_000, 5_000, strangers.flood),
    "stranger-commits": Kind("F-35", 2_000, 20_000, strangers.commits, True),
    "poison-step": Kind("F-33", 5_000, 30_000, poison.poison_step),
    "twin-starts": Kind("F-23", 0, 0, members.twin, True, CLASSIC),
    "member-removed": Kind("F-23", 5_000, 30_000, members.removed, True),
    "second-driver": Kind("F-24", 0, 0, job.second),
    "checkpoint-lost": Kind("F-25", 0, 0, job.checkpoint_lost),
    "old-checkpoint": Kind("F-25", 0, 0, job.old_checkpoint),
    "state-corrupt": Kind("F-26", 0, 0, job.corrupt),
    "task-recomputed": Kind("F-28", 5_000, 30_000, switched(job.engine, "recomputes")),
    "topic-grows": Kind("F-30", 0, 0, members.topic_grows, True),
    "topic-appears": Kind("F-30", 0, 0, reassigned.topic_appears, True, ASSIGNED),
    "topic-vanishes": Kind("F-30", 3_000, 20_000, reassigned.topic_vanishes, True, ASSIGNED),
    "stale-listing": Kind("F-30", 0, 0, reassigned.stale_listing, of=ASSIGNED),
    "wish-changes": Kind("F-30", 0, 0, reassigned.wish_changes, True, ASSIGNED),
    "late-words": Kind("F-01", 5_000, 20_000, reassigned.late_words, True, ASSIGNED),
    "never-lets-go": Kind("F-05", 20_000, 50_000, reassigned.never_lets_go, True, ASSIGNED),
    "kind-changes": Kind("F-06", 0, 0, reassigned.kind_changes, of=ASSIGNED),
    **FORGERY_KINDS,
    "assignor-raises": Kind("F-33", 2_000, 40_000, assignors.raises, True, CLASSIC),
}
#: What the users of consumers do, and what becomes of their programs.
USER_KINDS: Final[Kinds] = {
    "bulk-reader": Kind("F-05", 5_000, 40_000, users.bulk_reader, True),
    "user-seeks": Kind("F-05", 0, 0, users.seeks, True),
    "user-pauses": Kind("F-05", 2_000, 20_000, users.pauses, True),
    "user-unsubscribes": Kind("F-06", 0, 15_000, users.unsubscribes, True),
    "subscription-changes": Kind("F-30", 0, 0, users.subscription_changes, True, CLASSIC),
    "topic-created": Kind("F-30", 0, 0, users.topic_created, True, CLASSIC),
    "commit-waits": Kind("F-05", 5_000, 40_000, switched(people.somebody, "habits.waits"), True),
    "commit-cancelled": Kind(
        "F-05", 2_000, 20_000, switched(people.somebody, "habits.cancels"), True
    ),
    "callback-raises": Kind("F-05", 5_000, 30_000, users.next_callback(RAISES), True),
    "callback-closes": Kind("F-06", 5_000, 30_000, users.next_callback(CLOSES), True),
    "patient-close": Kind("F-06", 0, 0, users.patient_close, True),
    "members-share": Kind("F-06", 0, 0, users.members_share, True),
    "odd-answers": Kind("F-18", 1_000, 5_000, users.odd_answers),
    "release-refused": Kind("F-04", 5_000, 20_000, users.release_refused, True, ASSIGNED),
}
#: Other groups with members, those who only keep positions, and administrators.
COMPANY_KINDS: Final[Kinds] = {
    "company-joins": Kind("F-06", 0, 0, company.joins),
    "query-positions": Kind("F-35", 5_000, 30_000, positions.query_positions),
    "query-deleted": Kind("F-35", 2_000, 20_000, positions.query_deleted),
    "positions-of-members": Kind("F-35", 3_000, 20_000, positions.of_members),
    "group-deleted": Kind("F-23", 0, 0, positions.group_deleted),
    "offsets-deleted": Kind("F-23", 0, 0, positions.offsets_deleted),
    "group-described": Kind("F-23", 2_000, 10_000, positions.group_described),
    "aside-and-rebuilt": Kind("F-33", 12_000, 20_000, company.aside_and_rebuilt),
}
_NEAR: Final = {"shard_bytes": 96 * 1024, "offsets_bytes": 24 * 1024}
_FEW: Final = {"new_groups_per_second": 1, "shards": 2}
#: Who wants more than there is.
CROWD_KINDS: Final[Kinds] = {
    "new-groups": Kind("F-21", 5_000, 40_000, crowds.new_groups, needs=_FEW),
    "shard-fills": Kind("F-21", 5_000, 20_000, crowds.shard_fills, needs=_NEAR),
    "hoarder": Kind("F-21", 10_000, 30_000, crowds.hoarder, needs={"sizes": 32}),
    "greedy-fetch": Kind("F-21", 0, 0, crowds.greedy_fetch, needs={"sizes": 32}),
}
LATER_KINDS: Final[Kinds] = USER_KINDS | COMPANY_KINDS | CROWD_KINDS
#: What the brokers do to the job.
BROKER_KINDS: Final[Kinds] = {"end-comes-late": Kind("F-04", 10_000, 60_000, job.end_comes_late)}
#: What operators do to the job's topics.
TOPIC_KINDS: Final[Kinds] = {"partition-added": Kind("F-30", 0, 0, job.partition_added)}
#: Requests that nobody has read are removed, and logs lose their ends.
LOG_KINDS: Final[Kinds] = {
    "requests-removed": Kind("F-08", 10_000, 40_000, job.requests_removed),
    "log-cut": Kind("F-26", 5_000, 20_000, job.log_cut),
}
#: What the job has to work with.
MEMORY_KINDS: Final[Kinds] = {"memory-short": Kind("F-09", 10_000, 30_000, job.memory_short)}
#: What becomes of a cluster of stores, and of its topics.
FIRST_STORE_KINDS: Final[Kinds] = {
    "store-killed": Kind("F-06", 0, 0, killed(stores.somebody)),
    "store-stops": Kind("F-06", 0, 0, stores.stops),
    "store-stops-not": Kind("F-06", 1_000, 5_000, stores.stops_not),
    "store-paused": Kind("F-05", 500, 30_000, paused(stores.somebody_perhaps_leading)),
    "store-busy": Kind("F-05", 2_000, 40_000, switched(stores.somebody, "habits.is_busy")),
    "store-cut-off": Kind("F-04", 500, 30_000, switched(stores.network, "is_cut")),
    "store-deaf": Kind("F-34", 500, 30_000, switched(stores.network, "is_deaf")),
    "store-slow": Kind("F-04", 2_000, 20_000, slowed(stores.network, 300, 1_000, 4_000)),
    "store-acks-lost": Kind("F-01", 500, 20_000, switched(stores.network, "loses_acks")),
    "stores-apart": Kind("F-04", 3_000, 20_000, switched(stores.somebody, "habits.is_apart")),
    "store-twin": Kind("F-23", 0, 0, stores.twin),
    "disk-lost": Kind("F-26", 0, 0, stores.disk_lost),
    "all-stores-killed": Kind("F-06", 0, 0, stores.all_killed),
    "store-removed": Kind("F-23", 0, 0, stores.removed),
    "store-forgotten": Kind("F-23", 0, 0, stores.forgotten),
    "store-words-again": Kind("F-01", 5_000, 30_000, stores.words_again),
    "store-never-lets-go": Kind(
        "F-05", 15_000, 40_000, switched(stores.somebody, "habits.keeps_all")
    ),
    "asked-while-deaf": Kind("F-34", 4_000, 20_000, store_moments.asked_while_deaf),
    "asked-and-rebuilt": Kind("F-25", 4_000, 5_000, store_moments.asked_and_rebuilt),
    "asked-while-busy": Kind("F-05", 4_000, 5_500, store_moments.asked_while_busy),
    "elected-outside": Kind("F-30", 8_000, 15_000, store_moments.elected_outside),
    "guarded-and-rebuilt": Kind("F-25", 8_000, 20_000, store_moments.guarded_and_rebuilt),
    "dropped-without-one": Kind("F-05", 20_000, 30_000, store_moments.dropped_without_one),
    "added-unheard": Kind("F-34", 0, 0, store_moments.added_unheard),
    "isr-again-unheard": Kind("F-34", 0, 0, store_moments.isr_again_unheard),
    "replicas-move": Kind("F-30", 0, 0, stores.replicas_move),
    "topic-dropped": Kind("F-30", 0, 0, stores.topic_dropped),
    "leaders-elected": Kind("F-30", 0, 0, stores.leaders_elected),
}
LATER_STORE_KINDS: Final[Kinds] = {"store-mute": Kind("F-34", 5_000, 45_000, stores.mute)}
STORE_KINDS: Final[Kinds] = FIRST_STORE_KINDS | LATER_STORE_KINDS
#: What becomes of copiers, whose transactions commit offsets.
COPIER_KINDS: Final[Kinds] = {
    "copier-killed": Kind("F-06", 0, 0, killed(copiers.somebody)),
    "copier-dies-inside": Kind("F-06", 0, 0, copiers.dies_inside),
    "copier-stalls-inside": Kind("F-05", 1_000, 25_000, copiers.stalls_inside),
    "copier-paused": Kind("F-05", 500, 25_000, paused(copiers.somebody)),
    "copier-cut-off": Kind("F-04", 500, 25_000, switched(copiers.somebody, "network.is_cut")),
    "copier-acks-lost": Kind("F-01", 500, 15_000, switched(copiers.somebody, "network.loses_acks")),
    "copier-twin": Kind("F-23", 5_000, 20_000, copiers.twin),
    "copier-joins": Kind("F-06", 8_000, 30_000, copiers.joins),
    "copier-ends-late": Kind("F-04", 10_000, 60_000, switched(copiers.crew, "habits.resends")),
    "copiers-aside": Kind("F-33", 5_000, 20_000, copiers.aside),
    "looks-fail": Kind("F-16", 5_000, 30_000, switched(copiers.crew, "faults.looks_fail")),
    "looks-are-short": Kind(
        "F-34", 5_000, 40_000, switched(copiers.crew, "faults.looks_are_short")
    ),
    "driver-dies-beside": Kind("F-07", 0, 0, copiers.driver_dies_beside),
    "rebuilt-while-pending": Kind("F-25", 0, 0, copiers.rebuilt_while_pending),
    "teller-killed": Kind("F-06", 0, 0, killed(copiers.teller)),
    "teller-twin": Kind("F-23", 3_000, 15_000, copiers.teller_twin),
    "teller-words-again": Kind("F-01", 5_000, 30_000, copiers.words_again),
}
#: What becomes of couriers, whose transactions the job's coordinator decides, and of the cluster
#: into which they write.
COURIER_KINDS: Final[Kinds] = {
    "courier-killed": Kind("F-06", 0, 0, killed(couriers.somebody)),
    "courier-dies-inside": Kind("F-06", 0, 0, couriers.dies_inside),
    "courier-stalls-inside": Kind("F-05", 1_000, 25_000, couriers.stalls_inside),
    "courier-wakes-late": Kind("F-23", 8_000, 20_000, couriers.wakes_late),
    "courier-cut-off": Kind("F-04", 500, 25_000, switched(couriers.somebody, "network.is_cut")),
    "courier-acks-lost": Kind(
        "F-01", 500, 15_000, switched(couriers.somebody, "network.loses_acks")
    ),
    "courier-twin": Kind("F-23", 5_000, 20_000, couriers.twin),
    "courier-words-again": Kind("F-01", 5_000, 30_000, couriers.again(Couriers.words_again)),
    "courier-records-again": Kind("F-01", 5_000, 30_000, couriers.again(Couriers.record_again)),
    "other-cluster-away": Kind("F-16", 500, 25_000, couriers.away),
    "far-reader-killed": Kind("F-06", 0, 0, couriers.reader_killed),
    "far-reader-paused": Kind("F-05", 500, 25_000, paused(couriers.reader)),
}
#: What becomes of members whose batches a Delta table decides.
LAKE_KINDS: Final[Kinds] = {
    "lake-dies-inside": Kind("F-06", 0, 0, lake.dies_inside),
    "lake-stalls-inside": Kind("F-05", 1_000, 30_000, lake.stalls_inside),
    "lake-acts-late": Kind("F-05", 25_000, 50_000, lake.acts_late),
    "lake-cut-off": Kind("F-04", 500, 25_000, switched(lake.anybody, "network.is_cut")),
    "lake-joins": Kind("F-06", 8_000, 30_000, lake.joins),
    "lake-fails": Kind("F-16", 5_000, 30_000, switched(lake.store, "fails")),
    "lake-table-goes": Kind("F-23", 2_000, 60_000, lake.table_goes),
}
KINDS: Final[Kinds] = (
    FIRST_KINDS
    | LATER_KINDS
    | BROKER_KINDS
    | TOPIC_KINDS
    | LOG_KINDS
    | MEMORY_KINDS
    | STORE_KINDS
    | COPIER_KINDS
    | COURIER_KINDS
    | LAKE_KINDS
)
NEEDS: Final = {name: kind.needs for name, kind in KINDS.items() if kind.needs}
MEMBER_KINDS: Final = frozenset(name for name, kind in KINDS.items() if kind.is_calm)
#: Of each kind of group: what does not happen to it.
NOT_OF: Final = {
    group: frozenset(name for name, kind in KINDS.items() if kind.of not in ("", group))
    for group in (CLASSIC, ASSIGNED)
}
#: One forward step of the brokers' clocks within one session is what is promised to be survived.
CLOCK_KINDS: Final = frozenset({"broker-clock-jumps", "leaders-move"})
