"""Held against what a run has left: positions, administrators, crowds, and what they may expect."""

from collections.abc import Iterator
from typing import Any, Final

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.demo.history import Happened
from tests.tools.core import config_of
from tests.tools.simulation import overdue
from tests.tools.simulation.crowds import CROWD
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.inspection import ANSWERS_BYTES_MAX
from tests.tools.simulation.kinds import CLOCK_KINDS, COMPANY_KINDS, CROWD_KINDS, MEMBER_KINDS
from tests.tools.simulation.log_clock import LogClock, of_positions, of_requests
from tests.tools.simulation.rules import Visible
from tests.tools.simulation.world import Violation, World

THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"
#: Lines of commits that were taken; the second kind waits for a decision.
KEPT: Final = ("OffsetsCommitted", "OffsetsPending")
#: Lines of history that say that offsets are no more.
FORGOTTEN: Final = ("OffsetsDeleted", "OffsetsExpired")
#: What somebody has subscribed to for so long, a group has heard of.
KNOWN_MS: Final = 20_000
#: Between two refusals of one who waited in between, for a place that was free meanwhile.
TURN_MS: Final = 15_000
#: Of the shortest pause that a throttled client makes (its first back-off is 200 ms).
PAUSE_MS: Final = 150
#: What the clock of a shard and true time may differ by in one step, if no broker's clock jumps.
SKEW_MS: Final = 50
#: How much of its rate a shard gives away at once.
BURST_MS: Final = 5_000
MS_PER_S: Final = 1_000


def check(world: World, evidence: Evidence) -> None:
    """Everything here; the first that is broken is raised."""
    check_sizes(world, evidence)
    check_creations(evidence)
    if not any(fault.kind in CLOCK_KINDS for fault in world.plan.faults):
        check_retention(world, evidence)
    overdue.check(world, evidence)
    check_rate(world, evidence)
    check_turns(world, evidence)
    check_pauses(world, evidence)
    check_described(evidence)


def check_sizes(world: World, evidence: Evidence) -> None:
    """INV-68: what one request is answered with is bounded, whatever it asks for."""
    most = ANSWERS_BYTES_MAX // world.plan.sizes
    for each in (*evidence.asked, *evidence.positions):
        answers = evidence.answered(each.coordinate)
        size = sum(len(record.value or b"") for _, record in answers)
        if size > most:
            kind = type(each.request).__name__
            raise Violation(
                f"INV-68: {each.coordinate}, a {kind}, has {size} bytes of answers; {most} is much"
            )


def check_creations(evidence: Evidence) -> None:
    """INV-24: who is refused makes no group: the first commit of one was kept."""
    kept = {(e.group, e.cause) for e in evidence.told if e.type in KEPT}
    for event in evidence.told:
        is_by_commit = event.type == "GroupCreated" and event.reason == "first commit"
        if is_by_commit and (event.group, event.cause) not in kept:
            raise Violation(f"INV-24: {event.group} was made by {event.cause}, which kept nothing")


# ---- retention ----------------------------------------------------------------------------------


def check_retention(world: World, evidence: Evidence) -> None:
    """INV-26: an offset expires when it is old, and is not forgotten while its topic is read."""
    committed_ms: dict[tuple[str, str, int], int] = {}
    living: dict[str, dict[str, int]] = {}
    true_ms = {each.coordinate: each.true_ms for each in evidence.asked}
    true_ms |= {each.coordinate: evidence.clock_stood_ms(each) for each in evidence.positions}
    for event in evidence.told:
        if event.type == "MemberJoined":
            living.setdefault(event.group, {})[event.member] = event.record.true_ms
        elif event.type in ("MemberRemoved", "MemberFenced"):
            living.get(event.group, {}).pop(event.member, None)
        elif event.type == "OffsetsCommitted":
            for row in event.detail["offsets"]:
                place = (event.group, row["topic"], row["partition"])
                decided_ms = evidence.taken_ms(event.shard, event.offset)
                committed_ms[place] = true_ms.get(event.cause, decided_ms)
        elif event.type in FORGOTTEN:
            now_ms = evidence.taken_ms(event.shard, event.offset)
            if event.type == "OffsetsExpired":
                _check_expired(world, event, now_ms, committed_ms)
            _check_unread(world, event, now_ms, living.get(event.group, {}))


def _check_expired(
    world: World, event: Told, now_ms: int, committed_ms: dict[tuple[str, str, int], int]
) -> None:
    for row in event.detail["offsets"]:
        kept_ms = now_ms - committed_ms.get((event.group, row["topic"], row["partition"]), 0)
        if kept_ms < world.plan.retention_ms - 2 * world.plan.broker_skew_ms - SKEW_MS:
            raise Violation(
                f"INV-26: an offset of {event.group} expired {kept_ms} ms after its commit; "
                f"retention is {world.plan.retention_ms} ms"
            )


def _check_unread(world: World, event: Told, now_ms: int, living: dict[str, int]) -> None:
    programs = {each.name: each for team in world.teams for each in team.programs}
    gone = {row["topic"] for row in event.detail["offsets"]}
    for member, joined_ms in living.items():
        program = programs.get(member.split("-", 1)[0])
        if program is None or now_ms - joined_ms < KNOWN_MS:
            continue
        since_ms, wish = program.wishes[-1]
        if now_ms - since_ms >= KNOWN_MS and set(wish.among(gone)) - world.cluster.hidden:
            raise Violation(
                f"INV-26: an offset of {event.group} is forgotten, and {member} reads its topic"
            )


def forgotten(evidence: Evidence) -> Iterator[Happened]:
    """What the members' history must know: what a group is to forget, its generations too."""
    for event in evidence.told:
        if event.type == "GroupDeleted":
            yield Happened(event.record.true_ms, "deleted", group=event.group)
        if event.type in FORGOTTEN:
            rows = event.detail["offsets"]
            yield Happened(
                event.record.true_ms,
                "rewound",
                group=event.group,
                partitions=tuple(f"{row['topic']}-{row['partition']}" for row in rows),
                offset=0,
            )


# ---- crowds -------------------------------------------------------------------------------------


def check_rate(world: World, evidence: Evidence) -> None:
    """INV-31: a shard makes new groups at the rate at most, beside a burst.

    By the timestamps of the log alone: those of requests and of `coord.offsets` have a rate each.
    What was booked is forgotten with a checkpoint, so each of them may begin with a burst.
    """
    settings = config_of(world.engine.settings)
    burst_ms, rate = BURST_MS * max(1, world.checkpoints), settings.new_groups_per_second_max
    for shard in range(world.plan.shards):
        made: dict[str, list[int]] = {REQUESTS: [], COMMITS: []}
        for event in evidence.told:
            if event.shard == shard and event.type == "GroupCreated":
                made[event.cause[0]].append(int(event.cause.rsplit("-", 1)[1]))
        for topic, clock in ((REQUESTS, of_requests), (COMMITS, of_positions)):
            _check_rate_of(shard, topic, made[topic], clock(evidence, shard), burst_ms, rate)


def _check_rate_of(
    shard: int, topic: str, made: list[int], clock: LogClock, burst_ms: int, rate: int
) -> None:
    """However long the stretch: none has more than its time and one burst allow."""
    booked_ms, before = 0.0, 0
    for number, at in enumerate(made):
        # As much is booked at the most as is left, and one slice more.
        booked_ms = max(booked_ms - clock.most_ms(before, at), 0) + MS_PER_S / rate
        if booked_ms > burst_ms + 1:
            raise Violation(
                f"INV-31: {topic}{shard}-{at} makes group {number + 1} of shard {shard}, so many "
                f"that {booked_ms:.0f} ms are booked at {rate} each second; {burst_ms} ms may be"
            )
        before = at


def check_turns(world: World, evidence: Evidence) -> None:
    """INV-31: who waits for a new group's turn gets it when there are few others.

    Asked of runs in which the job, the brokers and their clocks are left alone.
    """
    calm = MEMBER_KINDS | COMPANY_KINDS.keys() | CROWD_KINDS.keys()
    if not {fault.kind for fault in world.plan.faults} <= calm - {"aside-and-rebuilt"}:
        return
    made_ms = [
        (event.shard, event.record.true_ms)
        for event in evidence.told
        if event.type == "GroupCreated"
    ]
    refused_ms: dict[str, int] = {}
    for each in (*evidence.asked, *evidence.positions):
        group = each.request.group
        if not each.request.client.startswith(f"{CROWD}-"):
            continue
        if not _is_throttled(evidence, each):
            continue
        since_ms = refused_ms.setdefault(group, each.true_ms)
        waited_ms = each.true_ms - since_ms
        others = sum(s == each.shard and since_ms < at <= each.true_ms for s, at in made_ms)
        if waited_ms >= TURN_MS and others * 3_000 < waited_ms * world.plan.new_groups_per_second:
            raise Violation(
                f"INV-31: {group} is refused for {waited_ms} ms, in which {others} others were made"
            )


def _is_throttled(evidence: Evidence, each: Asked) -> bool:
    return any(answer["error"] == THROTTLED for answer in evidence.answers.get(each.coordinate, ()))


def check_pauses(world: World, evidence: Evidence) -> None:
    """Who is told to come later does not come at once: a crowd must thin out."""
    seen = Visible(world)
    names = {program.name for team in world.teams for program in team.programs}
    told_ms: dict[tuple[str, str], int] = {}
    for each in evidence.asked:
        if not isinstance(each.request, api.JoinGroup | api.Subscribe):
            continue
        if each.request.client not in names:
            continue
        key = (each.request.client, type(each.request).__name__)
        since_ms = told_ms.pop(key, None)
        if since_ms is not None and 0 <= each.true_ms - since_ms < PAUSE_MS:
            raise Violation(
                f"INV-31: {each.request.client} was throttled at {since_ms} ms and asks again at "
                f"{each.true_ms} ms"
            )
        for answer, record in evidence.answered(each.coordinate):
            if answer["error"] == THROTTLED:
                told_ms[key] = seen.since_ms(record)


# ---- administrators -----------------------------------------------------------------------------


def check_described(evidence: Evidence) -> None:
    """INV-18: who is told of a group is told of its members, by the history up to there."""
    lines: dict[str, list[Told]] = {}
    for event in evidence.told:
        is_membership = event.type in ("MemberJoined", "MemberRemoved", "MemberFenced")
        if is_membership and event.offset >= 0:
            lines.setdefault(event.group, []).append(event)
    for each in evidence.asked:
        if isinstance(each.request, api.DescribeGroup):
            for answer in evidence.answers.get(each.coordinate, ()):
                _check_description(each, answer, lines.get(each.request.group, []))


def _check_description(each: Asked, answer: dict[str, Any], lines: list[Told]) -> None:
    if answer["error"] != "NONE" or "members" not in answer:
        return
    living: dict[str, None] = {}
    for event in lines:
        if event.offset > each.offset:
            break
        if event.type == "MemberJoined":
            living[event.member] = None
        else:
            living.pop(event.member, None)
    told = {row["member"] for row in answer["members"]}
    if told != living.keys():
        raise Violation(
            f"INV-18: {each.coordinate} was told of {sorted(told)}; members are {sorted(living)}"
        )
