"""PendingCommit, and offsets of transactional ids: who may leave offsets that wait, and which.

The checks are one ladder for all three deciders, in the order of Kafka's TxnOffsetCommit. Two are
stricter than Kafka's. Who names no member while the group has members is refused: Kafka lets such
old clients pass, whose offsets nobody fences (KIP-447). And one bad row refuses all rows: half of a
commit is no unit with what is committed beside it.

A transaction's messages come in the order in which its id sent them, each once, so the marker
stands behind all of its offsets. A quarantined group gets them, too: it makes no entry then, and
notes what was decided.
"""

from typing import Any, Final, NamedTuple, Self

from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.step import Handler, answer, refusal
from coordlib.core.engine.tables import name_bytes
from coordlib.core.groups.group import GroupStep
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.commit import NO_GROUP, Places, is_metadata_too_large
from coordlib.core.groups.offsets.pending import decide
from coordlib.core.groups.offsets.tables import (
    OFFSETS,
    PENDING,
    KeptPending,
    keep_pending,
    named_row,
    pending_size_of,
    place_of,
    rows_of,
    saved,
)
from coordlib.core.wire import api, stored
from coordlib.core.wire.envelope import Message
from coordlib.core.wire.offsets import COORDINATOR, DELTA
from coordlib.core.wire.transactions import COMMIT, TxnMarker, TxnOffsetCommit, TxnOffsets
from coordlib.errors import ErrorCode

_NO_MEMBER: Final = "Name the member that has read this, with its generation: the group has some."
_TOO_MANY: Final = "Wait until some of this group's transactions have ended: too many are open."
_ONE_IS_OPEN: Final = "Wait until the commit of this member that is pending has been decided."


class Offered(NamedTuple):
    """A commit that is to wait for a decision."""

    #: Names the entry. Several commits under one key are one entry, whose later rows hold.
    key: str
    decided_by: str
    client: str
    id: str
    member: str
    instance: str | None
    generation: int
    offsets: tuple[api.CommittedOffset, ...]
    #: The Delta table that decides.
    table: str = ""

    @classmethod
    def by(cls, request: api.PendingCommit | TxnOffsetCommit, key: str, decided_by: str) -> Self:
        """What a request offers, under this key."""
        return cls(
            key=key,
            decided_by=decided_by,
            client=request.client,
            id=request.id,
            member=request.member,
            instance=request.instance,
            generation=request.generation,
            offsets=request.offsets,
        )


class Refused(NamedTuple):
    """Why no entry was made; the rows that are to blame, if single ones are."""

    code: ErrorCode
    message: str | None = None
    rows: tuple[tuple[api.CommittedOffset, ErrorCode], ...] = ()

    @property
    def failed(self) -> tuple[api.FailedPartition, ...]:
        """The rows as an answer has them."""
        return tuple(
            api.FailedPartition(row.topic, row.partition, code.name) for row, code in self.rows
        )


def pending_commit(step: GroupStep[Any], request: api.PendingCommit) -> None:
    """Judge one PendingCommit, which a transaction of Kafka or a Delta table decides."""
    offered = Offered.by(request, step.at.coordinate, request.decided_by)._replace(
        table=request.table or ""
    )
    done = admit(step, offered)
    if isinstance(done, Refused):
        throttle_time_ms = step.family.throttle_time(done.code)
        failed = done.failed or UNSET
        step.refuse(
            request, done.code, done.message, failed=failed, throttle_time_ms=throttle_time_ms
        )
        record_refused(step, offered, done)
    else:
        step.answer(request, pending=done)


def admit(step: GroupStep[Any], offered: Offered) -> str | Refused:
    """Make an entry, or add to one that is open; its key, or why not. Nothing changes then."""
    if step.value is not None and step.live.is_quarantined:
        return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if (again := _same_request(step, offered)) is not None:
        return again
    refused = _of_group(step, offered) or _of_rows(step, offered)
    if refused is not None:
        return refused
    before: KeptPending | None = step.entry(PENDING, *place_of(offered.key))
    value = _value(step, offered, before)
    refused = _without_room(step, offered, value, before) or _too_many(step, offered, before)
    if refused is not None:
        return refused
    if step.value is None:
        step.create("first commit")
    step.put_entry(PENDING, place_of(offered.key), value)
    if offered.member in step.live.members:
        step.touched.append(offered.member)
    table = {"table": offered.table} if offered.table else {}
    step.record(
        stored.EVENT_OFFSETS_PENDING,
        member=offered.member,
        detail={
            "client": offered.client,
            "transaction": offered.key,
            "decided_by": offered.decided_by,
            **table,
            "offsets": [named_row(row) for row in offered.offsets],
        },
    )
    return offered.key


def record_refused(step: GroupStep[Any], offered: Offered, refused: Refused) -> None:
    """One line of history about a commit that was refused, as OffsetCommit has it."""
    detail: dict[str, Any] = {
        "client": offered.client,
        "request": api.PendingCommit.__name__,
        "request_generation": offered.generation,
    }
    if refused.rows:
        detail["offsets"] = [named_row(row) | {"error": code.name} for row, code in refused.rows]
    step.record(
        stored.EVENT_COMMIT_REFUSED,
        member=offered.member,
        reason=refused.code.name,
        detail=detail,
    )


def _same_request(step: GroupStep[Any], offered: Offered) -> str | None:
    """The open entry of this very request. Not for Kafka: the same record in a second transaction

    is a second commit, and its place in the log names it.
    """
    if offered.decided_by != DELTA:
        return None
    for key, _, entry in step.entries(PENDING):
        if (entry.decided_by, entry.client, entry.id) == (DELTA, offered.client, offered.id):
            return str(key)
    return None


def _of_group(step: GroupStep[Any], offered: Offered) -> Refused | None:
    if step.value is None:
        if offered.generation >= 0:
            return Refused(ErrorCode.ILLEGAL_GENERATION, NO_GROUP)
        fault = step.new_group_fault(ErrorCode.COORDINATOR_NOT_AVAILABLE, step.new_group_bytes)
        return None if fault is None else Refused(*fault)
    if offered.member or offered.instance is not None or offered.generation >= 0:
        code = step.member_fault(offered.member, offered.instance, offered.generation)
        return None if code is ErrorCode.NONE else Refused(code)
    return None if step.live.is_empty else Refused(ErrorCode.UNKNOWN_MEMBER_ID, _NO_MEMBER)


def _of_rows(step: GroupStep[Any], offered: Offered) -> Refused | None:
    """Why single rows cannot be stored; their kind of group comes first."""
    bad = []
    for row in offered.offsets:
        code = step.row_fault(offered.member, offered.generation, row)
        if code is ErrorCode.NONE:
            code = pending.old_id_fault(step, row)
        if code is ErrorCode.NONE and is_metadata_too_large(step, row):
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        if code is not ErrorCode.NONE:
            bad.append((row, code))
    return Refused(bad[0][1], None, tuple(bad)) if bad else None


def _value(
    step: GroupStep[Any], offered: Offered, before: KeptPending | None
) -> stored.PendingValue:
    """The entry with these rows; those of the same partitions before are void."""
    rows = tuple(
        stored.PendingOffset(
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            leader_epoch=row.leader_epoch,
            metadata=row.metadata,
            record=step.at.offset,
            timestamp_ms=row.timestamp_ms,
            topic_id=row.topic_id,
        )
        for row in offered.offsets
    )
    others: tuple[stored.PendingOffset, ...] = ()
    if before is not None:
        named = {(row.topic, row.partition) for row in rows}
        kept = [row for row in rows_of(before) if row.place not in named]
        others = saved(before, kept).offsets
    return stored.PendingValue(
        decided_by=offered.decided_by,
        client=offered.client,
        id=offered.id,
        member=offered.member,
        generation=offered.generation,
        since_ms=step.at.time_ms if before is None else before.since_ms,
        offsets=others + rows,
        table=offered.table or UNSET,
    )


def _without_room(
    step: GroupStep[Any],
    offered: Offered,
    value: stored.PendingValue,
    before: KeptPending | None,
) -> Refused | None:
    """Why entry and offsets do not fit. What fits now can be carried out whenever it is decided."""
    refused = Refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    entry, entries, kept = keep_pending(value), step.entries(PENDING), step.entries(OFFSETS)
    config, bounds = step.family.config, step.family.transactions
    if len(value.offsets) > limits.OFFSETS_PER_REQUEST_MAX:
        return refused
    if len(entry.rows) > limits.PENDING_BYTES_MAX:
        return refused
    grows_by = pending_size_of(entry) + name_bytes(offered.key)
    if before is not None:
        grows_by -= pending_size_of(before) + name_bytes(offered.key)
    room_bytes = step.members_room_bytes if offered.generation >= 0 else step.room_bytes
    if step.value is None:
        room_bytes -= step.new_group_bytes
    pending_bytes = entries.size_bytes + grows_by
    is_too_large = grows_by > room_bytes or (
        pending_bytes > bounds.pending_bytes_per_group_max
        or pending_bytes + kept.size_bytes > config.offsets_bytes_per_group_max
    )
    new = sum(kept.get(row.topic, row.partition) is None for row in value.offsets)
    is_full = new > 0 and not Places(config, kept, entries).has(new)
    return refused if is_too_large or is_full else None


def _too_many(step: GroupStep[Any], offered: Offered, before: KeptPending | None) -> Refused | None:
    entries = step.entries(PENDING)
    if before is None and entries.count >= step.family.transactions.pending_per_group_max:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS, _TOO_MANY)
    if offered.decided_by == DELTA and any(
        (entry.decided_by, entry.member) == (DELTA, offered.member) for _, _, entry in entries
    ):
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS, _ONE_IS_OPEN)
    return None


def key_of(producer_id: int, epoch: int) -> str:
    """Names the pending offsets of a transaction in each of its groups."""
    return f"{producer_id}-{epoch}"


def txn_offsets(step: GroupStep[Any], message: TxnOffsets) -> None:
    """Offsets of an open transaction; the group answers whether they wait."""
    request = message.request
    offered = Offered.by(request, key_of(request.producer_id, request.epoch), COORDINATOR)
    done = admit(step, offered)
    if isinstance(done, Refused):
        failed = done.failed or UNSET
        refused = refusal(done.code, done.message)
        step.emit(answer(request, step.at, **refused, failed=failed))
        record_refused(step, offered, done)
    else:
        step.answer(request)


def txn_marker(step: GroupStep[Any], message: TxnMarker) -> None:
    """How a transaction ended. It may have no offsets here: they were refused, or never came."""
    if step.value is not None:
        decide(step, key_of(message.producer_id, message.epoch), message.result == COMMIT)


#: What all kinds of groups judge.
MESSAGES: Final[dict[type[Message], Handler]] = {TxnOffsets: txn_offsets, TxnMarker: txn_marker}
