"""A history of transactions, sorted by what its lines are about."""

from dataclasses import dataclass, field
from typing import Final

from coordlib.demo.history import Happened

OK: Final = "ok"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"


@dataclass
class Transaction:
    """One, as its process has told of it."""

    name: str
    member: str = ""
    #: ok, aborted, unknown; none of them: its commit was never called.
    outcome: str = ""
    #: From when on it may take place; None: never.
    decided_ms: int | None = None
    #: When its process knew that it had.
    known_ms: int | None = None
    sent: list[Happened] = field(default_factory=list)
    #: Group and partition -> next offset.
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)

    def end(self, line: Happened) -> None:
        """Its process tells how it ended, or that it is about to."""
        self.outcome = line.detail
        if line.detail in (OK, UNKNOWN) and self.decided_ms is None:
            self.decided_ms = line.began_ms if line.began_ms >= 0 else line.t_ms
        if line.detail == OK:
            self.known_ms = line.t_ms

    def groups_of(self, key: str) -> set[str]:
        """The groups whose input a record is: those that commit offsets of its partition.

        Without such offsets it is that of its only group. One empty name: that is not known.
        """
        place = key.rpartition("@")[0]
        groups = {group for group, _ in self.offsets}
        own = {group for group, each in self.offsets if each == place}
        return own or (groups if len(groups) == 1 else {""})

    @property
    def may_count(self) -> bool:
        """Whether it may have taken place."""
        return self.outcome in (OK, UNKNOWN)


class Told:
    """A history of transactions, sorted by what it is about."""

    def __init__(self, history: list[Happened]) -> None:
        self.transactions: dict[str, Transaction] = {}
        #: Value -> the line that says who appended it.
        self.sent: dict[str, Happened] = {}
        #: Reader and partition -> what it was given, in its order.
        self.read: dict[tuple[str, str], list[Happened]] = {}
        #: Partition -> readings to its end: reader, and when it asked for the end.
        self.ends: dict[str, list[tuple[str, int]]] = {}
        #: Reader and partition -> the values of that.
        self.values: dict[tuple[str, str], set[str]] = {}
        self.fetched: list[Happened] = []
        #: Offsets that members committed by themselves.
        self.plain: set[tuple[str, str, int]] = set()
        #: Value -> when it was first read.
        self.seen_ms: dict[str, int] = {}
        #: Member -> when its processes ended.
        self._gone_ms: dict[str, list[int]] = {}
        for line in history:
            self._add(line)
        #: Group and partition -> offset -> the transactions that commit it.
        self.committers: dict[tuple[str, str], dict[int, list[Transaction]]] = {}
        for each in self.transactions.values():
            for place, offset in each.offsets.items():
                self.committers.setdefault(place, {}).setdefault(offset, []).append(each)

    def _add(self, line: Happened) -> None:
        if line.transaction:
            self._of_transaction(line)
        elif line.what == "read":
            place = line.member, line.partitions[0]
            self.read.setdefault(place, []).append(line)
            self.values.setdefault(place, set()).add(line.value)
            self.seen_ms.setdefault(line.value, line.t_ms)
        elif line.what == "read_to_end":
            for partition in line.partitions:
                self.ends.setdefault(partition, []).append((line.member, line.began_ms))
        elif line.what == "fetched":
            self.fetched.append(line)
        elif line.what == "ended":
            self._gone_ms.setdefault(line.member, []).append(line.t_ms)
        elif line.what in ("commit", "committed"):
            self.plain |= {(line.group, place, at) for place, at in line.offsets.items()}

    def _of_transaction(self, line: Happened) -> None:
        known = self.transactions.setdefault(line.transaction, Transaction(line.transaction))
        known.member = known.member or line.member
        if line.what == "sent":
            known.sent.append(line)
            self.sent[line.value] = line
        elif line.what == "offsets":
            known.offsets |= {(line.group, place): at for place, at in line.offsets.items()}
        elif line.what == "ended":
            known.end(line)

    def counts(self, each: Transaction) -> bool | None:
        """Whether it took place; None: its history does not say.

        A reading to the end that lacks it says so only if it began after its process had ended.
        """
        if each.outcome == OK:
            return True
        if each.outcome != UNKNOWN:
            return False
        if any(line.value in self.seen_ms for line in each.sent):
            return True
        over_ms = self._over_ms(each)
        is_looked_at = over_ms is not None and any(
            began_ms > over_ms
            for line in each.sent
            for _, began_ms in self.ends.get(line.partitions[0], ())
        )
        return False if is_looked_at else None

    def _over_ms(self, each: Transaction) -> int | None:
        """When its process had ended; until then its commit may still be on its way."""
        since_ms = each.decided_ms or 0
        return min(
            (at for at in self._gone_ms.get(each.member, ()) if at >= since_ms), default=None
        )

    def has(self, reader: str, partition: str, value: str) -> bool:
        """Whether a reader was given a value."""
        return value in self.values.get((reader, partition), ())
