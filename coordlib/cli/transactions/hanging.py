"""Which transactions do not end by themselves, or not soon, and what mends each: pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coordlib.cli.kit.output import counted
from coordlib.core.wire.transactions import COORDINATOR, DELTA, KAFKA

if TYPE_CHECKING:
    from coordlib.cli.transactions.transaction_view import SeenId, SeenPending
    from coordlib.kafka.held_up import HeldUp

COLUMNS: Final = ("DECIDED-BY", "WHAT", "HANGS-FOR", "REASON", "MEND")
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
    #: The command that mends it.
    mend: str

    @property
    def row(self) -> tuple[object, ...]:
        """A line of COLUMNS; HANGS-FOR in milliseconds."""
        return self.decided_by, self.what, self.for_ms, self.reason, self.mend


def of_coordinator(
    ids: "Iterable[SeenId]",
    now_ms: int,
    longer_than_ms: int,
    unheard: "Callable[[SeenId], tuple[int, ...]]",
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
            reasons = list(_not_told(each, unheard(each)))
        for reason, mend in reasons:
            yield Hanging(COORDINATOR, each.name, for_ms, reason, mend)


def _not_told(seen: "SeenId", unheard: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Why a transaction that was decided is not complete, and what mends that."""
    from coordlib.core.transactions.transaction import count_of

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
    pending: "Iterable[SeenPending]", now_ms: int, longer_than_ms: int
) -> Iterator[Hanging]:
    """Offsets that are decided, and whose group stands still."""
    for each in pending:
        for_ms = now_ms - each.entry.since_ms
        if each.entry.decision and for_ms > longer_than_ms:
            reason = f"decided ({each.entry.decision}), and the group is quarantined"
            yield _of(each, for_ms, reason, f"coord groups release {each.group}")


def of_deleted_records(
    pending: "Iterable[SeenPending]", now_ms: int, starts: Mapping[int, int]
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


def is_record_gone(each: "SeenPending", starts: Mapping[int, int]) -> bool:
    """Whether Kafka deleted the record of an entry that waits for Kafka's decision."""
    if each.entry.decided_by != KAFKA or each.entry.decision:
        return False
    offset = each.key.rpartition("-")[2]
    return offset.isdigit() and int(offset) < starts.get(each.shard, 0)


def of_members(
    pending: "Iterable[SeenPending]",
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


def _of(each: "SeenPending", for_ms: int, reason: str, mend: str) -> Hanging:
    return Hanging(
        each.entry.decided_by, f"group {each.group}, key {each.key}", for_ms, reason, mend
    )


def of_held_up(
    held: "Iterable[HeldUp]", now_ms: int, longer_than_ms: int, servers: str
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
        yield Hanging(KAFKA, what, for_ms, reason, _mend_of(each, servers))


def first_record_of(each: "HeldUp") -> str:
    """What is known of the record with which the transaction begins."""
    from coordlib.core.wire import codec
    from coordlib.core.wire import requests as rq

    if each.unread is not None:
        return f"its first record is not known: {each.unread}"
    request = codec.decode_request(each.value)
    if isinstance(request, rq.Request):
        of_group = f" of group {request.group}" if request.group else ""
        return f"it began with a {type(request).__name__}{of_group} of client {request.client}"
    key = each.key or b""
    return (
        f"its first record has the key {key[:KEY_SHOWN]!r}"
        if key
        else "its first record has no key"
    )


def _mend_of(each: "HeldUp", servers: str) -> str:
    """By its id if that is known; else how it is found."""
    if each.transactional_id is not None:
        return f"coord transactions abort {each.transactional_id} --of-kafka"
    topic, partition = each.place
    tool = f"kafka-transactions.sh --bootstrap-server {servers}"
    return (
        f"{tool} describe-producers --topic {topic} --partition {partition} (its producer id), "
        f"{tool} list (its transactional id), coord transactions abort ID --of-kafka"
    )
