"""What must be true when a run is over. Each check names the invariant that it is about.

The history's checks (`tests.tools.checking.checkers`) need nothing but what members saw; those here
look into the topics as well.
"""

from collections import Counter, defaultdict
from typing import Any, Final

from coordlib.core.wire import api
from tests.tools.checking import checkers
from tests.tools.simulation import (
    bystanders,
    commits,
    forgeries,
    handovers,
    one_fold,
    rest,
    rules,
    set_aside,
    store_checks,
)
from tests.tools.simulation.evidence import Asked, Evidence, newest_marker
from tests.tools.simulation.kinds import CLOCK_KINDS
from tests.tools.simulation.lake import checks as lake_checks
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.program import Program
from tests.tools.simulation.teams import Team
from tests.tools.simulation.transactions import checks as copies
from tests.tools.simulation.transactions import courier_checks as carried
from tests.tools.simulation.world import (
    REPLY_PARTITIONS,
    Violation,
    World,
)

#: Answered where its group is, and not where it stands.
_BY_GROUP: Final = "TxnOffsetCommit"


def evidence_of(world: World) -> Evidence:
    """All topics as they stand now."""
    marker = newest_marker(world.cluster)
    newest = [] if marker is None else [marker.next_offsets]
    cuts = [*world.engine.cuts, *newest]
    return Evidence(world.cluster, world.plan.shards, REPLY_PARTITIONS, cuts=cuts)


def check_job(world: World) -> None:
    """INV-06, INV-07: what the job itself was seen doing wrong."""
    if world.engine.problems:
        raise Violation(world.engine.problems[0])


def check_peace(world: World) -> None:
    """INV-10, INV-28: stable, everything owned once, everybody in one generation."""
    check_job(world)
    for team in world.teams:
        _check_rest(world, team)
    if world.takes_newcomers:
        store_checks.check_peace(world)


def _check_rest(world: World, team: Team) -> None:
    programs = team.living
    owned = Counter(each for program in programs for each in program.consumer.member.assignment)
    if team.protocol == ASSIGNED:
        rest.check(world, team)
    else:
        _check_one_generation(programs)
    wanted = {topic for program in programs for topic in program.wants()}
    team.read_at_rest = frozenset(wanted)
    for program in programs:
        for each in program.consumer.member.assignment:
            if each.topic not in program.wants():
                raise Violation(f"INV-10: {program.name} owns {each}, and reads {program.wants()}")
    everything = sum(map(world.cluster.count, wanted))
    if len(owned) != everything:
        raise Violation(f"INV-10: {len(owned)} of {everything} partitions are owned")


def _check_one_generation(programs: list[Program]) -> None:
    generations = {program.consumer.member.generation for program in programs}
    if len(generations) > 1 or -1 in generations:
        states = {p.name: p.consumer.member.generation for p in programs}
        raise Violation(f"INV-28: not settled in one generation: {states}")


def check_mourned(world: World) -> None:
    """INV-29, INV-31: a member was killed in peace, and the others have its partitions in time."""
    try:
        check_peace(world)
    except Violation as late:
        raise Violation(
            f"INV-29: a dead member's partitions have no owner in time: {late}"
        ) from None
    store_checks.check_mourned(world)


def check_end(world: World) -> None:
    """Everything, once all members have left."""
    check_job(world)
    world.cluster.write_markers()
    evidence = evidence_of(world)
    if world.copying is not None:
        world.copying.read_to_the_end()
        copies.check(world.copying, evidence)
    if world.couriers is not None:
        world.couriers.read_to_the_end()
        carried.check(world.couriers, evidence)
    if world.lake is not None:
        lake_checks.check(world.lake, evidence)
    lines = [*world.history, *bystanders.forgotten(evidence), *copies.lines(world, evidence)]
    lines += carried.lines(world, evidence)
    found = checkers.check(sorted(lines, key=lambda line: line.t_ms))
    if found:
        raise Violation(found[0])
    check_ids(evidence)
    check_answers(evidence)
    check_generations(evidence)
    check_size(world, evidence)
    rules.check(world, evidence)
    set_aside.check(world, evidence)
    forgeries.check(world)
    bystanders.check(world, evidence)
    store_checks.check_end(world, evidence)
    seen = rules.Visible(world)
    for team in world.teams:
        check_team(world, team, evidence.about(team.name), seen)
    one_fold.check(world, evidence)


def check_team(world: World, team: Team, evidence: Evidence, seen: rules.Visible) -> None:
    """Everything about one group with members."""
    commits.check_committed(world, team, evidence)
    commits.check(evidence)
    check_expiries(world, evidence)
    rules.check_group(world, evidence, seen)
    handovers.check(world, evidence, seen)
    check_storm(world, evidence, team)


def check_ids(evidence: Evidence) -> None:
    """INV-16, INV-36: no member id is given twice, no event is written twice."""
    joined = Counter(event.member for event in evidence.told if event.type == "MemberJoined")
    again = [member for member, count in joined.items() if count > 1]
    if again:
        raise Violation(f"INV-16: member id {again[0]} was given {joined[again[0]]} times")
    events = Counter(event.event_id for event in evidence.told)
    twice = [event for event, count in events.items() if count > 1]
    if twice:
        raise Violation(f"INV-36: event {twice[0]} was written {events[twice[0]]} times")


def check_answers(evidence: Evidence) -> None:
    """INV-17: every request is answered once; a heartbeat not at all, or with a refusal.

    One that was written twice is one request: the parked answer goes to the newest of its records.
    """
    # Offsets of a transaction are answered by their group, behind a message to its shard.
    answered = {(a["client"], a["id"]) for a in evidence.said if a["type"] == _BY_GROUP}
    asked = (*evidence.asked, *evidence.positions)
    for each in asked:
        answers = evidence.answers.get(each.coordinate, [])
        parts = {answer.get("part", 0) for answer in answers}
        kind = type(each.request).__name__
        if len(answers) > len(parts):
            raise Violation(f"INV-17: {kind} {each.coordinate} was answered twice")
        if answers or isinstance(each.request, api.Heartbeat):
            answered.add((each.request.client, each.request.id))
    for each in asked:
        if (each.request.client, each.request.id) not in answered:
            kind = type(each.request).__name__
            raise Violation(f"INV-17: {kind} {each.coordinate} was never answered")


def check_generations(evidence: Evidence) -> None:
    """INV-11: a generation follows the one before it; a group made anew begins at one.

    A server-assigned group whose last member was made to leave is not empty before that one has
    stopped: it has the new generation already, and nobody is there to be told.
    """
    newest: dict[str, int] = {}
    living: dict[str, set[str]] = defaultdict(set)
    #: Groups that wait for nobody but former owners.
    unsaid: set[str] = set()
    emptied = {(e.group, e.shard, e.offset) for e in evidence.told if e.type == "GroupEmptied"}
    for event in evidence.told:
        if event.type == "MemberJoined":
            living[event.group].add(event.member)
        elif event.type == "MemberRemoved" and event.kind == ASSIGNED:
            living[event.group].discard(event.member)
            is_said = (event.group, event.shard, event.offset) in emptied
            if not living[event.group] and not is_said:
                newest[event.group] = newest.get(event.group, 0) + 1
                unsaid.add(event.group)
        if event.type in ("GroupCreated", "GroupDeleted"):
            newest[event.group] = 0
        elif event.type in ("GenerationStarted", "GroupEmptied"):
            before = newest.get(event.group, 0)
            is_late = event.type == "GroupEmptied" and event.group in unsaid
            unsaid.discard(event.group)
            if event.generation != before + (0 if is_late else 1):
                raise Violation(
                    f"INV-11: {event.group} went from generation {before} to {event.generation}"
                )
            newest[event.group] = event.generation


def check_size(world: World, evidence: Evidence) -> None:
    """INV-43: no generation has more members than the group takes.

    Static members that did not rejoin keep their places, as in Kafka: then it is not asked.
    """
    most = world.plan.group_size_max
    for event in evidence.told:
        if most and not world.plan.statics and event.type == "GenerationStarted":
            count = len(event.detail["members"])
            if event.group == evidence.group and count > most:
                raise Violation(
                    f"INV-43: generation {event.generation} has {count} members, {most} is the most"
                )


def check_expiries(world: World, evidence: Evidence) -> None:
    """INV-30: nobody is expelled for silence whose heartbeats stand in the log."""
    session_ms = world.plan.session_timeout_ms
    # One forward step of the brokers' clocks costs at most CAP.
    steps = any(fault.kind in CLOCK_KINDS for fault in world.plan.faults)
    cap_ms = min(session_ms, world.plan.rebalance_timeout_ms) // 5
    allowed_ms = session_ms - (cap_ms if steps else 0) - 1
    signs: dict[str, list[tuple[int, int]]] = {}
    said: set[tuple[str, str]] = set()
    for each in evidence.asked:
        member = getattr(each.request, "member", "")
        if isinstance(each.request, api.Subscribe):
            # A late one is answered, and is no sign of life (rule 12).
            key = (each.request.client, each.request.id)
            if key in said:
                continue
            said.add(key)
        answers = evidence.answers.get(each.coordinate, [])
        refused = any(a["error"] != "NONE" or _kept_nothing(each, a) for a in answers)
        if member and not refused:
            signs.setdefault(member, []).append((each.offset, each.true_ms))
    for event in evidence.told:
        if event.type != "MemberRemoved" or event.reason != "session expired":
            continue
        heard = [ms for offset, ms in signs.get(event.member, []) if offset < event.offset]
        if event.group != evidence.group or not heard:
            continue
        silent_ms = evidence.taken_ms(event.shard, event.offset) - heard[-1]
        if silent_ms < allowed_ms:
            raise Violation(
                f"INV-30: {event.member} was expelled {silent_ms} ms after it was heard; its "
                f"session is {session_ms} ms"
            )


def _kept_nothing(each: Asked, answer: dict[str, Any]) -> bool:
    """Whether a commit was refused row by row: it may be late, and is no sign of life."""
    rows = len(each.request.offsets) if isinstance(each.request, api.OffsetCommit) else 0
    return rows > 0 and len(answer.get("failed") or ()) >= rows


def check_storm(world: World, evidence: Evidence, team: Team) -> None:
    """INV-32: rebalances have causes; cooperative groups need two for each."""
    begun = sum(
        event.group == evidence.group and event.type in ("GenerationStarted", "GroupEmptied")
        for event in evidence.told
    )
    others = 0 if team is world.readers else team.perturbations
    causes = world.perturbations + others + len(team.programs)
    most = 4 * causes + 4
    if begun > most:
        raise Violation(f"INV-32: {begun} generations for {causes} perturbations")
