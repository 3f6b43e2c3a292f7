"""How the job of a world is set, by its plan."""

from typing import Any, Final

import msgspec

from coordlib.config import BrokersConfig, GroupConfig, ShardConfig
from coordlib.core.controller.protocol import BrokersSettings
from coordlib.core.groups.group import GroupSettings
from coordlib.core.wire.controller import CLUSTER
from coordlib.core.wire.stored import GROUP_SPACE, Layout
from tests.tools.core import ShardSettings
from tests.tools.simulation.plan import ASSIGNED, Plan

#: Faults that bring server-assigned groups into a world whose first group is none.
WATCHED_KINDS: Final = frozenset({"company-joins", "aside-and-rebuilt", "hoarder"})
#: How often a shard looks for what has expired, while something can expire.
CHECKS_OF_RETENTION: Final = 8


def layout(plan: Plan, prefix: str, incarnation: str, replies: int) -> Layout:
    """What the prefix's topics are."""
    return Layout(
        shards=plan.shards,
        reply_partitions=replies,
        topic_ids={f"{prefix}.requests": f"{incarnation}0123"},
    )


def shard(plan: Plan, incarnation: str, replies: int) -> ShardSettings:
    """Of all shards; each batch fills in its own."""
    return ShardSettings(
        shard=-1,
        shards=plan.shards,
        reply_partitions=replies,
        incarnation=incarnation,
        bounds=_bounds(plan),
        families=_families(plan),
        checks_invariants=bool(plan.checks_invariants),
    )


def _families(plan: Plan) -> dict[str, Any]:
    families: dict[str, Any] = {GROUP_SPACE: GroupSettings(group_config(plan))}
    if plan.brokers:
        # So few at a time that most hand-overs take several demands.
        families[CLUSTER] = BrokersSettings(BrokersConfig(rows_per_demand_max=2))
    return families


def group_config(plan: Plan) -> GroupConfig:
    """The production's bounds, but for those that the plan wants near."""
    config = GroupConfig(
        initial_rebalance_delay_ms=plan.initial_rebalance_delay_ms,
        requires_member_id=plan.requires_member_id,
    )
    near = {
        "max_size": plan.group_size_max,
        "offsets_retention_ms": plan.retention_ms,
        "new_groups_per_second_max": plan.new_groups_per_second,
        "offsets_bytes_per_group_max": plan.offsets_bytes,
    }
    return msgspec.structs.replace(config, **{name: each for name, each in near.items() if each})


def _bounds(plan: Plan) -> ShardConfig:
    near = {
        "check_interval_ms": plan.retention_ms // CHECKS_OF_RETENTION,
        "bytes_max": plan.shard_bytes,
    }
    return ShardConfig(**{name: each for name, each in near.items() if each})


def watches_topics(plan: Plan) -> bool:
    """Whether the driver tells its shards of topics."""
    kinds = {fault.kind for fault in plan.faults}
    is_needed = plan.kind == ASSIGNED or plan.lake_members > 0
    return is_needed or not kinds.isdisjoint(WATCHED_KINDS)
