"""What all that happens is compared with: one reading of the whole log, record by record.

After each record of the coordination topic it is judged once more from its first record on, beside
a second reading of the rules; whoever reads the log, a consumer, a late one or the job, must have
concluded the same. What consumers begin, hand out and do is compared with it, too.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from coordlib.client.claims.claim import Claim
from coordlib.client.claims.transport import LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Judgement, Key, Slot, Verdict
from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims
from tests.tools.claims.rules import Rules
from tests.tools.simulation.claims.logs import MESSAGES, start_of
from tests.tools.simulation.claims.program import Program
from tests.tools.simulation.cluster import Cluster, Record
from tests.tools.simulation.violation import Violation

_OWNED = frozenset({Verdict.WON, Verdict.RECLAIMED, Verdict.TAKEN_OVER})


@dataclass(slots=True)
class Reading:
    """One coordination partition, read from its beginning."""

    world: World
    rules: Rules
    log: list[InputRecord] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    #: The world after each record.
    snapshots: list[bytes] = field(default_factory=list)
    #: Owners after each record: (client, epoch) of what is live.
    owners: list[dict[Key, tuple[str, int]]] = field(default_factory=list)


class ClaimsLedger:
    """Compares, and raises Violation.

    Args:
        group: whose consumers are ours; of others the log alone is compared.
        moved: called with each new position in the log: whose, of what, and where.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        group: str,
        moved: Callable[[str, TopicPartition, int], None],
    ) -> None:
        self._cluster, self._topic, self._group = cluster, topic, group
        self._moved = moved
        #: Of each coordination partition: the true time of its records.
        self.times: list[list[int]] = [[] for _ in range(partitions)]
        self.readings = [self._read(number, partitions) for number in range(partitions)]
        #: Of each partition of data: what somebody has done, and up to where without a gap.
        self.done: dict[TopicPartition, set[int]] = {}
        self.reached: dict[TopicPartition, int] = {}
        #: How often each record was handed out.
        self.handed: Counter[tuple[TopicPartition, int]] = Counter()
        #: Whether a program was told of a claim since somebody looked.
        self.has_news = False
        #: What readers have met.
        self.counts: Counter[str] = Counter()

    def _read(self, number: int, partitions: int) -> Reading:
        world = World(self._topic, number, partitions)
        reading = Reading(world, Rules(world.interval_ms, number, partitions))
        log = self._cluster.partitions[self._topic, number]
        log.appended.append(lambda: self._appended(reading, log.records[-1]))
        return reading

    # ---- the log ------------------------------------------------------------------------------

    def _appended(self, reading: Reading, record: Record) -> None:
        if record.transaction is not None:
            raise Violation(f"INV-66: a transaction of the job has written record {record.offset}")
        world = reading.world
        reading.log.append(InputRecord(MESSAGES, record.offset, record.timestamp_ms, record.value))
        judgement = world.judge(reading.log[-1])
        reading.rules.read(reading.log[-1])
        check_invariants(world, judgement)
        difference = reading.rules.difference(world)
        if difference is not None:
            raise Violation(difference)
        self.times[world.partition].append(record.true_ms)
        before_ms = reading.clocks[-1] if reading.clocks else 0
        self._count_expired(world, judgement, before_ms)
        reading.judgements.append(judgement)
        reading.clocks.append(world.clock_ms)
        reading.snapshots.append(world.snapshot())
        reading.owners.append(
            {
                key: (slot.client, slot.epoch)
                for key, slot in world.slots.items()
                if world.is_live(slot)
            }
        )
        self.counts[judgement.verdict.value] += 1
        key, before, after = judgement.key, judgement.before, judgement.after
        if key is not None and after is not None and key[0] == self._group:
            was = None if before is None else before.position
            if after.position is not None and after.position != was:
                self._moved(after.client, TopicPartition(*key[1:]), after.position)

    def _count_expired(self, world: World, judgement: Judgement, before_ms: int) -> None:
        """Claims whose time was over by this record, unless it is theirs."""
        for slot in world.slots.values():
            end_ms = slot.heard_ms + world.lifetime_ms
            is_over = not slot.is_released and before_ms < end_ms <= world.clock_ms
            self.counts["expired"] += is_over

    def end_of(self, key: Key, number: int, epoch: int) -> Judgement | None:
        """The record that has ended a claim, of its coordination partition; None: none has."""
        behind = self.readings[number].judgements[epoch + 1 :]
        return next(
            (
                each
                for each in behind
                if each.key == key
                and each.after is not None
                and (each.after.epoch != epoch or each.after.is_released)
            ),
            None,
        )

    def set_back(self, place: TopicPartition, offset: int) -> None:
        """An admin has set this position: what is behind it may be handed out again."""
        for each in [each for each in self.handed if each[0] == place and each[1] >= offset]:
            del self.handed[each]
        self.reached[place] = max(self.reached.get(place, 0), offset)
        self.counts["positions set"] += 1

    def is_paused_before(self, number: int, offset: int) -> bool:
        """Whether our group is paused by a record of this coordination partition that stands before
        an offset: who begins there does not know of it (docs/reference/limits.md, on claims)."""
        reading = self.readings[number]
        if reading.world.paused_by(self._group) is None:
            return False
        later = (claims.decode(each.value) for each in reading.log[offset:])
        return not any(
            isinstance(said, claims.ReleaseGroup) and said.group == self._group for said in later
        )

    # ---- readers ------------------------------------------------------------------------------

    def judged(self, name: str, view: LogView, judgement: Judgement) -> None:
        """INV-61, INV-62: a reader of any process has judged a record."""
        self.compare(name, view.world, judgement)

    def compare(self, name: str, world: World, judgement: Judgement) -> None:
        reading = self.readings[world.partition]
        at = world.offset
        if not world.is_late:
            self.counts["exact readers agree"] += 1
            same = judgement == reading.judgements[at] and world.clock_ms == reading.clocks[at]
            if not same:
                raise Violation(
                    f"INV-61: {name} judges record {at} as {judgement.verdict}, "
                    f"{judgement.after} at {world.clock_ms}; the log says "
                    f"{reading.judgements[at].verdict}, {reading.judgements[at].after} at "
                    f"{reading.clocks[at]}"
                )
        elif world.is_settled:
            self.counts["late readers agree"] += 1
            self._compare_late(name, world, reading.owners[at])

    def _compare_late(self, name: str, world: World, expected: dict[Key, tuple[str, int]]) -> None:
        for key in expected.keys() | world.slots.keys():
            if key[0] != self._group:
                continue
            slot = world.owner(key)
            found = None if slot is None else (slot.client, slot.epoch)
            if slot is not None and slot.is_tentative:
                self.counts["late reader is not sure"] += 1
            elif found != expected.get(key):
                raise Violation(
                    f"INV-62: for {name}, late, {key} is of {found} at {world.offset}; for all "
                    f"others of {expected.get(key)}"
                )

    def compare_state(self, name: str, world: World) -> None:
        """INV-61, INV-65: a whole state, of a batch, a snapshot or a rebuild."""
        if world.offset < 0:
            return
        reading = self.readings[world.partition]
        if world.is_late:
            if world.is_settled:
                self._compare_late(name, world, reading.owners[world.offset])
        elif world.snapshot() != reading.snapshots[world.offset]:
            raise Violation(f"INV-61: the state of {name} at {world.offset} is not as the log says")
        self.counts["states agree"] += 1

    # ---- programs -----------------------------------------------------------------------------

    def began(self, program: Program, claim: Claim) -> None:
        """INV-46, INV-49: a consumer begins where the log has put it, and skips nothing."""
        self.has_news = True
        place, world = claim.place, program.transport.view_of(claim.place.topic).world
        won = self.readings[world.partition].judgements[claim.epoch]
        slot = won.after
        mine = (program.client, program.instance, claim.epoch)
        if slot is None or won.verdict not in _OWNED or _identity(slot) != mine:
            raise Violation(
                f"INV-46: {program.name} works on {program.topics} by record {claim.epoch}, which "
                f"was {won.verdict.value}: {slot}"
            )
        start = claim.position
        log_start = start_of(self._cluster.partitions[place])
        self._check_start(program, claim, slot, world.is_late)
        reached = max(self.reached.get(place, 0), log_start)
        if not program.options.is_at_most_once and start > reached:
            raise Violation(
                f"INV-49: {program.name} begins {place} at {start}, and nobody has processed "
                f"{reached}"
            )

    def _check_start(self, program: Program, claim: Claim, slot: Slot, is_late: bool) -> None:
        if slot.position is not None and not is_late and claim.position != slot.position:
            raise Violation(
                f"INV-49: {program.name} begins {claim.place} at {claim.position}, and the log at "
                f"its win said {slot.position}"
            )

    def handed_out(self, program: Program, place: TopicPartition, offset: int) -> None:
        """INV-63."""
        self.handed[place, offset] += 1
        is_again = self.handed[place, offset] > 1
        if program.options.is_at_most_once and is_again:
            raise Violation(
                f"INV-63: record {offset} of {place} is handed out once more, to {program.name}"
            )

    def acted(self, program: Program, place: TopicPartition, offset: int) -> None:
        done = self.done.setdefault(place, set())
        done.add(offset)
        reached = self.reached.get(place, 0)
        while reached in done:
            reached += 1
        self.reached[place] = reached

    def never_handed_out(self, places: list[TopicPartition]) -> int:
        """At most once: how many records of these logs nobody was given."""
        given = Counter(place for place, _ in self.handed)
        return sum(self._cluster.partitions[place].end - given[place] for place in places)


def _identity(slot: Slot) -> tuple[str, str, int]:
    return slot.client, slot.instance[:8], slot.epoch
