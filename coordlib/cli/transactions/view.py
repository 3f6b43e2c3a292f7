"""Transactional ids and pending offsets as the topics tell them, and which do not end."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from coordlib.cli.groups.view import read_groups
from coordlib.cli.kit.listing import AsOf, Column, Listing
from coordlib.cli.kit.output import counted, duration_text, visible
from coordlib.cli.kit.reading import (
    ClientOptions,
    load_head,
    read_as_of,
    read_shards,
)
from coordlib.core.engine.effects import OUTBOX, TRANSACTIONS
from coordlib.core.groups.offsets.pending_commit import key_of
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.transactions.protocol import PRODUCERS, Transactions
from coordlib.core.transactions.transaction import DECIDED, State, Transaction, count_of
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.offsets import COORDINATOR, DELTA, KAFKA
from coordlib.core.wire.stored import PendingValue
from coordlib.errors import ErrorCode, GroupError, SetupError
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reaching, refusing
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import Stamped, newest_by_key, newest_stamped
from coordlib.kafka.transactions import HeldUp, held_up

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
    shards, _ = read_shards(client, topics, prefix, TRANSACTIONS)
    return _together(_read(client, prefix, shard) for shard in range(shards))


def read_pending(
    client: ClientOptions, topics: Mapping[str, Any], prefix: str, group: str
) -> tuple[SeenPending, ...]:
    """The pending offsets of a group. Raises as `read_all`."""
    shards, _ = read_shards(client, topics, prefix, TRANSACTIONS)
    shard = shard_of(group, shards)
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
    shards, _ = read_shards(client, topics, prefix, TRANSACTIONS)
    shard = shard_of(name, shards)
    return _id_in(_read(client, prefix, shard), name, prefix, shard)


def _id_in(seen: Seen, name: str, prefix: str, shard: int) -> SeenId:
    for each in seen.ids:
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
    shards, progress = read_shards(client, topics, prefix, TRANSACTIONS)
    shard = shard_of(name, shards)
    as_of = read_as_of(client, prefix, shard, progress)
    own = _read(client, prefix, shard)
    seen = _id_in(own, name, prefix, shard)
    groups = () if seen.value is None else tuple(seen.value.groups)
    homes = sorted({shard_of(group, shards) for group in groups})
    seen_homes = _together(own if at == shard else _read(client, prefix, at) for at in homes)
    pending = {
        each.group: len(each.entry.offsets)
        for each in seen_homes.pending
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


KEY_SHOWN: Final = 60  # bytes of a record's key
_DECIDE: Final = "coord transactions decide {} {} --commit (or --abort) --reason WHY"
_STATUS: Final = "coord status (the job tells it when it runs)"
_WRITES: Final = "coord transactions finish {}"


@dataclass(frozen=True, slots=True)
class Hanging:
    """Something that does not end by itself, or not soon."""

    decided_by: str
    what: str
    #: None: since when is not known.
    for_ms: int | None
    reason: str
    #: The command that fixes it.
    hint: str


HANGING: Final[Listing[Hanging]] = Listing(
    Column("DECIDED-BY", lambda each: each.decided_by),
    Column("WHAT", lambda each: each.what),
    Column("HANGS-FOR", lambda each: each.for_ms, duration_text),
    Column("REASON", lambda each: each.reason),
    Column("HINT", lambda each: each.hint),
)


def of_coordinator(
    ids: Iterable[SeenId],
    now_ms: int,
    longer_than_ms: int,
    unheard: Callable[[SeenId], tuple[int, ...]],
) -> Iterator[Hanging]:
    """Ids whose transaction was decided, and nothing came of it since; or which are set aside."""
    for each in ids:
        value, for_ms = each.value, now_ms - each.written_ms
        if value is None or each.open_for_ms(now_ms) is None or for_ms <= longer_than_ms:
            continue
        reasons = []
        if each.is_quarantined:
            reasons = [("it is quarantined", f"coord transactions release {each.name}")]
        elif value.ended is not None and each.is_decided:
            reasons = list(_incomplete(each, unheard(each)))
        for reason, hint in reasons:
            yield Hanging(COORDINATOR, each.name, for_ms, reason, hint)


def _incomplete(seen: SeenId, unheard: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Why a transaction that was decided is not complete, and what fixes that."""
    value = seen.value
    unwritten = 0 if value is None else count_of(value.unwritten)
    if unwritten:
        lack = f"{counted(unwritten, 'partition')} without its marker"
        yield lack, _WRITES.format(seen.name)
    if unheard:
        shards = ", ".join(map(str, unheard))
        yield f"groups in shard {shards} have not been told", _STATUS
    elif not unwritten:
        yield "all have been told, and the coordinator has not noted it", _STATUS


def of_quarantined(
    pending: Iterable[SeenPending], now_ms: int, longer_than_ms: int
) -> Iterator[Hanging]:
    """Offsets that are decided, and whose group stands still."""
    for each in pending:
        for_ms = now_ms - each.entry.since_ms
        if each.entry.decision and for_ms > longer_than_ms:
            reason = f"decided ({each.entry.decision}), and the group is quarantined"
            yield _of(each, for_ms, reason, f"coord groups release {each.group}")


def of_deleted_records(
    pending: Iterable[SeenPending], now_ms: int, starts: Mapping[int, int]
) -> Iterator[Hanging]:
    """Offsets of transactions of Kafka whose end nobody can find any more.

    Args:
        starts: shard -> where its requests begin.
    """
    for each in pending:
        if is_record_gone(each, starts):
            for_ms = now_ms - each.entry.since_ms
            reason = "its record was deleted before the job could look how it ended"
            yield _of(each, for_ms, reason, _DECIDE.format(each.group, each.key))


def is_record_gone(each: SeenPending, starts: Mapping[int, int]) -> bool:
    """Whether Kafka deleted the record of an entry that waits for Kafka's decision."""
    if each.entry.decided_by != KAFKA or each.entry.decision:
        return False
    offset = each.key.rpartition("-")[2]
    return offset.isdigit() and int(offset) < starts.get(each.shard, 0)


def of_members(
    pending: Iterable[SeenPending],
    now_ms: int,
    longer_than_ms: int,
    members: Mapping[str, Collection[str]],
) -> Iterator[Hanging]:
    """Offsets that a Delta table decides, and whose member is gone: the next one resolves them.

    Args:
        members: group -> its members; groups that cannot be read are left out.
    """
    for each in pending:
        entry, for_ms = each.entry, now_ms - each.entry.since_ms
        if entry.decided_by != DELTA or entry.decision or for_ms <= longer_than_ms:
            continue
        if entry.member not in members.get(each.group, (entry.member,)):
            reason = f"member {entry.member} is gone; a member that starts resolves it"
            yield _of(each, for_ms, reason, _DECIDE.format(each.group, each.key))


def _of(each: SeenPending, for_ms: int, reason: str, hint: str) -> Hanging:
    return Hanging(
        each.entry.decided_by, f"group {each.group}, key {each.key}", for_ms, reason, hint
    )


def of_held_up(
    held: Iterable[HeldUp], now_ms: int, longer_than_ms: int, servers: str
) -> Iterator[Hanging]:
    """Open transactions that hold up a partition for long."""
    for each in held:
        for_ms = None if each.time_ms is None else now_ms - each.time_ms
        if for_ms is not None and for_ms <= longer_than_ms:
            continue
        topic, partition = each.place
        reason = (
            f"it holds up {counted(each.end - each.offset, 'record')} from offset {each.offset} on"
            f"; {first_record_of(each)}"
        )
        what = f"{topic}-{partition}"
        yield Hanging(KAFKA, what, for_ms, reason, _hint_of(each, servers))


def first_record_of(each: HeldUp) -> str:
    """What is known of the record with which the transaction begins."""
    if each.unread is not None:
        return f"its first record is not known: {each.unread}"
    request = codec.decode_request(each.value)
    if isinstance(request, api.Request):
        of_group = f" of group {request.group}" if request.group else ""
        return f"it began with a {type(request).__name__}{of_group} of client {request.client}"
    key = each.key or b""
    return (
        f"its first record has the key {key[:KEY_SHOWN]!r}"
        if key
        else "its first record has no key"
    )


def _hint_of(each: HeldUp, servers: str) -> str:
    """By its id if that is known; else how it is found."""
    if each.transactional_id is not None:
        return f"coord transactions abort {each.transactional_id} --of-kafka"
    topic, partition = each.place
    tool = f"kafka-transactions.sh --bootstrap-server {servers}"
    return (
        f"{tool} describe-producers --topic {topic} --partition {partition} (its producer id), "
        f"{tool} list (its transactional id), coord transactions abort ID --of-kafka"
    )


def all_hanging(
    client: ClientOptions,
    topics: Mapping[str, Any],
    prefix: str,
    now_ms: int,
    longer_than_ms: int,
    topic: str | None = None,
) -> list[Hanging]:
    """Everything that hangs. Raises as `read_all`, and NotAllowed.

    Args:
        topic: looked at for open transactions of Kafka, besides the requests.
    """
    seen = read_all(client, topics, prefix)
    of_kafka = {each.shard for each in seen.pending if each.entry.decided_by == KAFKA}
    starts = log_starts(client, prefix, of_kafka)
    members = _members(client, topics, prefix, seen)
    return [
        *of_coordinator(
            seen.ids, now_ms, longer_than_ms, lambda each: read_unheard(client, prefix, each)
        ),
        *of_quarantined(seen.pending, now_ms, longer_than_ms),
        *of_deleted_records(seen.pending, now_ms, starts),
        *of_members(seen.pending, now_ms, longer_than_ms, members),
        *_of_kafka(client, topics, prefix, topic, now_ms, longer_than_ms),
    ]


def log_starts(client: Mapping[str, str], prefix: str, shards: Collection[int]) -> dict[int, int]:
    """Where the requests of these shards begin. Raises CannotReach, NotAllowed."""
    places = [Place(f"{prefix}.requests", shard) for shard in sorted(shards)]
    if not places:
        return {}
    with reaching("It is not known where the requests begin.", "Look whether the brokers run."):
        found = log_bounds(open_admin(client), places, on_denied=refusing(client))
    return {place.partition: bounds.start for place, bounds in found.items() if bounds is not None}


def _members(
    client: Mapping[str, str], topics: Mapping[str, Any], prefix: str, seen: Seen
) -> dict[str, Collection[str]]:
    """The members of groups that wait for a Delta table; one that is not there has none."""
    asked = {each.group for each in seen.pending if each.entry.decided_by == DELTA}
    if not asked:
        return {}
    groups = {each.group: each for each in read_groups(client, topics, prefix)}
    found: dict[str, Collection[str]] = {}
    for name in asked:
        group = groups.get(name)
        if group is None or group.value is not None:
            found[name] = () if group is None else tuple(group.members)
    return found


def _of_kafka(
    client: Mapping[str, str],
    topics: Mapping[str, Any],
    prefix: str,
    topic: str | None,
    now_ms: int,
    longer_than_ms: int,
) -> Iterator[Hanging]:
    names = [f"{prefix}.requests", *([topic] if topic is not None else [])]
    if topic is not None and topic not in topics:
        raise SetupError(
            "There is no such topic, or it may not be seen.",
            f"--topic {visible(topic)}",
            "Check its name, and the right to describe it.",
        )
    places = [Place(name, number) for name in names if name in topics
              for number in topics[name].partitions]  # fmt: skip
    held = held_up(client, places)
    return of_held_up(held, now_ms, longer_than_ms, client["bootstrap.servers"])
