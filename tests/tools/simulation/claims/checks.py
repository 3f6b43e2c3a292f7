"""What must hold when a world of claims has come to rest, and of all that the job has written."""

import msgspec

from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.fold import fold
from coordlib.core.claims.history import REFUSALS
from coordlib.core.claims.slots import Slot
from coordlib.core.engine.effects import ASSIGNMENTS, COMMITTED, EVENTS
from coordlib.core.wire import claims
from tests.tools.checking import checkers
from tests.tools.simulation.claims.engine import PREFIX, newest_snapshot
from tests.tools.simulation.claims.ledger import Reading
from tests.tools.simulation.claims.program import Program
from tests.tools.simulation.claims.world import GROUP, ClaimsWorld
from tests.tools.simulation.violation import Violation


def check_peace(world: ClaimsWorld) -> None:
    """INV-28: every partition has an owner that lives and may work, and all is processed."""
    _check_owned(world, "at rest")
    for place in world.places():
        working = [each for each in world.living if each.may_work_on(place)]
        if not working:
            raise Violation(f"INV-28: nobody may work on {place}, and nothing is broken any more")


def victim(world: ClaimsWorld) -> Program | None:
    """Somebody who has something, so that who is left would take all; None: there is none."""
    for program in world.living:
        rest = [each for each in world.living if each is not program and each.covers]
        if program.held() and {t for each in rest for t in each.topics} >= set(program.topics):
            return program
    return None


def check_mourned(world: ClaimsWorld) -> None:
    """INV-29: what a dead consumer had is claimed within the bound."""
    _check_owned(world, "after a death")


def _check_owned(world: ClaimsWorld, when: str) -> None:
    living = {(each.client, each.instance) for each in world.living}
    for place in world.places():
        slot = _slot(world, place)
        who = None if slot is None else (slot.client, slot.instance[:8])
        if who not in living:
            raise Violation(f"INV-29: {place} is owned by {who} {when}, and nobody else claims it")


def _reading(world: ClaimsWorld, place: TopicPartition) -> Reading:
    return world.ledger.readings[claims.partition_of(place.topic, world.plan.partitions)]


def _slot(world: ClaimsWorld, place: TopicPartition) -> Slot | None:
    """As the whole log has it; None: nobody owns it."""
    return _reading(world, place).world.owner((GROUP, *place))


def behind(world: ClaimsWorld) -> dict[TopicPartition, int | None]:
    """The position of each partition whose data goes on behind it."""
    found: dict[TopicPartition, int | None] = {}
    for place in world.places():
        slot = _slot(world, place)
        position = None if slot is None else slot.position
        if (position or 0) < world.cluster.partitions[place].end:
            found[place] = position
    return found


def check_end(world: ClaimsWorld) -> None:
    """Everybody has left: all is processed, and the log says so; the job has said all, once."""
    for place in world.places():
        _check_position(world, place)
    _check_history(world)
    if world.engine.problems:
        raise Violation(world.engine.problems[0])
    if world.plan.has_job:
        for shard, reading in enumerate(world.ledger.readings):
            _check_outputs(world, shard, reading)


def _check_history(world: ClaimsWorld) -> None:
    """What the programs did keeps the promises that recorded histories keep, too.

    Where an admin has set positions forward, nobody has processed what he left out (INV-59). A
    reader that begins late may have an older position: Kafka's, if any (INV-60). A twin works until
    it can have read of its successor.
    """
    lines, excused = world.history, set[str]()
    if world.ledger.counts["positions set"]:
        excused.add("INV-59")
    if may_begin_late(world):
        excused.add("INV-60")
    if world.ledger.counts["twins overlap"]:
        excused |= {"INV-20", "INV-57", "INV-60"}
    broken = [each for each in checkers.check(lines) if each.split(":")[0] not in excused]
    if broken:
        raise Violation(broken[0])
    never = checkers.never_handed_out(world.history)
    if world.plan.is_at_most_once and not world.ledger.counts["positions set"]:
        counted = world.ledger.never_handed_out(world.places())
        if never != counted:
            raise Violation(f"INV-63: {counted} records were never handed out, not {never}")


def may_begin_late(world: ClaimsWorld) -> bool:
    """Whether readers may begin late: they wait, and may know an older position."""
    return world.plan.from_start_max < 1_000 or any(
        each.kind == "coordination-cut" for each in world.plan.faults
    )


def _check_position(world: ClaimsWorld, place: TopicPartition) -> None:
    """INV-22, INV-49: the log's position is the end of the data, and nobody owns it."""
    slot = _reading(world, place).world.slots.get((GROUP, *place))
    end = world.cluster.partitions[place].end
    if slot is None or not slot.is_released:
        raise Violation(f"INV-49: all have left, and {place} is {slot}")
    if slot.position != end:
        raise Violation(f"INV-49: all have left, and {place}, which ends at {end}, is {slot}")
    done = len(world.ledger.done.get(place, ()))
    if not world.plan.is_at_most_once and done < end and not world.ledger.counts["positions set"]:
        raise Violation(f"INV-49: of {place} {done} records of {end} were processed")


# ---- the job ----------------------------------------------------------------------------------


def _check_outputs(world: ClaimsWorld, shard: int, reading: Reading) -> None:
    """INV-35 to INV-37, INV-65: one fold of the whole log says what the topics hold."""
    snapshot = newest_snapshot(world.cluster, world.plan.topic, shard, world.plan.partitions)
    if snapshot is not None:
        world.ledger.compare_state("a snapshot", snapshot)
    if any(driver.late for driver in world.drivers):
        return  # it has said so, and knows less
    own = msgspec.structs.replace(world.engine.settings, shard=shard)
    done = fold(None, reading.log, own)
    told = [each.value for each in done.outputs if each.topic == EVENTS]
    records, _ = world.cluster.partitions[f"{PREFIX}.claims.{EVENTS}", shard].read(0)
    written = [each.value for each in records]
    if any(driver.was_rebuilt for driver in world.drivers):
        # Snapshots do not have what history was told already of clocks and refusals.
        told, written = (list(filter(_is_lasting, lines)) for lines in (told, written))
    if told != written:
        at = next((n for n, (a, b) in enumerate(zip(told, written, strict=False)) if a != b), -1)
        raise Violation(
            f"INV-37: history of shard {shard} has {len(written)} lines, the log gives "
            f"{len(told)}; the first that differs is {at}"
        )
    for topic in (ASSIGNMENTS, COMMITTED):
        newest: dict[bytes, bytes] = {}
        for each in done.outputs:
            if each.topic == topic and each.value is not None:
                newest[each.key] = each.value
            elif each.topic == topic:
                newest.pop(each.key, None)
        if newest != world.cluster.newest_by_key(f"{PREFIX}.claims.{topic}", shard):
            raise Violation(f"INV-38: {topic} of shard {shard} is not as the log says")


def _is_lasting(line: bytes | None) -> bool:
    """Whether a line of history is told once, whatever was told before."""
    kind = msgspec.json.decode(line or b"{}")["type"]
    return kind != "SenderClock" and kind not in REFUSALS
