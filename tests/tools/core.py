"""The core as the job runs it: shards with all families. What tests say in fewer words.

`Shard` and `fold` take the job's registry by default, or one of a test's own.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from coordlib.config import GroupConfig, ShardConfig
from coordlib.core.engine import fold as shards
from coordlib.core.engine import state
from coordlib.core.engine.effects import COMMITTED, GROUPS, Output
from coordlib.core.engine.protocol import Registry
from coordlib.core.engine.rows import Row
from coordlib.core.engine.state import (
    STATE_VERSION,
    UNTRUSTED_TIME_MS,
    Fold,
    InputRecord,
    ShardSettings,
    Status,
    StoredShard,
    UnknownStateVersion,
)
from coordlib.core.engine.step import Facts, Known, StepContext
from coordlib.core.engine.tables import Entries
from coordlib.core.groups.group import GroupContext, GroupSettings
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.groups.protocol import Groups
from coordlib.core.registry import REGISTRY
from coordlib.core.wire.stored import ShardPosition

__all__ = [
    "STATE_VERSION",
    "UNTRUSTED_TIME_MS",
    "Fold",
    "InputRecord",
    "Shard",
    "ShardSettings",
    "Status",
    "StoredShard",
    "UnknownStateVersion",
    "assert_as_new",
    "compacted",
    "config_of",
    "context",
    "decode_blob",
    "facts_of",
    "fold",
    "of_groups",
    "offsets_of",
    "orphans",
    "restore",
    "restored",
    "set_value",
    "topics_known",
    "with_groups",
]


_OF_THE_SHARD = frozenset(ShardConfig.__struct_fields__)


class Shard(shards.Shard):
    """A shard of the job's families, or of others."""

    def __init__(
        self, blob: bytes | None, settings: ShardSettings, registry: Registry | None = None
    ) -> None:
        super().__init__(blob, settings, registry or REGISTRY)

    @property
    def groups(self) -> dict[str, Row]:
        """The rows of consumer groups, by name."""
        return {name: row for (space, name), row in self.rows.items() if space == "group"}

    @property
    def topics(self) -> dict[str, int]:
        """What its groups have been told of the cluster's topics."""
        groups = self.families["group"]
        assert isinstance(groups, Groups)
        return dict(groups.topics)

    @topics.setter
    def topics(self, topics: dict[str, int]) -> None:
        groups = self.families["group"]
        assert isinstance(groups, Groups)
        groups.learn(topics, groups.ids)


def fold(
    blob: bytes | None,
    records: Iterable[InputRecord],
    settings: ShardSettings,
    registry: Registry | None = None,
) -> Fold:
    """As `coordlib.core.engine.fold.fold`."""
    return shards.fold(blob, records, settings, registry or REGISTRY)


def decode_blob(blob: bytes | None, registry: Registry | None = None) -> StoredShard:
    """As `coordlib.core.engine.state.decode_blob`."""
    return state.decode_blob(blob, registry or REGISTRY)


def restore(
    groups: Iterable[bytes],
    committed: Iterable[tuple[bytes, bytes]],
    position: ShardPosition,
    registry: Registry | None = None,
    beside: Iterable[tuple[str, bytes, bytes]] = (),
) -> bytes:
    """A blob from saved groups, each of which says its own name.

    `beside`: (topic, key, value) of other topics.
    """
    heads = {msgspec.json.decode(each)["group"].encode(): each for each in groups}
    topics = {GROUPS: heads, COMMITTED: dict(committed)}
    for topic, key, value in beside:
        topics.setdefault(topic, {})[key] = value
    return state.restore(topics, position, registry or REGISTRY)


def restored(outputs: Iterable[Output], position: ShardPosition) -> bytes:
    """A blob from all that a job has written, as compaction leaves it."""
    names = (*state.topics_of(REGISTRY), state.PROGRESS)
    return state.restore(compacted(outputs, names), position, REGISTRY)


def compacted(outputs: Iterable[Output], names: Iterable[str]) -> dict[str, dict[bytes, bytes]]:
    """What compaction leaves of these topics, in the order in which it was written."""
    topics: dict[str, dict[bytes, bytes]] = {name: {} for name in names}
    for output in outputs:
        if output.topic in topics:
            topics[output.topic].pop(output.key, None)
            if output.value is not None:
                topics[output.topic][output.key] = output.value
    return topics


def orphans(groups: Iterable[bytes], committed: Iterable[bytes]) -> list[str]:
    """As `coordlib.core.engine.state.orphans`, by keys alone."""
    topics = {GROUPS: dict.fromkeys(groups, b""), COMMITTED: dict.fromkeys(committed, b"")}
    return state.orphans(topics, REGISTRY)


def topics_known(state: StoredShard) -> dict[str, int]:
    """The topics that a blob's groups have been told of."""
    stored = state.families.get("group")
    topics: dict[str, int] = msgspec.msgpack.decode(stored)[0] if stored else {}
    return topics


def facts_of(row: Row, shard: Shard) -> Facts:
    """What the kind says of a row's value alone, as if it had just been made."""
    settings = shard.settings.of(Groups)
    put = {
        table.name: [((name, number), None) for name, number, _ in row.entries(table)]
        for table in row.kind.TABLES
        if row.count(table)
    }
    known = Known(row, settings, shard.clock_ms, None, Facts(), {}, put)
    return row.kind.facts(msgspec.structs.replace(row.value), known)


def set_value(shard: Shard, name: str, value: Any, space: str = "group") -> None:
    """Make an entity what no step has made of it."""
    shard._settle(shard.row(name, space), value, [])


def assert_as_new(row: Row, shard: Shard) -> None:
    """INV-15: a row's facts are what its value alone gives, but for bounds that are kept."""
    kept = {"next_due_ms": 0, "next_maintenance_ms": 0}
    found, again = (
        msgspec.structs.replace(each, **kept) for each in (row.facts, facts_of(row, shard))
    )
    assert found == again


def config_of(settings: ShardSettings) -> GroupConfig:
    """The bounds of groups."""
    config: GroupConfig = settings.of(Groups).config
    return config


def of_groups(strategies: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """What `ShardSettings.families` has of groups."""
    return {Groups.SPACE: GroupSettings(GroupConfig(**config), strategies or {})}


def with_groups(settings: ShardSettings, **changes: Any) -> ShardSettings:
    """Settings with some bounds of groups or of the shard changed, or with strategies."""
    now: GroupSettings = settings.of(Groups)
    bounds = {name: changes.pop(name) for name in list(changes) if name in _OF_THE_SHARD}
    strategies = changes.pop("strategies", now.strategies)
    groups = GroupSettings(msgspec.structs.replace(now.config, **changes), strategies)
    return msgspec.structs.replace(
        settings,
        bounds=msgspec.structs.replace(settings.bounds, **bounds),
        families={**settings.families, Groups.SPACE: groups},
    )


def context(settings: ShardSettings) -> StepContext:
    """What a step of a group may read when its shard has nothing else."""
    family = GroupContext(
        config=config_of(settings),
        throttle_ms=0,
        topics={},
        strategies=settings.of(Groups).strategies,
    )
    return StepContext(family=family)


def offsets_of(row: Row) -> Entries:
    """The committed offsets of a group."""
    return row.entries(OFFSETS)
