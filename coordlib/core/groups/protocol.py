"""The consumer groups of a shard: what they have in common beside their rows.

The cluster's topics as they stand in the log, how fast new groups are made, and the input of those
who are no members, `coord.offsets`. A program that divides its partitions itself commits there. No
time passes with its records, so that a flood of them moves no deadline.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final

import msgspec

from coordlib import limits
from coordlib.core.engine.effects import GROUPS, REQUESTS, At
from coordlib.core.engine.protocol import Family, Input
from coordlib.core.engine.rows import Row
from coordlib.core.engine.step import NOT_INDEXED, Decide, Kind
from coordlib.core.engine.time import Rate
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.group import (
    GroupContext,
    GroupSettings,
    bounds_of,
    learn_topic_ids,
    learn_topics,
)
from coordlib.core.groups.kind import NO_TOPICS, UNKNOWN_TOPICS, GroupKind
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.wire import api
from coordlib.core.wire.stored import TopicIds, read_topic_ids

#: The input's letter.
COMMITS: Final = "o"


def _fault(request: api.Request | api.Control) -> str | None:
    if isinstance(request, api.OffsetCommit) and request.generation == -1:
        return None
    return "Write it to the requests: only OffsetCommit with generation -1 belongs here."


POSITIONS: Final = Input(COMMITS, "offsets", _fault)


class GroupsState(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The state that all groups of a shard share, in its blob."""

    #: The cluster's topics by partition count, as listed in the log so far; by name.
    topics: dict[str, int] = {}
    #: The setting from which the rows' `next_maintenance_ms` were computed.
    retention_ms: int = 0
    #: Until when new groups have booked the shard's clock, in microseconds of it.
    free_us: int = 0
    #: The same, of new groups that came by `coord.offsets`, on the time of its records.
    offsets_free_us: int = 0
    #: The ids of the cluster's topics, as far as the log has shown them; by name.
    ids: dict[str, tuple[str, ...]] = {}


_decode: Final = msgspec.msgpack.Decoder(GroupsState).decode


class Groups(Family):
    """The consumer groups of a shard during one batch."""

    SPACE = "group"
    KINDS: ClassVar[tuple[GroupKind, ...]] = (CLASSIC, ASSIGNED)
    HEADS = GROUPS
    JOB_RECORDS = (api.TopicMetadata, api.TxnDecided)
    NOTED = (api.TxnDecided,)
    INPUTS = (POSITIONS,)

    SETTINGS = GroupSettings
    settings: GroupSettings

    def __init__(self, stored: msgspec.Raw, settings: GroupSettings) -> None:
        self.settings = settings
        self._state = GroupsState() if stored == NOT_INDEXED else _decode(stored)
        #: The cluster's topics by partition count, by name.
        self.topics: Mapping[str, int]
        #: The ids that listings have shown, by topic.
        self.ids: TopicIds
        self.context: GroupContext
        self.learn(self._state.topics, self._state.ids)
        per_second = settings.config.new_groups_per_second_max
        #: By input topic, and the time on which it counts.
        self._new = {
            REQUESTS: Rate(self._state.free_us, per_second),
            COMMITS: Rate(self._state.offsets_free_us, per_second),
        }

    @property
    def entities_max(self) -> int:
        return self.settings.config.groups_per_shard_max

    def limits(self) -> Mapping[str, int]:
        return bounds_of(self.settings.config)

    def state(self) -> GroupsState:
        return GroupsState(
            dict(sorted(self.topics.items())),
            self.settings.config.offsets_retention_ms,
            self._new[REQUESTS].free_us,
            self._new[COMMITS].free_us,
            dict(sorted(self.ids.items())),
        )

    @classmethod
    def restored(
        cls, _values: Mapping[str, tuple[Kind, Any]], _progress: Mapping[bytes, bytes]
    ) -> GroupsState:
        """The topics that the groups' heads name, with the most reliable count of each, and the ids
        that listings have shown.

        Every change is judged by all groups that it concerns, so these agree. A quarantined group
        judges no change: its counts are used only for topics that no other group names, and of
        several such counts the one of the group whose state changed last.
        """
        known: dict[str, int] = {}
        for kind, group in sorted(_values.values(), key=lambda each: _newest_last(each[1])):
            assert isinstance(kind, GroupKind)
            known.update(kind.known_topics(group))
        return GroupsState(dict(sorted(known.items())), ids=_kept_ids(_progress, known))

    def must_look_again(self) -> bool:
        return self._state.retention_ms != self.settings.config.offsets_retention_ms

    def learn(self, known: dict[str, int], ids: TopicIds) -> None:
        """The cluster's topics, by partition count, and their ids are these from now on."""
        self.topics, self.ids = known, ids
        self.context = GroupContext(
            config=self.settings.config,
            throttle_ms=0,
            topics=known,
            strategies=self.settings.strategies,
            transactions=self.settings.transactions,
            ids=ids,
        )

    def context_of_new(self, at: At) -> GroupContext:
        throttle_ms = self._new[at.topic].wait_ms(_time_of(at))
        return msgspec.structs.replace(self.context, throttle_ms=throttle_ms)

    def created(self, at: At) -> None:
        self._new[at.topic].book(_time_of(at))

    def judge(
        self, record: api.TopicMetadata | api.TxnDecided, rows: Iterable[tuple[str, Row]]
    ) -> Iterable[tuple[str, Decide | Exception]]:
        """What has changed outside: the groups that it concerns judge the change."""
        if isinstance(record, api.TxnDecided):
            return _deciding(rows, record)
        known, changed = learn_topics(self.topics, record)
        ids, anew = learn_topic_ids(self.ids, record, known.keys())
        self.learn(known, ids)
        return _concerned(rows, self.KINDS, changed, anew) if changed or anew else ()


def _kept_ids(
    progress: Mapping[bytes, bytes], known: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """As many as a shard has room for: those first that its groups name, or that were replaced.
    # INV-150"""
    ids = read_topic_ids(progress)
    ordered = sorted(ids, key=lambda name: (name not in known, len(ids[name]) == 1, name))
    return {name: ids[name] for name in sorted(ordered[: limits.TOPICS_MAX])}


def _deciding(
    rows: Iterable[tuple[str, Row]], record: api.TxnDecided
) -> list[tuple[str, Decide | Exception]]:
    """The groups with offsets that waited for the end of one of these transactions, in order."""
    committed, aborted = frozenset(record.committed), frozenset(record.aborted)
    decide = partial(pending.decide_by_offset, committed=committed, aborted=aborted)
    named = committed | aborted
    return sorted(
        (
            (name, decide)
            for name, row in rows
            if not named.isdisjoint(pending.undecided(row.facts.report))
        ),
        key=itemgetter(0),
    )


def _concerned(
    rows: Iterable[tuple[str, Row]],
    kinds: Iterable[GroupKind],
    changed: Collection[str],
    anew: Collection[str],
) -> list[tuple[str, Decide | Exception]]:
    """The groups to which such a change may matter, in order; no other group is decoded."""
    checks = {
        each.NAME: each.concerned(changed) for each in kinds if each.topics_changed and changed
    }
    found: list[tuple[str, Decide | Exception]] = []
    forgetting = pending.Forgetting()
    for name, row in rows:
        check = checks.get(row.kind.NAME)
        try:
            offsets = row.entries(OFFSETS) if anew else None
            old = [each for each in anew if offsets is not None and offsets.has_name(each)]
            is_concerned = check is not None and _may_matter(row, check)
            if is_concerned or old:
                found.append(
                    (name, partial(_tell, changed if is_concerned else (), old, forgetting))
                )
        except Exception as problem:  # noqa: BLE001  INV-42
            found.append((name, problem))
    return sorted(found, key=itemgetter(0))


def _tell(
    changed: Collection[str], anew: Collection[str], forgetting: pending.Forgetting, step: Any
) -> None:
    forgetting.of(step, anew)
    if changed:
        step.kind.topics_changed(step, changed)


def _may_matter(row: Row, check: Any) -> bool:
    index = row.facts.index
    return index != NO_TOPICS and (index == UNKNOWN_TOPICS or bool(check(index)))


def _newest_last(group: Any) -> tuple[bool, int, str]:
    return not group.is_quarantined, group.state_since_ms, group.group


def _time_of(at: At) -> int:
    """The time on which new groups of this input topic are counted (throttle.py)."""
    return at.clock_ms if at.topic == REQUESTS else at.time_ms
