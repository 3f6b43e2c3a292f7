"""A step of a classic group: what only this kind of group has."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from coordlib.core.engine import effect as fx
from coordlib.core.engine.step import BrokenInvariant
from coordlib.core.groups.classic import kept_bytes
from coordlib.core.groups.classic.group import VALID_PREVIOUS_STATES, Group, Member, State
from coordlib.core.groups.step import GroupStep
from coordlib.core.wire import responses as rs


class Step(GroupStep[Group]):
    """One classic group during one step.

    Its state changes by `enter` only, its members by `put`, `rename` and `drop`.
    """

    __slots__ = ()
    DEAD = State.DEAD

    @property
    def new_group_bytes(self) -> int:
        return kept_bytes.new_group(self.name)

    def change(self, **fields: Any) -> None:
        """As for all kinds, and what the members have in the blob is handed on."""
        before = self.live
        super().change(**fields)
        if "members" not in fields:
            kept_bytes.carry(before, self.live)

    def enter(self, state: State, **fields: Any) -> None:
        """Change the state, along the table only, and other fields with it.  # INV-12"""
        if self.live.state not in VALID_PREVIOUS_STATES[state]:
            raise BrokenInvariant(f"{self.name}: {self.live.state.value} to {state.value}")
        at = self.at
        since = {"state_since_ms": at.time_ms, "state_since_clock_ms": at.clock_ms}
        self.change(state=state, **since, **fields)

    def put(self, *members: Member, **fields: Any) -> None:
        """Add members or replace them under their ids, and change other fields with them."""
        table = dict(self.live.members)
        replaced = []
        for member in members:
            replaced.append((table.get(member.member), member))
            table[member.member] = member
        self._change_members(table, replaced, **fields)

    def rename(self, member: Member, successor: Member) -> None:
        """Put a successor in a member's place, also in the order of members and as leader."""
        table = dict(
            (successor.member, successor) if each is member else (name, each)
            for name, each in self.live.members.items()
        )
        leader = self.live.leader
        self._change_members(
            table,
            [(member, successor)],
            leader=successor.member if leader == member.member else leader,
        )

    def drop(self, member: Member) -> None:
        """Take a member out, with the guard of the member that it replaced."""
        table = dict(self.live.members)
        del table[member.member]
        guards = {
            name: replace(guard, successor=None) if guard.successor == member.member else guard
            for name, guard in self.live.guards.items()
        }
        self._change_members(table, [(member, None)], guards=guards)

    def _change_members(
        self,
        table: dict[str, Member],
        replaced: Iterable[tuple[Member | None, Member | None]],
        **fields: Any,
    ) -> None:
        """Change the members, with both counts of their bytes."""
        before = self.live
        record_bytes = kept = 0
        for old, new in replaced:
            more = kept_bytes.growth(old, new)
            record_bytes, kept = record_bytes + more[0], kept + more[1]
        self.change(members=table, size_bytes=before.size_bytes + record_bytes, **fields)
        kept_bytes.carry(before, self.live, kept)

    def notify_members(self, members: Iterable[Member], notification: rs.Notification) -> None:
        """Write a notification once to each partition that one of these members reads."""
        for reply in sorted({member.reply for member in members}):
            self.emit(fx.Notify(reply, notification))
