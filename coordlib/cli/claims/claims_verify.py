"""`coord claims verify`: whether the job's snapshots are what the coordination topic says."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coordlib.cli.claims.claims_where import CLAIMS_HERE, WhereClaims
from coordlib.cli.kit.output import print_json, print_table, say, visible
from coordlib.errors import NotReady
from coordlib.exit_codes import FAILED, OK, UNHEALTHY

if TYPE_CHECKING:
    from coordlib.client.claims.survey import Survey
    from coordlib.core.claims.slot import Key
    from coordlib.core.claims.world import World

COLUMNS: Final = ("PARTITION", "SNAPSHOT-OFFSET", "OK", "SLOTS", "DIFFERENCES", "NOTE")
KEYS: Final = tuple(column.lower() for column in COLUMNS)
LATE: Final = "late: the log begins behind its first record"


@dataclass(frozen=True, slots=True)
class Compared:
    """A coordination partition: whether its snapshot is what its log says."""

    partition: int
    snapshot_offset: int | None
    #: None: nothing was compared, for the reason in `note`.
    ok: bool | None
    note: str | None = None
    slots: int | None = None
    #: A sentence for each difference.
    different: tuple[str, ...] = ()
    #: Whether a snapshot can be expected: the log's clock has gone a heartbeat interval.
    is_due: bool = True

    def row(self) -> tuple[object, ...]:
        count = None if self.ok is None else len(self.different)
        return self.partition, self.snapshot_offset, self.ok, self.slots, count, self.note


def verify(*, where: WhereClaims = CLAIMS_HERE) -> int:
    """Fold the coordination topic, and compare with the job's newest snapshots; exit code 3 if they
    differ, 1 if a partition could not be compared.

    Compared are owner, fencing token, position and age of every slot, at the snapshot's offset. A
    partition whose log has not gone a heartbeat interval has no snapshot yet, and counts for
    nothing.
    """
    with where.survey() as survey:
        rows = list(compare(survey))
    for each in rows:
        for line in each.different:
            say(f"m{each.partition}-{each.snapshot_offset}: {visible(line)}")
    ok = agreed(rows)
    if where.format == "json":
        partitions = [dict(zip(KEYS, each.row(), strict=True)) for each in rows]
        print_json("claims verify", topic=where.claims_topic, ok=ok, partitions=partitions)
    else:
        print_table(COLUMNS, [each.row() for each in rows])
    if all(each.snapshot_offset is None for each in rows):
        raise NotReady(
            "There is no snapshot to compare with.",
            f"{where.topic_prefix()}.claims.snapshots",
            "Start the job with claims, and wait for one heartbeat interval.",
        )
    if ok is None:
        say("Not every partition could be compared: see NOTE.")
    return FAILED if ok is None else OK if ok else UNHEALTHY


def agreed(rows: Iterable[Compared]) -> bool | None:
    """Of a whole topic; None: nothing differs, and not all that had to be compared could be."""
    some = [each for each in rows if each.ok is not None or each.is_due]
    if any(each.ok is False for each in some):
        return False
    return None if not some or any(each.ok is None for each in some) else True


def compare(survey: "Survey") -> "Iterator[Compared]":
    """Each coordination partition in turn, read to its end. Raises as `Survey.read`."""
    for number in range(survey.place.partitions):
        snapshot = survey.snapshot(number)
        if snapshot is None:
            yield _without_snapshot(survey, number)
            continue
        world = _folded(survey, number, snapshot.offset)
        if world.offset != snapshot.offset:
            note = "the log ends before it, or begins behind it"
            yield Compared(number, snapshot.offset, None, note)
        elif not world.is_settled:
            note = "too little of the log is left to know the owners"
            yield Compared(number, snapshot.offset, None, note)
        else:
            theirs = survey.restored(snapshot, number)
            compared, different = differences(world, theirs, is_late=world.is_late)
            late, found = LATE if world.is_late else None, tuple(different)
            yield Compared(number, snapshot.offset, not found, late, compared, found)


def _without_snapshot(survey: "Survey", number: int) -> Compared:
    world = _folded(survey, number)
    is_due = world.is_late or world.clock_ms >= world.interval_ms
    note = "no snapshot of this topic" if is_due else "no snapshot is due yet"
    return Compared(number, None, None, note, is_due=is_due)


def _folded(survey: "Survey", number: int, until: int | None = None) -> "World":
    """The log up to an offset, or to its end, as one that reads it alone."""
    from coordlib.core.claims.world import World

    world = World(survey.place.topic, number, survey.place.partitions)

    def keep(_: int, record: Any, __: Any) -> None:
        if until is None or record.offset <= until:
            world.judge(record)

    survey.read([number], is_whole=True, on_record=keep)
    return world


def differences(ours: "World", theirs: "World", is_late: bool) -> tuple[int, list[str]]:
    """How many slots were compared, and where they differ, one sentence each.

    A reader that began late knows less: compared are owners, unless either is not sure of one.
    """
    keys = ours.slots.keys() | theirs.slots.keys()
    if is_late:
        keys = {key for key in keys if _is_sure(ours, theirs, key)}
    found = []
    for key in sorted(keys):
        mine, other = _facts(ours, key), _facts(theirs, key)
        if is_late and mine is not None and other is not None and mine[3] is None:
            other = (*other[:3], None, *other[4:])  # it was written before this reader began
        if mine != other:
            group, topic, partition = key
            found.append(f"{group} {topic}:{partition}: the log says {mine}, the snapshot {other}")
    return len(keys), found


def _is_sure(ours: "World", theirs: "World", key: "Key") -> bool:
    owners = [slot for world in (ours, theirs) if (slot := world.owner(key)) is not None]
    return bool(owners) and not any(slot.is_tentative for slot in owners)


def _facts(world: "World", key: "Key") -> tuple[object, ...] | None:
    slot = world.slots.get(key)
    if slot is None:
        return None
    age_ms = world.clock_ms - slot.heard_ms
    return slot.client, slot.instance, slot.epoch, slot.position, slot.is_released, age_ms
