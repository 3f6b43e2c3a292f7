"""The rule by which a reader sees committed transactions only, for one partition. Pure.

    records in offset order ─▶ late or seen before: dropped ─▶ kept ─▶ up to the first undecided one

A marker decides about the records that stand before it. Where none comes for a second, the
coordinator is asked. What is delivered is in offset order and stops at the first record whose
transaction is undecided, so a position is one number, and a reader that begins there again sees the
same.  # INV-93
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from msgspec import UNSET

from coordlib.core.wire.data_headers import Marker, Stamp, Txn
from coordlib.core.wire.transactions import COMMIT, DescribeTransactionResponse
from coordlib.errors import CoordError, ErrorCode

#: What the coordinator says of a transaction, beside "commit" and "abort".
OPEN: Final = "open"
#: It is over, or was never begun: its marker is in the log by now, or never will be.
GONE: Final = "gone"


class TornTransaction(CoordError):
    """A committed transaction lacks records: the cluster has lost what it had acknowledged.

    Raised again until the reader is told to `give_up` the transaction.
    """

    def __init__(self, transaction: Txn, why: str, where: str) -> None:
        self.transaction = transaction
        super().__init__(
            f"A committed transaction of {transaction.transactional_id} is not complete: {why}.",
            where,
            "Find out what the cluster has lost. To go on without them: give_up(error, partition).",
        )


class UndecidedTransaction(CoordError):
    """A transaction of another coordinator has no marker yet: nobody here can be asked.

    Args:
        is_read_on: False: as much is kept behind it as may be. Its marker is not among that, and
            nothing more is read.
    """

    def __init__(self, transaction: Txn, is_read_on: bool = True) -> None:
        self.transaction = transaction
        why = "Its marker cannot be waited for: no more is read behind so many records."
        wait = "Call again to wait for its marker. Or: "
        super().__init__(
            f"A transaction of {transaction.transactional_id} is undecided, and another "
            f"coordinator decides it (incarnation {transaction.incarnation}).",
            "" if is_read_on else why,
            f"{wait if is_read_on else ''}Name that coordinator: coord.bootstrap.servers and "
            "coord.prefix.",
        )


def verdict_of(answer: DescribeTransactionResponse, asked: Txn) -> str | None:
    """What the coordinator's answer means for a transaction; None: ask again."""
    if answer.error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name:
        return GONE
    if answer.error != ErrorCode.NONE.name:
        return None
    ended, named = answer.ended, (asked.producer_id, asked.epoch)
    if ended is not UNSET and (ended.producer_id, ended.epoch) == named:
        return ended.result
    is_current = (answer.producer_id, answer.epoch) == named
    return OPEN if is_current and answer.state == "Ongoing" else GONE


#: Without a marker for so long, the coordinator is asked; then at growing intervals.
ASK_AFTER_MS: Final = 1_000
ASK_AGAIN_MAX_MS: Final = 5_000
#: Transactional ids, and producers without one, that are remembered; of one that was forgotten a
#: repeated record is not known again. A shard has at most 10,000 ids.
REMEMBERED_MAX: Final = 20_000

T = TypeVar("T")


@dataclass(slots=True)
class _Open:
    """A transaction with records in this partition, until its marker."""

    txn: Txn
    #: The sequence that comes next.
    next: int
    #: None: undecided.
    result: str | None = None
    #: Why it is not complete; "": it is, as far as can be told.
    torn: str = ""
    #: When to ask; None: asked, and waiting.
    ask_ms: int | None = None
    attempts: int = 0
    #: The end of the partition after the coordinator said that it is over; -1: it did not.
    over_at: int = -1


@dataclass(slots=True)
class _Kept(Generic[T]):
    offset: int
    #: None: only a marker, of a transaction whose records are all missing.
    record: T | None
    #: None: part of no transaction.
    open: _Open | None


class PartitionReader(Generic[T]):
    """One partition of one reader, from where it began to read.

    Args:
        where: for errors.
        position: where it begins.
        size_of: how many bytes a record takes.
    """

    def __init__(
        self, where: str = "", position: int = 0, size_of: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._where, self._size_of = where, size_of
        self._kept: deque[_Kept[T]] = deque()
        self._open: dict[Txn, _Open] = {}
        #: Those of which the coordinator has said that they are over.
        self._over: list[_Open] = []
        #: Incarnation and transactional id -> producer and epoch of its newest marker.
        self._ended: dict[tuple[str, str], tuple[int, int]] = {}
        #: Of which a committed transaction was read with a record of it: what follows begins here.
        self._followed: dict[tuple[str, str], None] = {}
        #: Producers without id -> the sequence that comes next.
        self._numbers: dict[tuple[str, int], int] = {}
        #: All below it was read.
        self._read_to = position
        #: Whether it has read the partition's very first record.
        self._has_first = False
        #: Records that were dropped, since they came late or came again.
        self.dropped = 0
        #: Bytes of the records that are held.
        self.kept_bytes = 0

    # ---- what is read -------------------------------------------------------------------------

    def add(self, offset: int, header: Stamp | Marker | None, record: T, now_ms: int) -> None:
        """Take the next record of the partition."""
        self._has_first = self._has_first or offset == 0
        self._read_to = offset + 1
        if isinstance(header, Marker):
            self._mark(offset, header)
        elif header is None:
            self._keep(offset, record, None)
        elif header.txn is None:
            self._add_numbered(offset, header, record)
        else:
            self._add_of_transaction(offset, header.txn, header.s, record, now_ms)
        self._settle_over()

    def reached(self, offset: int) -> None:
        """Note that no more records come below this offset."""
        self._read_to = max(self._read_to, offset)
        self._settle_over()

    # ---- what is delivered --------------------------------------------------------------------

    def take(self) -> tuple[int, T] | None:
        """The next record to be delivered, with its offset; None: none is, for now.

        Raises TornTransaction.
        """
        while self._kept:
            head = self._kept[0]
            if head.open is not None:
                if head.open.result is None:
                    return None
                if head.open.result == COMMIT and head.open.torn:
                    raise TornTransaction(head.open.txn, head.open.torn, self._where)
            self._drop_head(head)
            if head.record is not None and (head.open is None or head.open.result == COMMIT):
                return head.offset, head.record
        return None

    def give_up(self, txn: Txn) -> None:
        """Deliver nothing more of this transaction."""
        for each in self._kept:
            if each.open is not None and each.open.txn == txn:
                each.open.result = GONE

    @property
    def last_stable(self) -> int:
        """Offset of the first undecided record, or of what is read next."""
        undecided = (e.offset for e in self._kept if e.open is not None and e.open.result is None)
        return next(undecided, self._read_to)

    @property
    def kept(self) -> int:
        """How many records are held."""
        return len(self._kept)

    # ---- the coordinator ----------------------------------------------------------------------

    def next_question(self, now_ms: int) -> Txn | None:
        """The transaction of which the coordinator is to be asked now; it is not named again before

        `answered`.
        """
        waits = self.waits_for
        if waits is None or waits.ask_ms is None or waits.ask_ms > now_ms or waits.over_at >= 0:
            return None
        waits.ask_ms = None
        return waits.txn

    def answered(self, txn: Txn, verdict: str | None, now_ms: int, end: int = 0) -> None:
        """Take a verdict of the coordinator; None: it is not known.

        Args:
            end: of the partition, asked for after the answer. If the transaction is over, its
                marker stands below, or stood where this reader has not been.
        """
        found = self._open.get(txn)
        if found is None or found.result is not None:
            return
        if verdict in (None, OPEN):
            wait_ms = min(ASK_AGAIN_MAX_MS, ASK_AFTER_MS << min(found.attempts, 3))
            found.attempts, found.ask_ms = found.attempts + 1, now_ms + wait_ms
        elif verdict == GONE:
            found.over_at = end
            self._over.append(found)
            self._settle_over()
        else:
            found.result = verdict

    @property
    def waits_for(self) -> _Open | None:
        """The undecided transaction that holds up all others."""
        head = self._kept[0] if self._kept else None
        return head.open if head and head.open and head.open.result is None else None

    @property
    def is_asking(self) -> bool:
        """Whether an answer of the coordinator is waited for."""
        waits = self.waits_for
        return waits is not None and waits.ask_ms is None and waits.over_at < 0

    @property
    def must_read_on(self) -> bool:
        """Whether it ends by reading alone, however much is kept."""
        waits = self.waits_for
        return waits is not None and waits.over_at >= 0

    # ---- small things -------------------------------------------------------------------------

    def _keep(self, offset: int, record: T | None, open_: _Open | None) -> None:
        self._kept.append(_Kept(offset, record, open_))
        self.kept_bytes += 0 if record is None else self._size_of(record)

    def _drop_head(self, head: _Kept[T]) -> None:
        self._kept.popleft()
        self.kept_bytes -= 0 if head.record is None else self._size_of(head.record)

    def _add_of_transaction(self, offset: int, txn: Txn, s: int, record: T, now_ms: int) -> None:
        if self._is_behind_its_marker(txn):
            self.dropped += 1
            return
        found = self._open.get(txn)
        if found is None:
            found = _Open(txn, 0 if self._must_see_all(txn) else s, ask_ms=now_ms + ASK_AFTER_MS)
            self._open[txn] = found
        if s < found.next:
            self.dropped += 1
            return
        if s > found.next:
            found.torn = found.torn or f"its records {found.next} to {s - 1} are missing"
        found.next = s + 1
        self._keep(offset, record, found)

    def _add_numbered(self, offset: int, stamp: Stamp, record: T) -> None:
        """A producer without id sends again what was not acknowledged; what it gives up is lost."""
        producer = stamp.i, stamp.p
        expected = self._numbers.get(producer, 0)
        if stamp.s < expected:
            self.dropped += 1
        else:
            self._keep(offset, record, None)
        _remember(self._numbers, producer, max(expected, stamp.s + 1))

    def _mark(self, offset: int, marker: Marker) -> None:
        txn = marker.txn
        if self._is_behind_its_marker(txn):
            return
        must_see_all = self._must_see_all(txn)
        found = self._open.pop(txn, None)
        _remember(self._ended, txn[:2], txn[2:])
        if found is not None and marker.r == COMMIT:
            _remember(self._followed, txn[:2], None)
        n = marker.n if isinstance(marker.n, int) else None
        if found is None:
            if marker.r != COMMIT or not n or not must_see_all:
                return
            found = _Open(txn, 0)
        if n is not None and n != found.next:
            found.torn = found.torn or f"it has {found.next} records of {n}"
        if found.result is None:  # else the coordinator has said it, and knows
            found.result = marker.r
        if found.result == COMMIT and found.torn:
            self._keep(offset, None, found)  # also where all records were delivered

    def _settle_over(self) -> None:
        """Records of a transaction that is over, and has no marker where it must be: they came

        behind it, before this reader began, or nobody had the right to write them.
        """
        for found in [each for each in self._over if each.over_at <= self._read_to]:
            self._over.remove(found)
            if found.result is None:
                found.result = GONE
                del self._open[found.txn]

    def _is_behind_its_marker(self, txn: Txn) -> bool:
        return txn[2:] <= self._ended.get(txn[:2], (-1, -1))

    def _must_see_all(self, txn: Txn) -> bool:
        """Whether all records of a transaction that is new here are behind this reader's begin.

        A marker alone does not say so: one that is written again may come in the middle of the
        next transaction. All records of a committed one stand before its first marker, so one that
        was read says that this marker, and all that follows, stands behind the begin.
        """
        return self._has_first or txn[:2] in self._followed


K = TypeVar("K")
V = TypeVar("V")


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Insert it as the newest, and drop the oldest beyond the bound."""
    known.pop(key, None)
    known[key] = value
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
