"""Transactional ids and pending offsets as the topics tell them. No coordinator is asked.

Read committed from `coord.transactions`, to the end seen at the start, so it works while the job is
down; `AsOf` says how far the job was.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from coordlib.cli.groups.group_view import AsOf, ClientOptions, read_as_of, shards_of
from coordlib.cli.kit.saved_heads import load_head
from coordlib.core.engine.routing import OUTBOX, TRANSACTIONS
from coordlib.core.groups.offsets.pending_table import PENDING
from coordlib.core.groups.offsets.txn_messages import key_of
from coordlib.core.transactions.family import Transactions
from coordlib.core.transactions.kind import PRODUCERS
from coordlib.core.transactions.states import DECIDED, State
from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire.partitioner import shard_of
from coordlib.core.wire.stored import PendingValue
from coordlib.errors import ErrorCode, GroupError
from coordlib.kafka.compacted import Stamped, newest_by_key, newest_stamped

#: A transaction of these states has begun and is not complete.
OPEN: Final = DECIDED | {State.ONGOING}


@dataclass(frozen=True, slots=True)
class SeenId:
    """A transactional id as its value in the topic has it."""

    name: str
    shard: int
    #: When the job wrote the value, epoch milliseconds.
    written_ms: int
    #: None: this version cannot read it, and `unreadable` says why.
    value: Transaction | None
    unreadable: str | None = None

    @property
    def state(self) -> State | None:
        return None if self.value is None else self.value.state

    @property
    def is_quarantined(self) -> bool:
        return self.value is not None and self.value.is_quarantined

    @property
    def is_decided(self) -> bool:
        """Whether a decision stands that not all have been told yet."""
        return self.value is not None and self.value.state in DECIDED

    def open_for_ms(self, now_ms: int) -> int | None:
        """How long ago its transaction began; None: none is open, or the value is unreadable."""
        if self.value is None or self.value.state not in OPEN:
            return None
        return max(0, now_ms - self.value.started_ms)

    @property
    def pending_key(self) -> str | None:
        """Names the pending offsets of its open transaction in each group; None: none is open."""
        value = self.value
        if value is None or value.state not in OPEN:
            return None
        if value.state is State.ONGOING or value.ended is None:
            return key_of(value.producer_id, value.epoch)
        return key_of(value.ended.producer_id, value.ended.epoch)


@dataclass(frozen=True, slots=True)
class SeenPending:
    """Offsets of a group that wait for a decision."""

    group: str
    key: str
    shard: int
    entry: PendingValue


@dataclass(frozen=True, slots=True)
class Seen:
    """What the topic has, of some shards."""

    ids: tuple[SeenId, ...]
    pending: tuple[SeenPending, ...]

    def of_group(self, group: str) -> tuple[SeenPending, ...]:
        return tuple(each for each in self.pending if each.group == group)


@dataclass(frozen=True, slots=True)
class IdView:
    """Everything about one transactional id."""

    seen: SeenId
    #: Group -> how many partitions of it have pending offsets of the open transaction.
    pending: Mapping[str, int]
    as_of: AsOf | None


def read_all(client: ClientOptions, topics: Mapping[str, Any], prefix: str) -> Seen:
    """All ids and all pending offsets under a prefix, by name.

    Args:
        topics: metadata of all that the cluster has, by name.

    Raises:
        CannotReach, SetupError: the broker stopped answering, or there is no such topic.
    """
    shards = shards_of(client, topics, prefix, TRANSACTIONS)
    return _together(_read(client, prefix, shard) for shard in range(shards))


def read_pending(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, group: str
) -> tuple[SeenPending, ...]:
    """The pending offsets of a group. Raises as `read_all`."""
    shard = shard_of(group, shards_of(client, topics, prefix, TRANSACTIONS))
    return _read(client, prefix, shard).of_group(group)


def find_pending(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, group: str, key: str
) -> SeenPending:
    """One entry of a group. Raises as `read_all`, and besides

    GroupError: INVALID_TXN_STATE, where nothing waits under this key.
    """
    for each in read_pending(client, topics, prefix, group):
        if each.key == key:
            return each
    raise GroupError(
        ErrorCode.INVALID_TXN_STATE,
        f"group {group}, key {key}",
        f"Nothing waits under this key. See: coord transactions pending {group}",
    )


def find_id(client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str) -> SeenId:
    """One id. Raises as `read_all`, and besides

    GroupError: TRANSACTIONAL_ID_NOT_FOUND.
    """
    shard = shard_of(name, shards_of(client, topics, prefix, TRANSACTIONS))
    for each in _read(client, prefix, shard).ids:
        if each.name == name:
            return each
    raise GroupError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"transactional id {name}, prefix {prefix}, shard {shard}",
        "Check it: coord transactions list. Ids of producers whose transactions Kafka decides are "
        "not there: Kafka keeps them.",
    )


def read_id(client: ClientOptions, topics: Mapping[str, Any], prefix: str, name: str) -> IdView:
    """One id, with what waits for it in its groups. Raises as `find_id`."""
    shards = shards_of(client, topics, prefix, TRANSACTIONS)
    as_of = read_as_of(client, prefix, shard_of(name, shards))
    seen = find_id(client, topics, prefix, name)
    groups = () if seen.value is None else tuple(seen.value.groups)
    homes = sorted({shard_of(group, shards) for group in groups})
    told = _together(_read(client, prefix, shard) for shard in homes)
    pending = {
        each.group: len(each.entry.offsets)
        for each in told.pending
        if each.group in groups and each.key == seen.pending_key
    }
    return IdView(seen, pending, as_of)


def read_unheard(client: ClientOptions, prefix: str, seen: SeenId) -> tuple[int, ...]:
    """The shards that have not judged all messages of the transaction that was decided.

    Raises CannotReach.
    """
    if seen.value is None or not seen.value.waits:
        return ()
    outbox = newest_by_key(client, f"{prefix}.{OUTBOX}", seen.shard)
    return unheard(seen.value.waits, outbox)


def unheard(waits: Mapping[int, int], outbox: Iterable[bytes]) -> tuple[int, ...]:
    """Those shards whose message, or one before it, is still in the sender's outbox.

    Args:
        waits: shard -> number of the newest message that it must judge first.
        outbox: the keys of the sender's partition.
    """
    found = set()
    for key in outbox:
        try:
            _, shard, number = _decode_message(key)
        except msgspec.MsgspecError:  # a key of a channel, which is no message
            continue
        if number <= waits.get(shard, 0):
            found.add(shard)
    return tuple(sorted(found))


_decode_message: Final = msgspec.json.Decoder(tuple[int, int, int]).decode


def _read(client: ClientOptions, prefix: str, shard: int) -> Seen:
    return seen_in(newest_stamped(client, f"{prefix}.{TRANSACTIONS}", shard), shard)


def _together(parts: Iterable[Seen]) -> Seen:
    found = list(parts)
    ids = sorted((each for part in found for each in part.ids), key=lambda each: each.name)
    pending = [each for part in found for each in part.pending]
    return Seen(tuple(ids), tuple(sorted(pending, key=_oldest_first)))


def _oldest_first(each: SeenPending) -> tuple[str, int, str]:
    return each.group, each.entry.since_ms, each.key


def seen_in(records: Mapping[bytes, Stamped], shard: int) -> Seen:
    """What the live records of a shard's partition say."""
    return Seen(tuple(_ids(records, shard)), tuple(_pending(records, shard)))


def _ids(records: Mapping[bytes, Stamped], shard: int) -> Iterator[SeenId]:
    for key, stamped in records.items():
        try:
            name = Transactions.head_name(key)
        except (msgspec.MsgspecError, ValueError):  # not ours
            continue
        if name is not None:
            yield SeenId(name, shard, stamped.time_ms, *load_head(PRODUCERS, stamped.value))


def _pending(records: Mapping[bytes, Stamped], shard: int) -> Iterator[SeenPending]:
    found = []
    for key, stamped in records.items():
        try:
            place = PENDING.place(key)
            if place is not None:
                entry: PendingValue = PENDING.load(stamped.value)
                found.append(SeenPending(place[0], place[1][0], shard, entry))
        except msgspec.MsgspecError:  # not ours
            continue
    yield from sorted(found, key=_oldest_first)
