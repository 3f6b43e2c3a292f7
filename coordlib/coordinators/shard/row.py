"""A group's row in its shard: hard state, soft state and offsets, each decoded only when touched.

Most rows of a batch see heartbeats only, or nothing at all. So the row carries, outside the
encoded group, the few numbers by which the shard decides without decoding it.
"""

from copy import copy
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.coordinators.groups.group import AnyGroup, BrokenInvariant
from coordlib.coordinators.groups.offsets import retention
from coordlib.coordinators.registry import MACHINES
from coordlib.coordinators.shard.clock import NEVER
from coordlib.coordinators.shard.kind import (
    ANY_GENERATION,
    NO_GENERATION,
    UNKNOWN_WISHES,
    Machine,
)
from coordlib.coordinators.shard.refusal_lines import Refusals
from coordlib.coordinators.shard.table import NO_OFFSETS, OffsetTable
from coordlib.effects import effect as fx
from coordlib.records import requests as rq
from coordlib.records.stored import CommittedValue

_decode_heard: Final = msgspec.msgpack.Decoder(dict[str, int]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_EMPTY_MAP: Final = msgspec.Raw(_encode({}))


class StoredRow(msgspec.Struct, array_like=True):
    """A row as it stands in the shard's blob."""

    name: str
    kind: str
    #: Generation whose heartbeats are accepted without decoding, or NO_ or ANY_GENERATION.
    quiet_generation: int
    #: Not later than the group's earliest deadline.
    next_due_ms: int
    #: Lowest and highest record that waits for a covering tick; -1: none.
    uncovered_min: int
    uncovered_max: int
    #: Shortest session or rebalance timeout of a member; 0: no members.
    timeout_ms: int
    replies: list[int]
    heard: msgspec.Raw
    #: On the shard's clock, not later than the first expiry of an offset, or of the group.
    expires_ms: int
    hard: msgspec.Raw
    offset_count: int
    offsets: msgspec.Raw
    #: Upper bounds of what the row without its offsets, and what they, have in the blob.
    kept_bytes: int
    offset_bytes: int
    #: Instance id of each static member to its member id.
    instances: dict[str, str] = {}
    #: What history keeps but the number of.
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    #: What tells whether a change of topics concerns the group; its kind's own.
    wishes: msgspec.Raw = UNKNOWN_WISHES
    #: The newest record by which the group has said something large (answered.py); -1: none.
    answered: int = -1

    @property
    def size_bytes(self) -> int:
        """Upper bound of the row in the blob; depends on its content alone."""
        return self.kept_bytes + self.offset_bytes


class Row:
    """A row while a batch is judged."""

    __slots__ = (
        "_group",
        "_hard_at_start",
        "_heard",
        "_is_encoded",
        "_offsets",
        "changed",
        "stored",
    )

    def __init__(self, stored: StoredRow) -> None:
        self.stored = stored
        self._group: Any = None
        self._heard: dict[str, int] | None = None
        self._offsets: OffsetTable | None = None
        #: Whether the group's hard state changed in this batch, and whether the row has it.
        self.changed = False
        self._is_encoded = False
        #: What the row had when the batch began, once that was replaced.
        self._hard_at_start: msgspec.Raw | None = None

    @staticmethod
    def empty(name: str, kind: str) -> "Row":
        row = StoredRow(
            name,
            kind,
            quiet_generation=NO_GENERATION,
            next_due_ms=NEVER,
            uncovered_min=-1,
            uncovered_max=-1,
            timeout_ms=0,
            replies=[],
            heard=_EMPTY_MAP,
            expires_ms=NEVER,
            hard=msgspec.Raw(b""),
            offset_count=0,
            offsets=NO_OFFSETS,
            kept_bytes=0,
            offset_bytes=0,
        )
        return Row(row)

    @property
    def machine(self) -> Machine:
        """Its kind's."""
        return MACHINES[self.stored.kind]

    @property
    def group(self) -> Any:
        """The group, as its kind has it; None: not made yet."""
        if self._group is None and len(self.stored.hard):
            self._group = self.machine.decode(self.stored.hard)
        return self._group

    @property
    def heard(self) -> dict[str, int]:
        """When each member was last heard, on the shard's clock. Has exactly the members."""
        if self._heard is None:
            self._heard = _decode_heard(self.stored.heard)
        return self._heard

    def accepts_quietly(self, request: rq.Heartbeat, clock_ms: int) -> bool:
        """A healthy heartbeat: remember when, and nothing else."""
        row = self.stored
        if row.quiet_generation not in (request.generation, ANY_GENERATION):
            return False
        heard = self.heard
        if request.generation < 0 or request.member not in heard:
            return False
        instance = request.instance
        if instance is not None and row.instances.get(instance) != request.member:
            return False
        heard[request.member] = clock_ms
        return True

    @property
    def offsets(self) -> OffsetTable:
        if self._offsets is None:
            row = self.stored
            self._offsets = OffsetTable(row.offsets, row.offset_count, row.offset_bytes)
        return self._offsets

    def load_offsets(self) -> OffsetTable:
        return self.offsets

    def set_group(self, group: Any, clock_ms: int, touched: list[str]) -> None:
        """Take over the outcome of a step, and renew the row's numbers if the group changed."""
        heard = self.heard
        before = self._group
        if group is not before:
            self.stored.kept_bytes = self.machine.size_bytes(group)
            self._group = group
            self.changed, self._is_encoded = True, False
            if before is None or before.members.keys() != group.members.keys():
                self._heard = {member: heard.get(member, clock_ms) for member in group.members}
                heard = self._heard
        for member in touched:
            if member in heard:
                heard[member] = clock_ms
        # Not for `touched` alone: the bound stays valid, and renewing it only when the group
        # happened to change earlier in this batch would show the cut in the bytes.  # INV-02
        if group is not before:
            if before is None or _wanting_as(before) != _wanting_as(group):
                self.stored.wishes = self.machine.wishes(group)
            self.renew_numbers()

    @property
    def wishes(self) -> msgspec.Raw:
        """What it wants of the topics; found once in a row that was written without them."""
        row = self.stored
        if row.wishes == UNKNOWN_WISHES and self.group is not None:
            row.wishes = self.machine.wishes(self.group)
        return row.wishes

    def renew_numbers(self) -> None:
        group, row, machine = self.group, self.stored, self.machine
        if group is None:
            return
        row.timeout_ms = machine.shortest_timeout_ms(group)
        row.replies = machine.reply_partitions(group)
        row.instances = machine.instances(group)
        if group.is_quarantined:
            row.quiet_generation, row.next_due_ms = NO_GENERATION, NEVER
            row.uncovered_min = row.uncovered_max = -1
            row.timeout_ms = 0
            return
        row.quiet_generation = machine.quiet_generation(group)
        row.next_due_ms = machine.next_due(group, self.heard).due_ms
        row.uncovered_min, row.uncovered_max = machine.uncovered(group) or (-1, -1)

    def apply_commit(self, topic: str, partition: int, value: CommittedValue | None) -> None:
        """Store or forget one offset."""
        self.offsets.apply(topic, partition, value)
        self.stored.offset_count = self.offsets.count
        self.stored.offset_bytes = self.offsets.size_bytes

    def bound_expiry(self, before: AnyGroup | None, count_before: int, retention_ms: int) -> None:
        """Renew the bound without reading offsets, after the group or how many they are changed."""
        group, row = self.group, self.stored
        if group is None:
            return
        has_new_state = before is None or (_expiring_as(before) != _expiring_as(group))
        if has_new_state or bool(count_before) != bool(row.offset_count):
            row.expires_ms = retention.expiry_bound(group, row.offset_count, retention_ms)

    def bound_expiry_by_commit(self, clock_ms: int, retention_ms: int) -> None:
        """A new offset expires after those that there were, unless none of them could."""
        group, row = self.group, self.stored
        if group is not None and retention.expiry_bound(group, 1, retention_ms) < NEVER:
            row.expires_ms = min(row.expires_ms, clock_ms + retention_ms)

    def find_expiry(self, retention_ms: int) -> None:
        """Read the offsets for the bound: exact, if nothing changes."""
        if self.group is not None:
            first_ms = retention.first_expiry(self.group, self.offsets, retention_ms)
            self.stored.expires_ms = first_ms

    def take_over(
        self, group: Any, clock_ms: int, touched: list[str], kind: str | None = None
    ) -> None:
        """As `set_group`, whole or not at all; `kind`: the group's new one.

        Raises BrokenInvariant if nobody could write it, and whatever its kind raises.
        """
        if group is self._group:
            self.set_group(group, clock_ms, touched)
            return
        before = (copy(self.stored), self._group, self._heard, self.changed)
        try:
            self.stored.kind = kind or self.stored.kind
            self.set_group(group, clock_ms, touched)
            if self.stored.kept_bytes > limits.RECORD_BYTES_MAX // 2 and not group.is_quarantined:
                check_writable(self.machine, group, before[1])
        except Exception:
            self.stored, self._group, self._heard, self.changed = before
            raise

    def encode_group(self) -> None:
        """Put the group into the row if it changed. Called once when the batch ends."""
        if self.changed and not self._is_encoded:
            hard = msgspec.Raw(self.machine.encode(self._group))
            if self._hard_at_start is None:
                self._hard_at_start = self.stored.hard
            self.stored.hard, self._is_encoded = hard, True

    def set_aside(self) -> list[fx.Effect]:
        """Quarantine what cannot be written; the effects that save it as it can be written.

        Steps that would leave such a group fail by themselves, so this is for defects. The row
        keeps what the members were told, if it can; the topic gets what it had when the batch
        began, which is what a rebuild would go on from.
        """
        before = replace(self._at_start(), is_quarantined=True)
        try:
            self._freeze(replace(self._group, is_quarantined=True))
            self.encode_group()
        except Exception:  # noqa: BLE001  whatever it is, the batch must end
            self._freeze(before)
            self.encode_group()
        return [fx.SaveGroup(self.stored.name, self.machine.encode_saved(before))]

    def _at_start(self) -> Any:
        """The group as it was when the batch began; one that was made since has nothing."""
        hard = self.stored.hard if self._hard_at_start is None else self._hard_at_start
        if len(hard):
            try:
                return self.machine.decode(hard)
            except msgspec.MsgspecError:
                pass  # it was of another kind
        return type(self._group)(group=self.stored.name)

    def _freeze(self, group: Any) -> None:
        """Nothing is due, and nothing is judged."""
        row = self.stored
        self._group, self._is_encoded, self.changed = group, False, True
        row.quiet_generation, row.next_due_ms, row.expires_ms = NO_GENERATION, NEVER, NEVER
        row.uncovered_min = row.uncovered_max = -1
        row.timeout_ms = 0

    def encoded(self) -> StoredRow:
        """The row with everything that was decoded encoded again; equal content, equal bytes."""
        row = self.stored
        if self._group is not None:
            self.encode_group()
        if self._heard is not None:
            row.heard = msgspec.Raw(_encode(self._heard))
        if self._offsets is not None:
            row.offsets = self._offsets.encoded()
        return row


def _wanting_as(group: AnyGroup) -> tuple[object, ...]:
    """All of a group by which its wishes go: members change theirs with a new generation only."""
    return type(group), group.generation, group.is_quarantined


def check_writable(machine: Machine, group: Any, before: Any) -> None:
    """Raise BrokenInvariant if a step has made a group larger than its record may be.  # INV-67

    The step then fails, and what is kept is the group before it: however the log is cut, as no
    check at the end of a batch could promise. Whatever admission lets through is smaller, so this
    is for what nobody has thought of. To shrink is allowed. Asked only for groups that are large in
    the blob: in JSON they have at most twice as many bytes.
    """
    size_bytes = len(machine.encode_saved(group))
    if size_bytes <= limits.RECORD_BYTES_MAX:
        return
    if before is None or size_bytes > len(machine.encode_saved(before)):
        raise BrokenInvariant(f"{group.group}: its record would have {size_bytes} bytes")


def _expiring_as(group: AnyGroup) -> tuple[object, ...]:
    """All of a group by which retention goes, beside its offsets."""
    return (
        group.is_empty,
        group.is_settled,
        group.state_since_clock_ms,
        group.is_quarantined,
        # What members subscribe to may change while the state does not.
        group.generation,
    )
