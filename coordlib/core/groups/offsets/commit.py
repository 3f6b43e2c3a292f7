"""OffsetCommit: who may store positions, and which of them are stored.

As in Kafka's coordinator, what is stored is stored as given: offsets may go back or lie below
zero, leader epochs are not compared, and whether the partition exists, or is the member's own, is
not asked (Kafka asks for existence before the coordinator, in its API layer). Which members may
commit, and where, is their kind's own rule.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import UNSET

from coordlib.config import GroupConfig
from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.step import throttle_request
from coordlib.core.engine.tables import Entries, name_bytes
from coordlib.core.groups.group import GroupStep, Refused
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.tables import (
    NO_ID,
    NO_TIMESTAMP,
    OFFSETS,
    PENDING,
    ROW_BYTES_MIN,
    KeptOffset,
    committed_value,
    named_row,
    offset_bytes,
    size_of,
)
from coordlib.core.wire import api, stored
from coordlib.errors import ErrorCode

NO_GROUP: Final = "Join the group first, which does not exist, or commit with generation -1."
#: What a stored row writes at least, beside the group's name: its record and its place in history.
ROW_OUTPUT_BYTES_MIN: Final = 120
_HAS_MEMBERS: Final = "Stop the group's members first, or commit as one of them: it is not Empty."


def offset_commit(step: GroupStep[Any], request: api.OffsetCommit) -> None:
    """Judge one OffsetCommit; members and their rows as their kind of group does."""
    refused = _refused(step, request)
    if refused is not None:
        code, message = refused
        throttle_time_ms = step.family.throttle_time(code)
        step.refuse(request, code, message, throttle_time_ms=throttle_time_ms)
        step.record(
            stored.EVENT_COMMIT_REFUSED,
            member=request.member,
            reason=code.name,
            detail={"client": request.client, "request_generation": request.generation},
        )
        return
    if step.must_wait(len(request.offsets) * (ROW_OUTPUT_BYTES_MIN + len(step.name))):
        throttle_request(request, step)
        return
    room_bytes = step.members_room_bytes if request.generation >= 0 else step.room_bytes
    if step.value is None:
        room_bytes -= step.new_group_bytes
    is_stored = store(step, request, room_bytes)
    # Positions of clients that are no members have no fixed place among the requests: they must
    # not decide how long a member lives.
    if is_stored and step.at.topic == REQUESTS and request.member in step.live.members:
        step.touched.append(request.member)


def _refused(step: GroupStep[Any], request: api.OffsetCommit) -> Refused:
    group = step.value
    is_anonymous = request.generation < 0
    if group is None:
        fault = step.new_group_fault(ErrorCode.COORDINATOR_NOT_AVAILABLE, step.new_group_bytes)
        no_group = None if is_anonymous else (ErrorCode.ILLEGAL_GENERATION, NO_GROUP)
        return fault or no_group
    if is_anonymous and group.is_empty:
        return None  # member and instance are not looked at, as in Kafka
    if is_anonymous and request.member == "" and request.instance is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, _HAS_MEMBERS
    return step.commit_fault(request)


class _Room:
    """The room that group and shard still have; the rows of a request use it up in their order."""

    def __init__(
        self, config: GroupConfig, kept: Entries, waiting: Entries, shard_bytes: int, member: str
    ) -> None:
        """`kept`, `waiting`: offsets that are committed and pending, as before this step."""
        self._places, self._kept, self._member = Places(config, kept, waiting), kept, member
        #: Rows of partitions that had no offset.
        self._new = 0
        # Pending offsets have reserved what they may become.
        self._bytes = config.offsets_bytes_per_group_max - kept.size_bytes - waiting.size_bytes
        self._bytes = min(self._bytes, shard_bytes)
        #: Bytes that rows of this request have taken so far.
        self._costs: dict[tuple[str, int], int] = {}
        self._topics: set[str] = set()

    def take(self, row: api.CommittedOffset) -> bool:
        """Whether the row can be stored; one that makes nothing larger always can."""
        place, member = (row.topic, row.partition), self._member
        kept = self._kept.get(*place)
        is_first = place not in self._costs
        is_timed, has_id = row.timestamp_ms is not UNSET, row.topic_id is not UNSET
        if is_first and kept is not None and _has_the_size_of(kept, row, member):
            return True  # most commits of members: nothing grows
        grows_by = 0
        if row.topic not in self._topics and not self._kept.has_name(row.topic):
            grows_by += name_bytes(row.topic)
        cost = offset_bytes(row.metadata, member, is_timed, has_id)
        before = self._costs.get(place)
        if is_first and kept is not None:
            before = size_of(kept)
        grows_by += cost - (before or 0)
        if grows_by > max(self._bytes, 0):
            return False
        if before is None and not self._places.has(self._new + 1):
            return False
        self._new += before is None
        self._bytes -= grows_by
        self._costs[place] = cost
        self._topics.add(row.topic)
        return True


class Places:
    """How many partitions more the group may have offsets of; pending ones count.

    The rows of pending entries are read only where what costs less does not suffice, and once.
    """

    def __init__(self, config: GroupConfig, kept: Entries, waiting: Entries) -> None:
        self._waiting, self._kept = waiting, kept
        #: Rooms of which each one is as large as the one before, or larger.
        self._rooms = self._counted(config.offsets_per_group_max - kept.count)
        self._room = next(self._rooms)

    def _counted(self, room: int) -> Iterator[int]:
        yield room - self._waiting.size_bytes // ROW_BYTES_MIN
        yield room - pending.row_count(self._waiting)
        yield room - pending.new_places(self._waiting, self._kept)

    def has(self, new: int) -> bool:
        """Whether there is room for this many new partitions."""
        while new > self._room:
            room = next(self._rooms, None)
            if room is None:
                return False
            self._room = room
        return True


def _has_the_size_of(kept: KeptOffset, row: api.CommittedOffset, member: str) -> bool:
    was = kept.metadata, kept.member, kept.timestamp_ms != NO_TIMESTAMP, kept.topic_id != NO_ID
    has_time, has_id = row.timestamp_ms is not UNSET, row.topic_id is not UNSET
    return was == (row.metadata, member, has_time, has_id)


def store(
    step: GroupStep[Any],
    request: api.OffsetCommit | api.Release,
    shard_bytes: int,
    is_owed: Callable[[api.CommittedOffset], bool] | None = None,
) -> bool:
    """Keep the rows that may be kept, answer with the others, and record both in the history.

    Returns whether any row was stored; without one nothing changes, and no group is made.  # INV-24

    Args:
        shard_bytes: how many bytes more the shard takes of this sender.
        is_owed: whether a row belongs to what the sender releases; None: it releases nothing.
    """
    accepted: list[api.CommittedOffset] = []
    refused: list[tuple[api.CommittedOffset, ErrorCode]] = []
    kept, waiting = step.entries(OFFSETS), step.entries(PENDING)
    # As the offsets will be kept: without a generation the member is ignored.
    member = request.member if request.generation >= 0 else ""
    room = _Room(step.family.config, kept, waiting, shard_bytes, member)
    for row in request.offsets:
        if is_owed is not None and not is_owed(row):
            code = ErrorCode.PARTITION_NOT_OWNED
        else:
            code = _judge_row(step, request, row, room)
        if code is ErrorCode.NONE:
            accepted.append(row)
        else:
            refused.append((row, code))
    if accepted and step.value is None:
        step.create("first commit")  # only keeps offsets: no protocol type, Empty
    named = [_named(row) for row in accepted]
    values = [committed_value(step.at, row, request.generation, member) for row in accepted]
    for row, value in zip(accepted, values, strict=True):
        step.put_entry(OFFSETS, (row.topic, row.partition), value)
    if waiting.count:
        pending.supersede(step, {(row.topic, row.partition): pending.LATEST for row in accepted})
    failed = (api.FailedPartition(row.topic, row.partition, code.name) for row, code in refused)
    step.answer(request, failed=tuple(failed))
    if accepted:
        step.record(
            stored.EVENT_OFFSETS_COMMITTED,
            member=request.member,
            detail={"client": request.client, "offsets": named},
        )
    if refused:
        _record_refused(step, request, refused)
    return bool(accepted)


def _record_refused(
    step: GroupStep[Any],
    request: api.OffsetCommit | api.Release,
    refused: list[tuple[api.CommittedOffset, ErrorCode]],
) -> None:
    """One line for all rows that were not stored; its reason names each of their errors once."""
    names = {code.name for _, code in refused}
    rows = [_named(row) | {"error": code.name} for row, code in refused]
    detail = {"client": request.client, "request_generation": request.generation, "offsets": rows}
    if isinstance(request, api.Release):
        detail["request"] = type(request).__name__
    step.record(
        stored.EVENT_COMMIT_REFUSED,
        member=request.member,
        reason=", ".join(sorted(names)),
        detail=detail,
    )


def _named(row: api.CommittedOffset) -> dict[str, object]:
    found = named_row(row)
    return found if row.timestamp_ms is UNSET else found | {"timestamp_ms": row.timestamp_ms}


def _judge_row(
    step: GroupStep[Any],
    request: api.OffsetCommit | api.Release,
    row: api.CommittedOffset,
    room: _Room,
) -> ErrorCode:
    code = ErrorCode.NONE
    if step.JUDGES_ROWS:
        code = step.row_fault(request.member, request.generation, row)
    if code is ErrorCode.NONE and row.topic_id:
        code = pending.old_id_fault(step, row)
    if code is not ErrorCode.NONE:
        return code
    if is_metadata_too_large(step, row):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE if room.take(row) else ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def is_metadata_too_large(step: GroupStep[Any], row: api.CommittedOffset) -> bool:
    """Whether a row is refused for its metadata.

    Kafka counts a String's length: characters beyond the first 65,536 count twice.
    """
    text = row.metadata
    length = len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
    return length > step.family.config.offset_metadata_length_max
