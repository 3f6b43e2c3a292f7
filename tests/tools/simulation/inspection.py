"""What is looked at while batches are judged: steps, states and sizes, beside what the core checks.

A job checks no invariants by default. So in half of the worlds the core checks none, and what it
leaves behind is looked at here, from outside the fold: an unsound group is then seen as what it
would be in production, and not as one that was set aside in time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

import msgspec

from coordlib import limits
from coordlib.core.engine import fold as shard_module
from coordlib.core.engine.effects import At, BrokenInvariant, Key, Output
from coordlib.core.engine.rows import Agenda, Row, StoredRow, note
from coordlib.core.engine.state import restore
from coordlib.core.groups.kind import GroupKind
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api
from coordlib.core.wire.stored import ShardPosition
from coordlib.job.batch import output_rows
from coordlib.job.pipelines import fold_groups
from tests.tools.core import (
    Fold,
    InputRecord,
    Shard,
    ShardSettings,
    StoredShard,
    UnknownStateVersion,
    decode_blob,
    topics_known,
)
from tests.tools.defects import Defect, in_force
from tests.tools.simulation.paged import Paged
from tests.tools.simulation.violation import Violation

#: What all answers of a batch, and those to one request, have at most (INV-68); here with as much
#: again for what is no answer.
BATCH_BYTES_MAX: Final = 2 * 64 * limits.MIB
ANSWERS_BYTES_MAX: Final = 16 * limits.MIB + limits.MIB
#: A batch may also write so many times what it has read: answers, history and state.
OUT_OF_IN: Final = 64
#: Who hears one of these counts as heard: the group is busy, or has no room for a new wish.
_HEARD_ALL_THE_SAME: Final = frozenset({"NONE", "REBALANCE_IN_PROGRESS", "GROUP_MAX_SIZE_REACHED"})
#: Bounds that a small world divides: all but that of a request, which clients know as well.
_SIZES: Final = tuple(
    name
    for name in vars(limits)
    if name.endswith("_BYTES_MAX") and name not in ("REQUEST_BYTES_MAX", "SHARD_BYTES_MAX")
)


@contextmanager
def sizes_divided(by: int) -> Iterator[None]:
    """While it lasts, the bounds of sizes in `limits.py` are so much nearer."""
    with ExitStack() as patches:
        for name in _SIZES if by > 1 else ():
            patches.enter_context(patch.object(limits, name, getattr(limits, name) // by))
        yield


def _written(row: Row) -> tuple[Any, ...]:
    """All that is stored of a row, but for when its members were heard."""
    stored = row.stored
    refusals = msgspec.structs.astuple(stored.refusals)
    return stored.kind, stored.facts, stored.head, stored.tables, refusals, stored.answered


class WatchedShard(Shard):
    """A shard of which somebody looks on: refused requests must leave everything alone.

    When a batch is over, its indexes must be those that counting anew would give.
    """

    def __init__(self, *begin: Any) -> None:
        super().__init__(*begin)
        #: What stands in the page of a row that no mark names: it is not written again.
        self._unmarked = {
            key: (row, _written(row)) for key, row in self.rows.items() if key not in self.touched
        }

    def judge(self, record: InputRecord) -> None:
        waited = {*self._put_off}
        super().judge(record)
        due = self._agenda.due
        if due and due[0][0] <= self.clock_ms:
            self._check_fired(record, waited)

    def _check_fired(self, record: InputRecord, waited: set[Key]) -> None:
        """INV-33: what is due at a record has fired, unless it waited for what readers see."""
        for due_ms, key in self._agenda.due:
            row = self.rows.get(key)
            is_due = row is not None and row.facts.next_due_ms == due_ms <= self.clock_ms
            if is_due and key not in waited:
                raise Violation(
                    f"INV-33: {key[1]} was due at {due_ms}, and {record.topic}-{record.offset} is "
                    f"judged at {self.clock_ms}"
                )

    def close(self) -> list[Output]:
        outputs = super().close()
        self._check_agenda()
        for key, (row, written) in self._unmarked.items():
            is_same = self.rows.get(key) is row and _written(row) == written
            if key not in self.touched and not is_same:
                raise Violation(f"INV-03: {key[1]} has changed, and its page would stay as it was")
        return outputs

    def _check_agenda(self) -> None:
        """INV-15: what the shard goes by has followed from its rows all through the batch."""
        agenda, shard = self._agenda, f"shard {self.settings.shard}"
        known = [(key, row.facts, row.entry_bytes) for key, row in self.rows.items()]
        anew = Agenda([note(known)], self.settings.bounds.check_interval_ms)
        for what in ("size_bytes", "cap_ms", "waits", "reports", "replies", "deadlines"):
            ours, found = getattr(agenda, what), getattr(anew, what)
            if ours != found:
                raise Violation(f"INV-15: {what} of {shard} is {ours}, counted anew {found}")
        waiting = {
            (self.rows[key].facts.next_due_ms, key) for key in self._put_off & set(self.rows)
        }
        for what, ours, found in (
            ("deadline", {*agenda.due, *waiting}, anew.due),
            ("look", {*agenda.looks}, anew.looks),
        ):
            lost = sorted({*found} - ours)
            if lost:
                raise Violation(f"INV-15: {shard} has lost the {what} {lost[0]}")

    def _judge_request(self, at: At, key: Key, request: api.Request, raw: bytes | None) -> None:
        cell = self.rows.get(request.entity)
        before = None if cell is None else (dict(cell.heard), cell.value)
        count = len(self.outputs)
        super()._judge_request(at, key, request, raw)
        after = self.rows.get(request.entity)
        if cell is None or before is None or after is not cell:
            return
        heard, group = before
        if cell.heard == heard and cell.value is group:
            return
        if self._is_refused(request, self.outputs[count:], at.coordinate):
            who = [name for name in heard if cell.heard.get(name) != heard[name]]
            if who:
                raise Violation(
                    f"INV-24: {at.coordinate}, a {type(request).__name__} that was refused, "
                    f"counts as a sign of life of {who[0]}"
                )

    @staticmethod
    def _is_refused(request: api.Request, outputs: Sequence[Any], coordinate: str) -> bool:
        """Whether it was answered, and nothing of it was taken."""
        answers = [msgspec.json.decode(o.value) for o in outputs if o.topic == "responses"]
        mine = [each for each in answers if each.get("cause") == coordinate and "error" in each]
        rows = len(request.offsets) if isinstance(request, api.OffsetCommit) else 0
        return bool(mine) and all(
            each["error"] not in _HEARD_ALL_THE_SAME
            or (rows > 0 and len(each.get("failed") or ()) >= rows)
            for each in mine
        )


@dataclass
class Inspector:
    """Judges batches as a task does, and looks at all that comes of it.

    Args:
        sizes: by how much bounds of sizes are divided.
        looks_at_states: whether groups are checked outside the fold.
        paged: all of it once more in pages.
    """

    sizes: int = 1
    looks_at_states: bool = False
    paged: Paged | None = None
    #: (shard, group) -> its newest state that was looked at.
    _sound: dict[tuple[int, str], bytes] = field(default_factory=dict)
    #: (checkpoint, batch) -> shard -> what it knew of topics by then.
    _topics: dict[tuple[str, int], dict[int, Mapping[str, int]]] = field(default_factory=dict)

    def judge(
        self,
        blob: bytes | None,
        records: list[InputRecord],
        settings: ShardSettings,
        defects: list[Defect],
    ) -> tuple[bytes, list[tuple[Any, ...]]]:
        """One shard's part of a batch. Raises what an unreadable state raises, and Violation."""
        with in_force(defects), self.looking_on():
            try:
                done = self._fold(blob, records, settings)
                fresh = done.blob
                rows = output_rows(done.outputs, done.status, len(fresh), records)
            except (msgspec.MsgspecError, UnknownStateVersion, Violation):
                raise
            except Exception as problem:
                raise Violation(
                    f"INV-67: a batch of shard {settings.shard} cannot be judged, now or ever: "
                    f"{type(problem).__name__}: {problem}"
                ) from problem
        self.check_size(settings, records, rows)
        if self.looks_at_states:
            self.check_states(settings, decode_blob(fresh))
        return fresh, rows

    def _fold(self, blob: bytes | None, records: Any, settings: ShardSettings) -> Fold:
        done = fold_groups(blob, records, settings)
        if self.paged is not None:
            self.paged.check(blob, records, settings, done)
        return done

    @contextmanager
    def looking_on(self) -> Iterator[None]:
        """While it lasts, every shard is a watched one."""
        with sizes_divided(self.sizes), patch.object(shard_module, "Shard", WatchedShard):
            yield

    def check_size(
        self,
        settings: ShardSettings,
        records: Iterable[InputRecord],
        rows: Iterable[tuple[Any, ...]],
    ) -> None:
        """INV-68: what a batch writes is bounded, whatever it has read."""
        came = sum(len(record.value or b"") for record in records)
        wrote = sum(len(row[2] or b"") for row in rows)
        most = BATCH_BYTES_MAX // self.sizes + OUT_OF_IN * came
        if wrote > most:
            raise Violation(
                f"INV-68: a batch of shard {settings.shard} reads {came} bytes and writes {wrote}"
            )

    def check_states(self, settings: ShardSettings, state: StoredShard) -> None:
        """INV-09, INV-13 to INV-15: what the core would have checked after every step.

        Rule 3: nothing waits for what a tick has covered, also after a release.
        """
        for row in state.rows:
            key, hard = (settings.shard, row.name), bytes(row.head)
            if self._sound.get(key) == hard or not hard:
                continue
            machine = REGISTRY.kinds[row.kind]
            try:
                machine.check(machine.decode(hard))
            except BrokenInvariant as broken:
                raise Violation(f"INV-13: {row.name} is unsound after a batch: {broken}") from None
            self._sound[key] = hard
        for row in state.rows:
            first_unread_offset = row.facts.first_unread_offset
            if 0 <= first_unread_offset <= state.published:
                raise Violation(
                    f"rule 3: {row.name} waits for readers of record {first_unread_offset}, and a "
                    f"tick has covered {state.published}"
                )
        kept = sum(row.facts.size_bytes + _entry_bytes(row) for row in state.rows)
        most = settings.bounds.bytes_max
        if kept > most + most // limits.SHARD_RESERVE_SHARE:
            where = f"shard {settings.shard}"
            raise Violation(f"INV-43: {where} keeps {kept} bytes, {most} is the most")

    # ---- what shards know of topics -----------------------------------------------------------

    def note_topics(self, checkpoint: str, batch: int, judged: Mapping[int, bytes]) -> None:
        """By the end of this batch, in which these shards had records."""
        before = self._topics.get((checkpoint, batch - 1), {})
        fresh = {shard: topics_known(decode_blob(blob)) for shard, blob in judged.items()}
        self._topics[(checkpoint, batch)] = {**before, **fresh}

    def check_rebuilt(self, checkpoint: str, batch: int, seeds: Mapping[int, bytes]) -> None:
        """INV-38: what a rebuilt shard knows of topics is what it knew.

        But for topics that only groups in quarantine know: nobody tells those of a change.
        """
        for shard, known in self._topics.get((checkpoint, batch), {}).items():
            if shard not in seeds:
                continue
            rebuilt = decode_blob(seeds[shard])
            for topic, count in topics_known(rebuilt).items():
                is_sure = topic not in _known_in_quarantine_alone(rebuilt)
                if is_sure and known.get(topic, count) != count:
                    raise Violation(
                        f"INV-38: shard {shard} knew {known[topic]} partitions of {topic}, and "
                        f"{count} when it was rebuilt"
                    )


def _known_in_quarantine_alone(state: StoredShard) -> set[str]:
    known: dict[bool, set[str]] = {True: set(), False: set()}
    for row in state.rows:
        machine = REGISTRY.kinds[row.kind]
        if not isinstance(machine, GroupKind):
            continue
        group = machine.decode(bytes(row.head))
        known[group.is_quarantined] |= machine.known_topics(group).keys()
    return known[True] - known[False]


def check_against_topics(
    shard: int, blob: bytes, topics: Mapping[str, Mapping[bytes, bytes]]
) -> None:
    """INV-38: the compacted topics say what the state says, entity by entity and row by row."""
    state = decode_blob(blob)
    position = ShardPosition(
        clock_ms=state.clock_ms,
        previous_ms=state.previous_ms,
        offsets=state.offsets,
        published=state.published,
    )
    told = decode_blob(restore(topics, position, REGISTRY))
    ours, theirs = ({row.name: row for row in each.rows} for each in (state, told))
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())
        raise Violation(f"INV-38: shard {shard}: {odd[0]} is in its state or in its topics only")
    for name, row in ours.items():
        for what in ("kind", "head", "tables"):
            if _bytes_of(getattr(row, what)) != _bytes_of(getattr(theirs[name], what)):
                raise Violation(f"INV-38: shard {shard}: the {what} of {name} is not as its topics")


def _bytes_of(value: Any) -> bytes:
    return bytes(value) if isinstance(value, msgspec.Raw) else msgspec.msgpack.encode(value)


def _entry_bytes(row: StoredRow) -> int:
    return sum(table.size_bytes for table in row.tables.values())
