"""The groups of a shard while a batch is judged: their rows, the indexes over them, what is due.

Deadlines, retention and questions that can be heard are steps of one group each, and so is all that
`shard.py` lets groups judge. One that breaks sets its group aside, and all others go on.  # INV-42
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any

from coordlib.coordinators.groups.offsets import retention
from coordlib.coordinators.shard import quarantine
from coordlib.coordinators.shard.agenda import Agenda
from coordlib.coordinators.shard.answered import Answered, Asked
from coordlib.coordinators.shard.blob import ShardSettings, StoredShard
from coordlib.coordinators.shard.kind import Machine
from coordlib.coordinators.shard.outbox import Outbox
from coordlib.coordinators.shard.refusal_lines import Refusals
from coordlib.coordinators.shard.row import Row
from coordlib.coordinators.shard.transition import REQUESTS, At
from coordlib.effects import effect as fx


class Groups(ABC):
    """All of them. Owned by one fold; never shared."""

    def __init__(self, state: StoredShard, settings: ShardSettings) -> None:
        self.settings = settings
        self._refusals = state.refusals
        self._outbox = Outbox(settings.shard, self._refusals_of)
        #: The clipped log clock.  # INV-06
        self.clock_ms = state.clock_ms
        #: Newest record whose outputs can be read, by the newest tick.
        self.published = state.published
        self._answered = Answered(state.answered)
        self._retention_ms = settings.group.offsets_retention_ms
        if state.retention_ms != self._retention_ms:
            for row in state.rows:
                row.expires_ms = 0  # looked at once
        self.rows = {row.name: Row(row) for row in state.rows}
        #: Groups that were deleted in this batch; some may be there again.
        self._deleted: set[str] = set()
        self._agenda = Agenda(state.rows, settings.group.offsets_retention_check_interval_ms)
        #: Groups with a deadline that is due and waits until what they have said can be seen.
        self._put_off: set[str] = set()

    @abstractmethod
    def _step(self, at: At, name: str, decide: Any, machine: Machine) -> None:
        """Let a group judge something; keep the outcome only if it is sound."""

    @abstractmethod
    def _here(self) -> At:
        """The place of the record that was judged last."""

    @abstractmethod
    def _quarantine(self, at: At, name: str, problem: Exception) -> None:
        """Keep the group as it was before the step, and judge nothing of it any more."""

    # -- rows ------------------------------------------------------------------------------

    def _settle(
        self,
        cell: Row,
        group: Any,
        touched: list[str],
        commits: Iterable[fx.Commit] = (),
        kind: str | None = None,
    ) -> None:
        """Take over a group's new state, and what the shard knows about it by heart."""
        row = cell.stored
        before = (row.timeout_ms, row.next_due_ms, row.expires_ms, row.size_bytes)
        had = (cell.group, row.offset_count)
        cell.take_over(group, self.clock_ms, touched, kind)
        for commit in commits:
            cell.apply_commit(commit.topic, commit.partition, commit.value)
        cell.bound_expiry(*had, self._retention_ms)
        if commits:
            cell.bound_expiry_by_commit(self.clock_ms, self._retention_ms)
        self._agenda.note(row, *before)

    def _forget(self, cell: Row) -> None:
        """Its effects have withdrawn everything that was written of this group but itself."""
        # It was Empty, but an announced id may have waited in it.
        self._agenda.forget(cell.stored)
        del self.rows[cell.stored.name]
        self._deleted.add(cell.stored.name)

    def _refusals_of(self, name: str) -> Refusals:
        cell = self.rows.get(name)
        return self._refusals if cell is None else cell.stored.refusals

    def _count(self, at: At, name: str, size_bytes: int) -> None:
        """What a step has said and readers cannot see yet.  # INV-68"""
        if at.topic != REQUESTS:
            return
        self._answered.count(at.offset, size_bytes)
        if name in self.rows:
            self.rows[name].stored.answered = at.offset

    def _set_aside(self, cell: Row, problem: Exception) -> None:
        """What cannot be written is saved as it was when the batch began; it is judged no more."""
        row, at = cell.stored, self._here()
        self._agenda.forget(row)
        self._outbox.put_at_end(cell.set_aside())
        self._put(at, quarantine.recorded(row.name, row.kind, cell.group, at, problem))

    def _put(self, at: At, *effects: fx.Effect) -> None:
        self._outbox.put(effects, at)

    # -- what is due -----------------------------------------------------------------------

    def _fire_due(self, at: At) -> None:
        """Rule 2: every deadline that is due, in order of time, then group, kind, member.

        # INV-33
        """
        agenda = self._agenda
        while agenda.has_due(self.clock_ms):
            bound_ms, name = agenda.pop()
            cell = self.rows.get(name)
            if cell is None or cell.stored.next_due_ms != bound_ms or cell.group is None:
                continue
            if self._answered.is_full and self._is_unread(cell):
                self._put_off.add(name)
                continue
            try:
                self._fire(at, cell, bound_ms)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, name, problem)
            if cell.stored.next_due_ms == bound_ms:  # another one of the group, equally due
                agenda.schedule(cell.stored)

    def _fire(self, at: At, cell: Row, bound_ms: int) -> None:
        due = cell.machine.next_due(cell.group, cell.heard)
        if due.due_ms == bound_ms:
            decide = partial(cell.machine.fire, due=due)
            self._step(at, cell.stored.name, decide, cell.machine)
        else:  # heartbeats have pushed it later since the bound was set
            cell.stored.next_due_ms = due.due_ms
            self._agenda.schedule(cell.stored)

    def _must_wait(self, asked: Asked, size_bytes: int, cell: Row | None) -> bool:
        return self._answered.must_wait(asked, size_bytes, self._is_unread(cell))

    def _is_unread(self, cell: Row | None) -> bool:
        """Whether a group has said something large that no tick covers yet."""
        return cell is not None and cell.stored.answered > self.published

    def _expire(self, at: At) -> None:
        """Retention: what was due at the newest check goes; a look where something may be."""
        agenda, interval_ms = self._agenda, self.settings.group.offsets_retention_check_interval_ms
        checked_ms = retention.newest_check(self.clock_ms, interval_ms)
        while agenda.has_expiring(checked_ms) and not self._answered.is_full:
            check_ms, name = agenda.pop_expiring()
            cell = self.rows.get(name)
            if cell is None or agenda.check_of(cell.stored) != check_ms or cell.group is None:
                continue
            try:
                expire = partial(retention.expire, checked_ms=checked_ms)
                self._step(at, name, expire, cell.machine)
                if name in self.rows:
                    cell.find_expiry(self._retention_ms)
                    agenda.schedule_expiry(cell.stored)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(at, name, problem)

    def _cover(self, published: int) -> None:
        """Rule 3: what waited to be heard of starts now, and what waited for readers goes on."""
        if published <= self.published:
            return
        self.published = published
        self._answered.cover(published)
        for name in sorted(self._put_off):
            if name in self.rows:
                self._agenda.schedule(self.rows[name].stored)
        self._put_off.clear()
        for name in sorted(self._agenda.uncovered):
            cell = self.rows[name]
            if not 0 <= cell.stored.uncovered_min <= published or cell.group is None:
                continue
            try:
                group, heard_now = cell.machine.cover(cell.group, published, self.clock_ms)
                self._settle(cell, group, heard_now)
            except Exception as problem:  # noqa: BLE001  INV-42
                self._quarantine(self._here(), name, problem)
