"""Offsets that wait for somebody else's decision, and what becomes of them.

An entry is decided once, and whole.  # INV-91

Committed, each of its rows becomes the committed offset, unless a later
record of the log has written that partition since: such a record takes the partition out of all
older entries when it is judged, so no place in the log has to be kept with an offset. Dropped, an
entry leaves a line of history. Who decides (`core/wire/transactions.py`) makes no difference here.

An entry is a row of the group's own, and membership never reads it: members come and go, and the
group may change its kind. Room for the offsets was reserved when the entry was made, so a decision
can always be carried out.  # INV-43
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.kind import NOT_INDEXED
from coordlib.core.engine.table import Change, Entries, Place
from coordlib.core.groups.offsets import made_anew
from coordlib.core.groups.offsets.pending_table import (
    ABORT,
    COMMIT,
    PENDING,
    KeptPending,
    KeptRow,
    Partition,
    mark_of,
    place_of,
    rows_of,
    saved,
)
from coordlib.core.groups.offsets.table import OFFSETS, committed_value
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored
from coordlib.core.wire.transactions import DELTA, KAFKA

#: Later than every record of the log.
LATEST: Final = 2**63 - 1
_decode_report: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode


# -- questions -------------------------------------------------------------------------------


def has_any(step: GroupStep[Any]) -> bool:
    """Whether the group had entries before this step."""
    return step.entries(PENDING).count > 0


def awaited(
    step: GroupStep[Any], places: Iterable[Partition] | None
) -> dict[Partition, rs.AwaitedDecision]:
    """The decisions for which offsets wait, by partition; of all partitions if none is named.

    Of several the oldest, which is the first to be decided mostly.
    """
    entries = step.entries(PENDING)
    if not entries.count:
        return {}
    found: dict[Partition, tuple[int, rs.AwaitedDecision]] = {}
    wanted = None if places is None else dict.fromkeys(places)
    for (key, _), entry in _holders(entries, wanted):
        rows = rows_of(entry)
        told = _told(key, entry, rows)
        for row in rows:
            is_asked = wanted is None or row.place in wanted
            if is_asked and row.record < found.get(row.place, (LATEST, told))[0]:
                found[row.place] = row.record, told
    return {place: told for place, (_, told) in sorted(found.items())}


def _told(key: str, entry: KeptPending, rows: Sequence[KeptRow]) -> rs.AwaitedDecision:
    """Of a Delta table also what is needed to look into it."""
    if entry.decided_by != DELTA:
        return rs.AwaitedDecision(key, entry.decided_by)
    metadata = rows[0].metadata if rows else ""
    is_a_tables = 0 < len(metadata) <= limits.TABLE_METADATA_LENGTH_MAX
    return rs.AwaitedDecision(
        key, DELTA, entry.table, entry.member, entry.since_ms, metadata if is_a_tables else UNSET
    )


def row_count(step: GroupStep[Any]) -> int:
    """How many offsets are pending, each partition as often as entries have it; reads no rows."""
    return sum(entry.partitions for _, _, entry in step.entries(PENDING))


def new_places(step: GroupStep[Any]) -> int:
    """How many partitions have pending offsets and no committed one; reads all entries."""
    places = {row.place for _, _, entry in step.entries(PENDING) for row in rows_of(entry)}
    return sum(step.offsets.get(*place) is None for place in places)


def described(step: GroupStep[Any]) -> tuple[rs.DescribedPending, ...]:
    """All entries, oldest first, without their offsets."""
    found = [
        rs.DescribedPending(
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
    void = {
        row.place: gone
        for row in whole
        if (gone := made_anew.void_row(step, *row.place, row.topic_id))
    }
    rows = tuple(row for row in whole if row.place not in void)
    step.put_entry(PENDING, place_of(key), None)
    for row in saved(entry, rows).offsets:
        # As old as the decision: before, nobody could read it.
        value = committed_value(step.at, row, entry.generation, entry.member)
        step.put_entry(OFFSETS, (row.topic, row.partition), value)
    supersede(step, {row.place: row.record for row in rows}, key)
    _record(step, stored.EVENT_OFFSETS_COMMITTED, key, entry, rows, word)
    made_anew.record(step, list(void.values()), transaction=key)


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
    told = [{"topic": row.topic, "partition": row.partition, "offset": row.offset} for row in rows]
    detail = {
        "client": entry.client,
        "transaction": key,
        "decided_by": entry.decided_by,
        "offsets": told,
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
        if _is_asked_about(was) or _is_asked_about(entries.get(key, number)):
            _set(offsets, _offset_of(key), _is_asked_about(entries.get(key, number)))
    return _reported(offsets)


def _set(offsets: list[int], offset: int, is_in: bool) -> None:
    """Keep a sorted list of a thousand: nothing is sorted anew."""
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
    return () if report == NOT_INDEXED else _decode_report(report)


def _of_kafka(entries: Entries) -> list[tuple[int, str]]:
    """Offset and key of the entries that Kafka decides, and has not yet."""
    return [(_offset_of(key), key) for key, _, entry in entries if _is_asked_about(entry)]


def _is_asked_about(entry: KeptPending | None) -> bool:
    return entry is not None and entry.decided_by == KAFKA and not entry.decision


def _offset_of(coordinate: str) -> int:
    return int(coordinate.rpartition("-")[2])
