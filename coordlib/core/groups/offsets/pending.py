"""Offsets that wait for somebody else's decision, what becomes of them, and who decides.

An entry is decided once, and whole.  # INV-91

Committed, each of its rows becomes the committed offset, unless a later
record of the log has written that partition since: such a record takes the partition out of all
older entries when it is judged, so no place in the log has to be kept with an offset. Dropped, an
entry leaves a line of history. Who decides (`core/wire/transactions.py`) makes no difference here.

An entry is a row of the group's own, and membership never reads it: members come and go, and the
group may change its kind. Room for the offsets was reserved when the entry was made, so a decision
can always be carried out.  # INV-43

A commit of a Delta table decides, and the coordinator reads no tables. So DecidePending believes
those who have looked:

    the sender of the entry         it has made the commit, or has not
    a live member of the group      it has shut the sender out of the table, and looked then
    an operator, with a reason      nobody else can look; history names who and why

What Kafka decides the driver finds by itself. Only if retention has removed the record before it
looked, nobody will ever know, and an operator decides. What the transaction coordinator decides
nobody else does: its markers come. A decision is believed once: later ones find no entry.

Offsets of topics that were deleted and made anew count as none.  # INV-130
Kafka's coordinator deletes a topic's offsets with the topic. Here they go when a listing shows
another id than the one that they were committed under. An offset without an id stays: its client
named none, and it is taken for one of the topic of now. A position of `coord.offsets` has no place
among the listings, so it is stored under any id, and judged when it is read. So are those that one
listing leaves: it deletes a bounded number, since the record that names a topic of ten thousand
partitions is small. Offsets that wait for a decision are judged when they are decided.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.state import decode_report
from coordlib.core.engine.step import NOT_INDEXED
from coordlib.core.engine.tables import Change, Entries, Place
from coordlib.core.groups.group import GroupStep
from coordlib.core.groups.offsets.tables import (
    ABORT,
    COMMIT,
    OFFSETS,
    PENDING,
    KeptOffset,
    KeptPending,
    KeptRow,
    Partition,
    committed_value,
    mark_of,
    named_row,
    place_of,
    rows_of,
    saved,
)
from coordlib.core.wire import api, stored
from coordlib.core.wire.offsets import COORDINATOR, DELTA, KAFKA
from coordlib.errors import ErrorCode

_REASON: Final = "topic made anew"
Void = dict[str, Any]


class Forgetting:
    """Deletes what one listing has made void, group by group."""

    def __init__(self) -> None:
        self._left = limits.OFFSETS_PER_EVENT_MAX

    def of(self, step: GroupStep[Any], topics: Iterable[str]) -> None:
        """Delete the group's offsets of these topics, as many as the listing may."""
        offsets = step.entries(OFFSETS)
        rows = ((topic, *each) for topic in topics for each in offsets.of_name(topic))
        self._left -= delete_void(step, rows, self._left)


def delete_void(
    step: GroupStep[Any],
    rows: Iterable[tuple[str, int, KeptOffset]],
    at_most: int = limits.OFFSETS_PER_EVENT_MAX,
) -> int:
    """Delete those of these offsets that were committed under an old id; how many it were."""
    gone: list[Void] = []
    for topic, partition, kept in rows:
        if len(gone) == at_most:
            break
        if void := void_row(step, topic, partition, kept.topic_id):
            step.put_entry(OFFSETS, (topic, partition), None)
            gone.append(void)
    record_void(step, gone)
    return len(gone)


def old_id_fault(step: GroupStep[Any], row: api.CommittedOffset) -> ErrorCode:
    """Whether a row to be stored was read from a topic that is not there any more; NONE: no."""
    is_old = step.at.topic == REQUESTS and step.family.present_id(row.topic, row.topic_id)
    return ErrorCode.UNKNOWN_TOPIC_ID if is_old else ErrorCode.NONE


def void_row(step: GroupStep[Any], topic: str, partition: int, topic_id: str) -> Void | None:
    """An offset of an old id, for history, with both ids; None: it is not known as one."""
    present = step.family.present_id(topic, topic_id)
    ids = {"topic_id": topic_id, "present_id": present}
    return {"topic": topic, "partition": partition, **ids} if present else None


def record_void(step: GroupStep[Any], gone: list[Void], **named: str) -> None:
    """A line of history about offsets that were void, if there were any."""
    if gone:
        detail = {**named, "offsets": gone}
        step.record(stored.EVENT_OFFSETS_DELETED, reason=_REASON, detail=detail)


def remove_offsets(
    step: GroupStep[Any],
    places: Sequence[tuple[str, int]],
    event: str,
    reason: str,
    detail: dict[str, str] | None = None,
) -> None:
    """Delete the offsets of these partitions; each must have one."""
    for topic, partition in places:
        step.put_entry(OFFSETS, (topic, partition), None)
    for first in range(0, len(places), limits.OFFSETS_PER_EVENT_MAX):
        part = places[first : first + limits.OFFSETS_PER_EVENT_MAX]
        rows = [{"topic": topic, "partition": partition} for topic, partition in part]
        step.record(event, reason=reason, detail={**(detail or {}), "offsets": rows})


#: Later than every record of the log.
LATEST: Final = 2**63 - 1


# -- questions -------------------------------------------------------------------------------


def has_any(step: GroupStep[Any]) -> bool:
    """Whether the group had entries before this step."""
    return step.entries(PENDING).count > 0


def awaited(
    step: GroupStep[Any], places: Iterable[Partition] | None
) -> dict[Partition, api.AwaitedDecision]:
    """The decisions for which offsets wait, by partition; of all partitions if none is named.

    If several entries wait, the oldest is returned.
    """
    entries = step.entries(PENDING)
    if not entries.count:
        return {}
    found: dict[Partition, tuple[int, api.AwaitedDecision]] = {}
    wanted = None if places is None else dict.fromkeys(places)
    for (key, _), entry in _holders(entries, wanted):
        rows = rows_of(entry)
        decision = _awaited_decision(key, entry, rows)
        for row in rows:
            is_asked = wanted is None or row.place in wanted
            if is_asked and row.record < found.get(row.place, (LATEST, decision))[0]:
                found[row.place] = row.record, decision
    return {place: decision for place, (_, decision) in sorted(found.items())}


def _awaited_decision(key: str, entry: KeptPending, rows: Sequence[KeptRow]) -> api.AwaitedDecision:
    """For a Delta table with the fields that a check of the table needs."""
    if entry.decided_by != DELTA:
        return api.AwaitedDecision(key, entry.decided_by)
    metadata = rows[0].metadata if rows else ""
    is_a_tables = 0 < len(metadata) <= limits.TABLE_METADATA_LENGTH_MAX
    return api.AwaitedDecision(
        key, DELTA, entry.table, entry.member, entry.since_ms, metadata if is_a_tables else UNSET
    )


def row_count(entries: Entries) -> int:
    """How many offsets are pending, each partition as often as entries have it; reads no rows."""
    return sum(entry.partitions for _, _, entry in entries)


def new_places(entries: Entries, offsets: Entries) -> int:
    """How many partitions have pending offsets and no committed one; reads all entries."""
    places = {row.place for _, _, entry in entries for row in rows_of(entry)}
    return sum(offsets.get(*place) is None for place in places)


def described(step: GroupStep[Any]) -> tuple[api.DescribedPending, ...]:
    """All entries, oldest first, without their offsets."""
    found = [
        api.DescribedPending(
            key=key,
            decided_by=entry.decided_by,
            client=entry.client,
            member=entry.member,
            generation=entry.generation,
            since_ms=entry.since_ms,
            partitions=entry.partitions,
            table=entry.table or UNSET,
            decision=entry.decision or UNSET,
        )
        for key, _, entry in step.entries(PENDING)
    ]
    return tuple(sorted(found, key=lambda each: (each.since_ms, each.key)))


def _holders(
    entries: Entries, places: Iterable[Partition] | None
) -> list[tuple[Place, KeptPending]]:
    """The entries that may have offsets of these partitions, or all of them; in order."""
    if places is None:
        return [((name, number), entry) for name, number, entry in entries]
    return entries.marked(*map(mark_of, places))


# -- decisions -------------------------------------------------------------------------------


class Word(NamedTuple):
    """Who decided in the sender's place, for history."""

    client: str
    member: str = ""
    reason: str = ""


def decide(step: GroupStep[Any], key: str, is_committed: bool, word: Word | None = None) -> bool:
    """Carry a decision out; returns whether there was an entry that waited for one.

    While the group is quarantined it is noted alone, since nothing of the group may change, and
    carried out when the group is released.

    Args:
        word: who says so; None: whoever decides such entries, or their sender.
    """
    entry: KeptPending | None = step.entry(PENDING, *place_of(key))
    if entry is None or entry.decision:
        return False
    if step.live.is_quarantined:
        decision = COMMIT if is_committed else ABORT
        step.put_entry(PENDING, place_of(key), saved(entry, rows_of(entry), decision))
    elif is_committed:
        _materialise(step, key, entry, word)
    else:
        _drop(step, key, entry, word)
    return True


def decide_by_offset(
    step: GroupStep[Any], committed: Collection[int], aborted: Collection[int]
) -> None:
    """Carry out what transactions of Kafka have decided, by the offsets of their records."""
    for offset, key in sorted(_of_kafka(step.entries(PENDING))):
        if offset in committed or offset in aborted:
            decide(step, key, offset in committed)


def carry_out(step: GroupStep[Any]) -> None:
    """Do what was decided while the group was quarantined."""
    for key, number, entry in step.entries(PENDING):
        if entry.decision:
            # A decision before it may have taken rows out of this entry.
            now: KeptPending = step.entry(PENDING, key, number)
            if entry.decision == COMMIT:
                _materialise(step, key, now)
            else:
                _drop(step, key, now)


def supersede(step: GroupStep[Any], places: Mapping[Partition, int], but: str = "") -> None:
    """A record of the log has written these partitions: older pending offsets of them are void.

    Args:
        places: the offset in the log of that record, by partition.
        but: the entry that is carried out.
    """
    entries = step.entries(PENDING)
    if not entries.count:
        return
    for where, _ in _holders(entries, places):
        entry: KeptPending | None = step.entry(PENDING, *where)
        if entry is None or where == place_of(but):
            continue
        rows = rows_of(entry)
        left = [row for row in rows if row.record >= places.get(row.place, -1)]
        if len(left) < len(rows):
            step.put_entry(PENDING, where, saved(entry, left))


def _materialise(
    step: GroupStep[Any], key: str, entry: KeptPending, word: Word | None = None
) -> None:
    whole = rows_of(entry)
    void = {row.place: gone for row in whole if (gone := void_row(step, *row.place, row.topic_id))}
    rows = tuple(row for row in whole if row.place not in void)
    step.put_entry(PENDING, place_of(key), None)
    for row in saved(entry, rows).offsets:
        # As old as the decision: before it could not be read.
        value = committed_value(step.at, row, entry.generation, entry.member)
        step.put_entry(OFFSETS, (row.topic, row.partition), value)
    supersede(step, {row.place: row.record for row in rows}, key)
    _record(step, stored.EVENT_OFFSETS_COMMITTED, key, entry, rows, word)
    record_void(step, list(void.values()), transaction=key)


def _drop(step: GroupStep[Any], key: str, entry: KeptPending, word: Word | None = None) -> None:
    step.put_entry(PENDING, place_of(key), None)
    _record(step, stored.EVENT_OFFSETS_DROPPED, key, entry, rows_of(entry), word)


def _record(
    step: GroupStep[Any],
    event: str,
    key: str,
    entry: KeptPending,
    rows: Iterable[KeptRow],
    word: Word | None,
) -> None:
    detail = {
        "client": entry.client,
        "transaction": key,
        "decided_by": entry.decided_by,
        "offsets": [named_row(row) for row in rows],
    }
    if word is not None:
        detail["by"] = word.client
        detail |= {"by_member": word.member} if word.member else {}
    step.record(event, member=entry.member, reason=word.reason if word else "", detail=detail)


# -- what the driver must find out -----------------------------------------------------------


def report(entries: Entries) -> msgspec.Raw:
    """The records whose transactions of Kafka have to be asked about, for `Facts.report`."""
    return _reported(sorted(offset for offset, _ in _of_kafka(entries)))


def report_after(before: msgspec.Raw, entries: Entries, changes: Iterable[Change]) -> msgspec.Raw:
    """The same after these entries changed, if it was `before`; reads none but them.

    A commit must not cost what grows with the entries that are open.
    """
    offsets = list(undecided(before))
    for (key, number), was in changes:
        is_asked_about = _is_asked_about(entries.get(key, number))
        if is_asked_about or _is_asked_about(was):
            _set(offsets, _offset_of(key), is_asked_about)
    return _reported(offsets)


def _set(offsets: list[int], offset: int, is_in: bool) -> None:
    """Insert or remove one number of a sorted list, without sorting it."""
    place = bisect_left(offsets, offset)
    was_in = offsets[place : place + 1] == [offset]
    if is_in and not was_in:
        offsets.insert(place, offset)
    elif was_in and not is_in:
        del offsets[place]


def _reported(offsets: list[int]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(offsets)) if offsets else NOT_INDEXED


def undecided(report: msgspec.Raw) -> tuple[int, ...]:
    """The offsets that a group has reported."""
    return () if report == NOT_INDEXED else decode_report(report)


def _of_kafka(entries: Entries) -> list[tuple[int, str]]:
    """Offset and key of the entries that Kafka decides, and has not yet."""
    return [(_offset_of(key), key) for key, _, entry in entries if _is_asked_about(entry)]


def _is_asked_about(entry: KeptPending | None) -> bool:
    return entry is not None and entry.decided_by == KAFKA and not entry.decision


def _offset_of(coordinate: str) -> int:
    return int(coordinate.rpartition("-")[2])


_NONE_WAITS: Final = "Begin from the committed offsets: nothing waits under this key any more."
_BY_COORDINATOR: Final = "Abort its transactional id instead: the transaction coordinator decides."
_NOT_BELIEVED: Final = (
    "Decide as the member that has sent these offsets, as a live member in the group's generation "
    "if a Delta table decides, or as an operator: without a member, and with a reason."
)


def decide_pending(step: GroupStep[Any], request: api.DecidePending) -> None:
    """Judge one DecidePending."""
    place = place_of(request.pending)
    entry: KeptPending | None = None if step.value is None else step.entry(PENDING, *place)
    if entry is None or entry.decision:
        step.refuse(request, ErrorCode.INVALID_TXN_STATE, _NONE_WAITS)
    elif entry.decided_by == COORDINATOR:
        step.refuse(request, ErrorCode.INVALID_REQUEST, _BY_COORDINATOR)
    elif not _is_believed(step, entry, request):
        step.refuse(request, ErrorCode.INVALID_REQUEST, _NOT_BELIEVED)
    else:
        word = Word(request.client, request.member, request.reason)
        is_own = _is_own(entry, request)
        decide(step, request.pending, request.result == COMMIT, None if is_own else word)
        step.answer(request)


def _is_believed(step: GroupStep[Any], entry: KeptPending, request: api.DecidePending) -> bool:
    if entry.decided_by == DELTA and (_is_own(entry, request) or _is_live(step, request)):
        return True
    return not request.member and bool(request.reason)


def _is_own(entry: KeptPending, request: api.DecidePending) -> bool:
    """Whether the sender of the entry decides, which need not be a member any more."""
    return entry.decided_by == DELTA and (entry.client, entry.member) == (
        request.client,
        request.member,
    )


def _is_live(step: GroupStep[Any], request: api.DecidePending) -> bool:
    if not request.member:
        return False
    return step.member_fault(request.member, None, request.generation) is ErrorCode.NONE
