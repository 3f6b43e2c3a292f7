"""Time-and-fencing, held against what a run has left: deadlines, ticks, signs of life.

None of it asks the code that is checked what it thinks: true time, the order of the log and the
moment at which a transaction became visible are the simulator's own.
"""

from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate

from coordlib.core.wire import api, codec
from tests.tools.simulation.cluster import Place, Record, Transaction
from tests.tools.simulation.evidence import Evidence, Told
from tests.tools.simulation.kinds import CLOCK_KINDS, MEMBER_KINDS
from tests.tools.simulation.plan import CLASSIC
from tests.tools.simulation.signed_worlds import believes_forgeries
from tests.tools.simulation.signing import genuine
from tests.tools.simulation.world import (
    PREFIX,
    REPLY_PARTITIONS,
    Violation,
    World,
)

#: A turn of the ticks, the way to the log, and one tick that is still under way.
PROMPT_MS = 400
#: Why somebody was removed -> what he was asked.
QUESTIONS = {
    "did not rejoin in time": "RebalanceStarted",
    "did not sync in time": "GenerationStarted",
}
#: The same in a server-assigned group, where the question is one member's own.
NOT_LET_GO = "did not let go in time"


def check(world: World, evidence: Evidence) -> None:
    """Everything here that concerns all groups; the first that is broken is raised."""
    seen = Visible(world)
    check_order_of_deadlines(evidence)
    check_first_joins(evidence)
    for shard in range(world.plan.shards):
        check_published(world, evidence, seen, shard)


def check_group(world: World, evidence: Evidence, seen: "Visible") -> None:
    """Everything here that concerns one group with members."""
    check_heartbeats(evidence)
    check_reactions(world, evidence, seen)
    check_sessions(world, evidence, seen)
    for shard in range(world.plan.shards):
        check_owed(world, evidence, seen, shard)


class Visible:
    """When the outputs of each transaction could be read, all of them."""

    def __init__(self, world: World) -> None:
        partitions = world.cluster.partitions
        self._ms: dict[Transaction, int] = {}
        # The others are compacted, markers and all.
        shards = [(f"{PREFIX}.events", shard) for shard in range(world.plan.shards)]
        replies = [(f"{PREFIX}.responses", reply) for reply in range(REPLY_PARTITIONS)]
        for place in [*shards, *replies]:
            for record in partitions[place].records:
                if record.is_marker and record.transaction is not None:
                    before_ms = self._ms.get(record.transaction, 0)
                    self._ms[record.transaction] = max(before_ms, record.true_ms)

    def since_ms(self, record: Record) -> int:
        assert record.transaction is not None
        return self._ms[record.transaction]


class Ticks:
    """The ticks that drivers told a shard: (true time, what it covers), in order.

    Of before, when nothing had to be signed, all of them.
    """

    def __init__(self, world: World, shard: int) -> None:
        self.rows: list[tuple[int, int]] = []
        #: Somebody else may have written one that covers what nobody could read, and it counted.
        self.are_forged = believes_forgeries(world.plan)
        place: Place = (f"{PREFIX}.requests", shard)
        told = genuine(world, shard)
        for record in world.cluster.partitions[place].records:
            request = codec.decode_request(record.value)
            if isinstance(request, api.Tick) and record.offset in told:
                if request.published >= record.offset:
                    self.are_forged = True
                self.rows.append((record.true_ms, min(request.published, record.offset - 1)))


def clock_steps_ms(world: World) -> int:
    """By how much the steps of the brokers' clocks may shorten any time: CAP, for one of them."""
    plan = world.plan
    has_steps = any(fault.kind in CLOCK_KINDS for fault in plan.faults)
    return min(plan.session_timeout_ms, plan.rebalance_timeout_ms) // 5 if has_steps else 0


def check_heartbeats(evidence: Evidence) -> None:
    """INV-18: silence means that a heartbeat was accepted, so a wrong one is answered.

    Members of a server-assigned group may name any generation (rule 13), and must be members.
    """
    newest = {
        (event.shard, event.offset): event.generation
        for event in evidence.told
        if event.group == evidence.group and event.type in ("GenerationStarted", "GroupEmptied")
    }
    generation, since, members = 0, sorted(newest), Lives(evidence)
    for each in evidence.asked:
        request = each.request
        if request.group != evidence.group or not isinstance(request, api.Heartbeat):
            continue
        while since and since[0] <= (each.shard, each.offset):
            generation = newest[since.pop(0)]
        is_accepted = each.coordinate not in evidence.answers
        if evidence.is_assigned(each):
            if is_accepted and not members.has(request.member, each.offset):
                raise Violation(
                    f"INV-18: a heartbeat of {request.member} was taken, which is no member "
                    f"({each.coordinate})"
                )
        elif is_accepted and request.generation != generation:
            raise Violation(
                f"INV-18: a heartbeat of generation {request.generation} was taken in generation "
                f"{generation} ({each.coordinate})"
            )


class Lives:
    """From which record to which each member of the group was one."""

    def __init__(self, evidence: Evidence) -> None:
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        for event in evidence.told:
            if event.group == evidence.group and event.type == "MemberJoined":
                self._first[event.member] = event.offset
            elif event.group == evidence.group and event.type in ("MemberRemoved", "MemberFenced"):
                self._last[event.member] = event.offset

    def has(self, member: str, offset: int) -> bool:
        first, last = self._first.get(member), self._last.get(member)
        return first is not None and first < offset and (last is None or offset < last)


def check_order_of_deadlines(evidence: Evidence) -> None:
    """INV-33, rule 2: what is due at a record fires before that record is judged.

    A group that one of these breaks is set aside in the name of the record, and the others go on.
    """
    before: Told | None = None
    for event in evidence.told:
        if event.type == "GroupQuarantined":
            continue
        is_same = before is not None and (before.shard, before.offset) == (
            event.shard,
            event.offset,
        )
        is_late = is_same and before is not None and not before.cause.startswith("deadline:")
        if is_late and event.cause.startswith("deadline:"):
            raise Violation(f"INV-33: {event.cause} fired after r{event.shard}-{event.offset}")
        before = event


def check_first_joins(evidence: Evidence) -> None:
    """INV-16, F-01: one first JoinGroup makes one member, however often it comes."""
    asked = {(each.shard, each.offset): each.request for each in evidence.asked}
    living: dict[tuple[str, str], str] = {}
    for event in evidence.told:
        if event.type in ("MemberRemoved", "MemberFenced"):
            living = {key: member for key, member in living.items() if member != event.member}
        request = asked.get((event.shard, event.offset))
        if (
            event.type == "MemberJoined"
            and isinstance(request, api.JoinGroup | api.Subscribe)
            and not request.member
        ):
            key = (request.client, request.id)
            if key in living:
                raise Violation(f"INV-16: {living[key]} joined again as {event.member}")
            living[key] = event.member


def check_reactions(world: World, evidence: Evidence, seen: Visible) -> None:
    """Rule 3, INV-30: nobody is put out for not doing what he had no time to hear of."""
    least_ms = world.plan.rebalance_timeout_ms - clock_steps_ms(world) - 1
    forged = {s for s in range(world.plan.shards) if Ticks(world, s).are_forged}
    asked_ms: dict[str, int] = {}
    for event in evidence.told:
        if event.group != evidence.group or event.shard in forged:
            continue
        asked_ms[event.type] = seen.since_ms(event.record)
        question = QUESTIONS.get(event.reason) if event.type == "MemberRemoved" else None
        if question is None:
            continue
        waited_ms = evidence.taken_ms(event.shard, event.offset) - asked_ms[question]
        if waited_ms < least_ms:
            raise Violation(
                f"INV-30: {event.member} {event.reason}: {waited_ms} ms after it could hear, its "
                f"rebalance timeout is {world.plan.rebalance_timeout_ms} ms"
            )


def check_sessions(world: World, evidence: Evidence, seen: Visible) -> None:
    """Rule 3, INV-30: a session begins when the answer to a join or sync can be read."""
    least_ms = world.plan.session_timeout_ms - clock_steps_ms(world) - 1
    forged = {s for s in range(world.plan.shards) if Ticks(world, s).are_forged}
    #: A late duplicate is answered once more, and begins nothing.
    first_ms: dict[tuple[str, str, str], int] = {}
    for each in evidence.asked:
        # Of Subscribes the first: a later one is a sign of life, as a heartbeat is.
        is_first = isinstance(each.request, api.Subscribe) and not each.request.member
        if isinstance(each.request, api.JoinGroup | api.SyncGroup) or is_first:
            for answer, record in evidence.answered(each.coordinate):
                member = str(answer.get("member") or getattr(each.request, "member", ""))
                # An error beside an assignment is the leader's: the request was accepted.
                if answer["error"] == "NONE" or "assignment" in answer:
                    key = (member, each.request.client, each.request.id)
                    first_ms.setdefault(key, seen.since_ms(record))
    heard_ms: dict[str, int] = defaultdict(int)
    for (member, _, _), since_ms in first_ms.items():
        heard_ms[member] = max(heard_ms[member], since_ms)
    for event in evidence.told:
        is_expiry = event.type == "MemberRemoved" and event.reason == "session expired"
        if not is_expiry or event.group != evidence.group or event.shard in forged:
            continue
        since_ms = evidence.taken_ms(event.shard, event.offset) - heard_ms[event.member]
        if since_ms < least_ms:
            raise Violation(
                f"INV-30: {event.member} was expelled {since_ms} ms after it could read its "
                f"answer; its session is {world.plan.session_timeout_ms} ms"
            )


def check_published(world: World, evidence: Evidence, seen: Visible, shard: int) -> None:
    """Rule 5: a tick covers only what could be read when it was written."""
    ticks = Ticks(world, shard)
    if ticks.are_forged:
        return
    # Lines about the offsets topic are in no order with the requests, and no tick covers them.
    events = [event for event in evidence.told if event.shard == shard and event.offset >= 0]
    offsets = [event.offset for event in events]
    visible_ms = list(accumulate((seen.since_ms(event.record) for event in events), max))
    for at_ms, covers in ticks.rows:
        known = bisect_right(offsets, covers)
        if known and visible_ms[known - 1] > at_ms:
            raise Violation(
                f"rule 5: a tick of {at_ms} ms covers {covers} of shard {shard}, which could be "
                f"read at {visible_ms[known - 1]} ms"
            )


def check_owed(world: World, evidence: Evidence, seen: Visible, shard: int) -> None:
    """Rule 6: what somebody must react to is covered at once, not when the shard falls silent.

    Asked only of runs in which nothing but members is disturbed.
    """
    if not {fault.kind for fault in world.plan.faults} <= MEMBER_KINDS:
        return
    ticks, events = Ticks(world, shard), [each for each in evidence.told if each.shard == shard]
    ours = [each for each in events if each.group == evidence.group]
    emptied = [each.offset for each in ours if each.type == "GroupEmptied"]
    for event in ours:
        if event.type != "GenerationStarted" or event.kind != CLASSIC:
            continue
        first = next((row for row in ticks.rows if row[1] >= event.offset), None)
        is_over = any(offset > event.offset for offset in emptied)
        if first is None and not is_over:
            raise Violation(f"rule 6: no tick covers generation {event.generation}")
        if first is None or any(event.offset < offset <= first[1] for offset in emptied):
            continue
        # A batch that came meanwhile must be visible, too.
        latest_ms = max(seen.since_ms(e.record) for e in events if e.offset <= first[1])
        if first[0] - latest_ms > PROMPT_MS + world.plan.marker_delay_ms:
            raise Violation(
                f"rule 6: generation {event.generation} could be read at {latest_ms} ms, and a "
                f"tick covers it at {first[0]} ms"
            )
