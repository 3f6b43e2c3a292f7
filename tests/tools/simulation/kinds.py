"""Kinds of faults: the first ones, and those that have luck of their own: users, and many more.

A seed draws the latter from streams of their own. So what it drew before these were there has
stayed as it was, and a known bug is still met by the seeds that once met it. Who adds a kind adds
it here.
"""

from typing import Final

from tests.tools.simulation.signed_worlds import FORGERY_KINDS

#: Kind -> (its number in reliability, shortest and longest time, milliseconds).
Kinds = dict[str, tuple[str, int, int]]

#: What the users of consumers do, and what becomes of their programs.
USER_KINDS: Final[Kinds] = {
    "bulk-reader": ("F-05", 5_000, 40_000),
    "user-seeks": ("F-05", 0, 0),
    "user-pauses": ("F-05", 2_000, 20_000),
    "user-unsubscribes": ("F-06", 0, 15_000),
    "subscription-changes": ("F-30", 0, 0),
    "topic-created": ("F-30", 0, 0),
    "commit-waits": ("F-05", 5_000, 40_000),
    "commit-cancelled": ("F-05", 2_000, 20_000),
    "callback-raises": ("F-05", 5_000, 30_000),
    "callback-closes": ("F-06", 5_000, 30_000),
    "patient-close": ("F-06", 0, 0),
    "members-share": ("F-06", 0, 0),
    "odd-answers": ("F-18", 1_000, 5_000),
    "release-refused": ("F-04", 5_000, 20_000),
}
#: Other groups with members, those who only keep positions, and administrators.
COMPANY_KINDS: Final[Kinds] = {
    "company-joins": ("F-06", 0, 0),
    "query-positions": ("F-35", 5_000, 30_000),
    "query-deleted": ("F-35", 2_000, 20_000),
    "positions-of-members": ("F-35", 3_000, 20_000),
    "group-deleted": ("F-23", 0, 0),
    "offsets-deleted": ("F-23", 0, 0),
    "group-described": ("F-23", 2_000, 10_000),
    "aside-and-rebuilt": ("F-33", 12_000, 20_000),
}
#: Who wants more than there is; each needs a world whose bounds are near (`NEEDS`).
CROWD_KINDS: Final[Kinds] = {
    "new-groups": ("F-21", 5_000, 40_000),
    "shard-fills": ("F-21", 5_000, 20_000),
    "hoarder": ("F-21", 10_000, 30_000),
    "greedy-fetch": ("F-21", 0, 0),
}
#: What the brokers do to the job. Drawn apart from all others.
BROKER_KINDS: Final[Kinds] = {"end-comes-late": ("F-04", 10_000, 60_000)}
#: Requests that nobody has read are removed, and logs lose their ends. Drawn apart, too.
LOG_KINDS: Final[Kinds] = {
    "requests-removed": ("F-08", 10_000, 40_000),
    "log-cut": ("F-26", 5_000, 20_000),
}
#: What the job has to work with. Drawn apart, too.
MEMORY_KINDS: Final[Kinds] = {"memory-short": ("F-09", 10_000, 30_000)}
#: Of the seeds with nothing but groups, those in which it happens.
MEMORY_SHARE: Final = 0.04
#: Of the seeds that are neither crowded nor have short retention, those in which that happens.
LOGS_SHARE: Final = 0.05
#: Of the seeds, those in which it happens.
LATE_ENDS_SHARE: Final = 0.1
#: What operators do to the job's topics. Drawn apart from all others, too.
TOPIC_KINDS: Final[Kinds] = {"partition-added": ("F-30", 0, 0)}
#: Of the seeds, those in which it happens.
TOPICS_SHARE: Final = 0.1
#: What becomes of a cluster of stores, and of its topics. Drawn apart from all others, too.
FIRST_STORE_KINDS: Final[Kinds] = {
    "store-killed": ("F-06", 0, 0),
    "store-stops": ("F-06", 0, 0),
    "store-stops-not": ("F-06", 1_000, 5_000),
    "store-paused": ("F-05", 500, 30_000),
    "store-busy": ("F-05", 2_000, 40_000),
    "store-cut-off": ("F-04", 500, 30_000),
    "store-deaf": ("F-34", 500, 30_000),
    "store-slow": ("F-04", 2_000, 20_000),
    "store-acks-lost": ("F-01", 500, 20_000),
    "stores-apart": ("F-04", 3_000, 20_000),
    "store-twin": ("F-23", 0, 0),
    "disk-lost": ("F-26", 0, 0),
    "all-stores-killed": ("F-06", 0, 0),
    "store-removed": ("F-23", 0, 0),
    "store-forgotten": ("F-23", 0, 0),
    "store-words-again": ("F-01", 5_000, 30_000),
    "store-never-lets-go": ("F-05", 15_000, 40_000),
    "asked-while-deaf": ("F-34", 4_000, 20_000),
    "asked-and-rebuilt": ("F-25", 4_000, 5_000),
    "asked-while-busy": ("F-05", 4_000, 5_500),
    "elected-outside": ("F-30", 8_000, 15_000),
    "guarded-and-rebuilt": ("F-25", 8_000, 20_000),
    "dropped-without-one": ("F-05", 20_000, 30_000),
    "added-unheard": ("F-34", 0, 0),
    "isr-again-unheard": ("F-34", 0, 0),
    "replicas-move": ("F-30", 0, 0),
    "topic-dropped": ("F-30", 0, 0),
    "leaders-elected": ("F-30", 0, 0),
}
#: Kinds that came later, and have luck of their own: the worlds without them stay as they were.
LATER_STORE_KINDS: Final[Kinds] = {"store-mute": ("F-34", 5_000, 45_000)}
STORE_KINDS: Final[Kinds] = FIRST_STORE_KINDS | LATER_STORE_KINDS
#: Of the seeds with a cluster, those in which the later kinds happen.
LATER_STORES_SHARE: Final = 0.3
#: Of the seeds, those with a cluster, and how many stores it has.
STORES_SHARE: Final = 0.2
STORES: Final = (3, 3, 4)
#: What becomes of copiers, whose transactions commit offsets. Drawn apart from all others, too.
COPIER_KINDS: Final[Kinds] = {
    "copier-killed": ("F-06", 0, 0),
    "copier-dies-inside": ("F-06", 0, 0),
    "copier-stalls-inside": ("F-05", 1_000, 25_000),
    "copier-paused": ("F-05", 500, 25_000),
    "copier-cut-off": ("F-04", 500, 25_000),
    "copier-acks-lost": ("F-01", 500, 15_000),
    "copier-twin": ("F-23", 5_000, 20_000),
    "copier-joins": ("F-06", 8_000, 30_000),
    "copier-ends-late": ("F-04", 10_000, 60_000),
    "copiers-aside": ("F-33", 5_000, 20_000),
    "looks-fail": ("F-16", 5_000, 30_000),
    "looks-are-short": ("F-34", 5_000, 40_000),
    "driver-dies-beside": ("F-07", 0, 0),
    "rebuilt-while-pending": ("F-25", 0, 0),
    "teller-killed": ("F-06", 0, 0),
    "teller-twin": ("F-23", 3_000, 15_000),
    "teller-words-again": ("F-01", 5_000, 30_000),
}
#: Of the seeds that are neither crowded nor have short retention, those with copiers, and how many
#: there are.
COPIERS_SHARE: Final = 0.3
COPIERS: Final = (2, 2, 3)
#: What becomes of couriers, whose transactions the job's coordinator decides, and of the cluster
#: into which they write. Drawn apart from all others, too.
COURIER_KINDS: Final[Kinds] = {
    "courier-killed": ("F-06", 0, 0),
    "courier-dies-inside": ("F-06", 0, 0),
    "courier-stalls-inside": ("F-05", 1_000, 25_000),
    "courier-wakes-late": ("F-23", 8_000, 20_000),
    "courier-cut-off": ("F-04", 500, 25_000),
    "courier-acks-lost": ("F-01", 500, 15_000),
    "courier-twin": ("F-23", 5_000, 20_000),
    "courier-words-again": ("F-01", 5_000, 30_000),
    "courier-records-again": ("F-01", 5_000, 30_000),
    "other-cluster-away": ("F-16", 500, 25_000),
    "far-reader-killed": ("F-06", 0, 0),
    "far-reader-paused": ("F-05", 500, 25_000),
}
#: Of the seeds with neither copiers, stores, crowds nor short retention, those with couriers, and
#: how many there are.
COURIERS_SHARE: Final = 0.16
COURIERS: Final = (1, 2, 2)
#: What becomes of members whose batches a Delta table decides. Drawn apart from all others, too.
LAKE_KINDS: Final[Kinds] = {
    "lake-dies-inside": ("F-06", 0, 0),
    "lake-stalls-inside": ("F-05", 1_000, 30_000),
    "lake-acts-late": ("F-05", 25_000, 50_000),
    "lake-cut-off": ("F-04", 500, 25_000),
    "lake-joins": ("F-06", 8_000, 30_000),
    "lake-fails": ("F-16", 5_000, 30_000),
    "lake-table-goes": ("F-23", 2_000, 60_000),
}
#: Of the seeds whose first group is server-assigned, is not crowded and keeps its offsets, those
#: with such members, and how many there are.
LAKE_SHARE: Final = 0.4
LAKE_MEMBERS: Final = (2, 2, 3)
LATER_KINDS: Final[Kinds] = USER_KINDS | COMPANY_KINDS | CROWD_KINDS

#: They happen where the group is server-assigned, and those of the second line where it is classic.
LATER_ASSIGNED_KINDS: Final = frozenset({"release-refused"})
LATER_CLASSIC_KINDS: Final = frozenset({"subscription-changes", "topic-created"})
#: They meet members only: neither the job, nor the brokers, nor the shard's other groups.
LATER_MEMBER_KINDS: Final = frozenset(USER_KINDS) - {"odd-answers"}

#: What the world must be like for a kind, as fields of the plan.
NEEDS: Final[dict[str, dict[str, int]]] = {
    "new-groups": {"new_groups_per_second": 1, "shards": 2},
    "shard-fills": {"shard_bytes": 96 * 1024, "offsets_bytes": 24 * 1024},
    "hoarder": {"sizes": 32},
    "greedy-fetch": {"sizes": 32},
}

#: Kind -> (its number in reliability, shortest and longest time, milliseconds). Closed: one more
#: would give every seed another world, so new kinds stand above.
FIRST_KINDS: Final[Kinds] = {
    "duplicate-request": ("F-01", 0, 0),
    "late-consent": ("F-01", 2_000, 20_000),
    "late-commits": ("F-04", 2_000, 20_000),
    "slow-network": ("F-04", 2_000, 20_000),
    "member-paused": ("F-05", 500, 30_000),
    "member-busy": ("F-05", 2_000, 30_000),
    "member-killed": ("F-06", 0, 0),
    "member-closed": ("F-06", 0, 0),
    "member-joins": ("F-06", 0, 0),
    "all-leave": ("F-06", 0, 0),
    "member-cut-off": ("F-04", 500, 30_000),
    "member-deaf": ("F-34", 500, 30_000),
    "deaf-while-joining": ("F-34", 2_000, 30_000),
    "late-and-mute": ("F-34", 8_000, 40_000),
    "acks-lost": ("F-01", 500, 20_000),
    "rows-again": ("F-02", 5_000, 30_000),
    "driver-crashes": ("F-07", 0, 0),
    "driver-crashes-twice": ("F-07", 0, 0),
    "driver-away": ("F-08", 10_000, 90_000),
    "driver-paused": ("F-08", 1_000, 30_000),
    "slow-batches": ("F-09", 5_000, 30_000),
    "broker-clock-jumps": ("F-10", 0, 0),
    "leaders-move": ("F-10", 0, 0),
    "ticks-lost": ("F-10b", 5_000, 30_000),
    "broker-away": ("F-16", 500, 40_000),
    "garbage": ("F-18", 0, 0),
    "flood-of-joins": ("F-21", 2_000, 5_000),
    "stranger-commits": ("F-35", 2_000, 20_000),
    "poison-step": ("F-33", 5_000, 30_000),
    "twin-starts": ("F-23", 0, 0),
    "member-removed": ("F-23", 5_000, 30_000),
    "second-driver": ("F-24", 0, 0),
    "checkpoint-lost": ("F-25", 0, 0),
    "old-checkpoint": ("F-25", 0, 0),
    "state-corrupt": ("F-26", 0, 0),
    "task-recomputed": ("F-28", 5_000, 30_000),
    "topic-grows": ("F-30", 0, 0),
    "topic-appears": ("F-30", 0, 0),
    "topic-vanishes": ("F-30", 3_000, 20_000),
    "stale-listing": ("F-30", 0, 0),
    "wish-changes": ("F-30", 0, 0),
    "late-words": ("F-01", 5_000, 20_000),
    "never-lets-go": ("F-05", 20_000, 50_000),
    "kind-changes": ("F-06", 0, 0),
    **FORGERY_KINDS,
    "assignor-raises": ("F-33", 2_000, 40_000),
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
