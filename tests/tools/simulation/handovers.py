"""Server-assigned groups, held against what a run has left: who had what, since when, and why not.

Nothing here asks the core: who owns what is read from the history and from what members were told,
record by record, in the order of the log.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from coordlib.core.wire import api
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.kinds import MEMBER_KINDS
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.rules import NOT_LET_GO, Ticks, Visible, clock_steps_ms
from tests.tools.simulation.world import Violation, World

Spot = tuple[str, int]


def check(world: World, evidence: Evidence, seen: Visible | None = None) -> None:
    """Everything here; the first that is broken is raised."""
    if not any(event.kind == ASSIGNED and event.group == evidence.group for event in evidence.told):
        return
    check_owners(evidence)
    check_pictures(evidence)
    check_commits(evidence)
    check_time_to_let_go(world, evidence, seen or Visible(world))


# ---- who owns what ------------------------------------------------------------------------------


class Demanded(NamedTuple):
    """What a member was asked for by one record."""

    member: str
    cause: int
    spots: frozenset[Spot]


@dataclass
class Holders:
    """Who has what, after each record of the log."""

    owned: dict[str, frozenset[Spot]] = field(default_factory=dict)
    demands: dict[tuple[str, int], Demanded] = field(default_factory=dict)

    def take(self, event: Told) -> None:
        """One line of history."""
        member, detail = event.member, event.detail
        if event.type == "MemberJoined":
            self.owned[member] = frozenset()
        elif event.type == "AssignmentIssued":
            self.owned[member] = _spots(detail["partitions"])
        elif event.type == "ReleaseDemanded":
            demand = Demanded(member, detail["cause"], _spots(detail["partitions"]))
            self.demands[(member, demand.cause)] = demand
        elif event.type == "MemberRemoved":
            self.owned.pop(member, None)
            self.demands = {key: d for key, d in self.demands.items() if key[0] != member}


def _spots(partitions: dict[str, list[int]]) -> frozenset[Spot]:
    return frozenset((topic, each) for topic, some in partitions.items() for each in some)


def steps(evidence: Evidence) -> Iterator[tuple[Holders, int, list[Told]]]:
    """Who had what before a record, where it stands, and the lines of history that it caused."""
    holders = Holders()
    # Lines about the offsets topic are in no order with the requests.
    ours = [e for e in evidence.told if e.group == evidence.group and e.offset >= 0]
    lines = [event for event in ours if event.kind == ASSIGNED]
    for offset, some in groupby(lines, key=lambda event: event.offset):
        events = list(some)
        yield holders, offset, events
        for event in events:
            holders.take(event)


def check_owners(evidence: Evidence) -> None:
    """INV-09, INV-57: one owner of each partition, and none loses one but by its own word.

    Its word is a Release that names the demand, or that it leaves; or it is out of the group.
    """
    ours = [each for each in evidence.asked if each.request.group == evidence.group]
    words = {each.offset: each.request for each in ours}
    for holders, offset, events in steps(evidence):
        before = dict(holders.owned)
        gone = {event.member for event in events if event.type == "MemberRemoved"}
        after = before | {
            event.member: _spots(event.detail["partitions"])
            for event in events
            if event.type == "AssignmentIssued"
        }
        _one_each({member: spots for member, spots in after.items() if member not in gone}, offset)
        word = words.get(offset)
        for member, had in before.items():
            lost = had - after[member]
            if lost and member not in gone:
                named = _named_by(word, member, holders)
                if not lost <= named:
                    raise Violation(
                        f"INV-57: r{offset} takes {sorted(lost - named)} from {member}, which has "
                        "released nothing of that"
                    )


def _named_by(word: api.Request | None, member: str, holders: Holders) -> frozenset[Spot]:
    if isinstance(word, api.Release) and word.member == member:
        demand = holders.demands.get((member, word.cause))
        return demand.spots if demand is not None else frozenset()
    return frozenset()


def _one_each(owned: dict[str, frozenset[Spot]], offset: int) -> None:
    owners: dict[Spot, str] = {}
    for member, spots in owned.items():
        for spot in spots:
            if owners.setdefault(spot, member) != member:
                raise Violation(
                    f"INV-09: {owners[spot]} and {member} were both given {spot} by r{offset}"
                )


# ---- what members are told ----------------------------------------------------------------------


class Picture(NamedTuple):
    """All that a member was told to hold."""

    coordinate: int
    member: str
    fences: dict[Spot, int]
    demands: dict[int, frozenset[Spot]]
    is_notice: bool


def pictures(evidence: Evidence) -> list[Picture]:
    """Answers to Subscribe, and notices, in the order in which they were made."""
    found: list[tuple[int, int, Picture]] = []
    for number, value in enumerate(evidence.said):
        is_notice = value["type"] == "AssignmentChanged"
        is_answer = value["type"] == "Subscribe" and value.get("error") == "NONE"
        if (is_notice or is_answer) and value["group"] == evidence.group:
            coordinate = int(value["cause"].rsplit("-", 1)[1])
            found.append((coordinate, number, _picture(coordinate, value, is_notice)))
    return [picture for _, _, picture in sorted(found, key=lambda row: row[:2])]


def _picture(coordinate: int, value: dict[str, Any], is_notice: bool) -> Picture:
    fences = {
        (row["topic"], each): row["fence"]
        for row in value.get("partitions") or ()
        for each in row["partitions"]
    }
    demands = {
        row["cause"]: frozenset(
            (part["topic"], each) for part in row["partitions"] for each in part["partitions"]
        )
        for row in value.get("release") or ()
    }
    return Picture(coordinate, value["member"], fences, demands, is_notice)


def check_pictures(evidence: Evidence) -> None:
    """INV-20: fences rise with every owner. INV-57: a demand stands. Rule 13: no idle notices."""
    highest: dict[Spot, tuple[int, str]] = {}
    newest: dict[str, Picture] = {}
    demanded: dict[tuple[str, Spot], int] = {}
    # A record may give by a deadline, and take away at once from who says in it that it has left.
    left = {(e.member, e.offset) for e in evidence.told if e.type == "MemberRemoved"}
    for picture in pictures(evidence):
        for spot, fence in picture.fences.items():
            before, owner = highest.get(spot, (-1, picture.member))
            is_shared = fence == before and owner != picture.member
            if fence < before or (is_shared and (owner, fence) not in left):
                raise Violation(
                    f"INV-20: {picture.member} has {spot} with fence {fence}, and {owner} had it "
                    f"with {before} (r{picture.coordinate})"
                )
            if fence <= demanded.get((picture.member, spot), -1):
                raise Violation(
                    f"INV-57: {picture.member} was asked to let go of {spot}, and may keep it "
                    f"with fence {fence} (r{picture.coordinate})"
                )
            highest[spot] = (fence, picture.member)
        for spot in (each for some in picture.demands.values() for each in some):
            if spot in highest and highest[spot][1] == picture.member:
                demanded[(picture.member, spot)] = highest[spot][0]
        _has_news(picture, newest.get(picture.member))
        newest[picture.member] = picture


def _has_news(picture: Picture, before: Picture | None) -> None:
    if not picture.is_notice or before is None:
        return
    is_more = any(before.fences.get(spot) != fence for spot, fence in picture.fences.items())
    if not is_more and picture.demands.keys() <= before.demands.keys():
        raise Violation(
            f"INV-32: {picture.member} was told at r{picture.coordinate} what it knew already"
        )


# ---- commits ------------------------------------------------------------------------------------


def check_commits(evidence: Evidence) -> None:
    """INV-18: an offset is taken from the partition's owner only, and until it has let go."""
    offsets: list[int] = []
    owned: list[dict[str, frozenset[Spot]]] = []
    for holders, offset, events in steps(evidence):
        offsets.append(offset)
        now = Holders(dict(holders.owned))
        # A deadline that falls before the record gives and takes before it is judged.
        for event in (e for e in events if e.cause.startswith("deadline:")):
            now.take(event)
        owned.append(dict(now.owned))
        for event in (e for e in events if not e.cause.startswith("deadline:")):
            now.take(event)
        owned.append(now.owned)
    for each in evidence.asked:
        request = each.request
        if request.group != evidence.group or not isinstance(
            request, api.OffsetCommit | api.Release
        ):
            continue
        if not evidence.is_assigned(each) or not request.member:
            continue
        number = bisect_right(offsets, each.offset) - 1
        is_same = number >= 0 and offsets[number] == each.offset
        at = 2 * number + (0 if is_same else 1)
        owners = owned[at] if at >= 0 else {}
        if not owners and isinstance(request, api.OffsetCommit) and request.generation < 0:
            continue  # nobody is in the group, and whose name it gives is not looked at
        has = owners.get(request.member, frozenset())
        for spot in taken(each, evidence):
            if spot not in has:
                raise Violation(
                    f"INV-18: {each.coordinate} commits {spot} for {request.member}, which does "
                    "not own it"
                )


def taken(each: Asked, evidence: Evidence) -> Iterable[Spot]:
    """The rows of a commit, or of a Release, that were not refused."""
    request = each.request
    if not isinstance(request, api.OffsetCommit | api.Release):
        return ()
    answers = evidence.answers.get(each.coordinate, [])
    if not answers or answers[0]["error"] != "NONE":
        return ()
    failed = {(row["topic"], row["partition"]) for row in answers[0].get("failed") or ()}
    rows = ((row.topic, row.partition) for row in request.offsets)
    return [spot for spot in rows if spot not in failed]


# ---- time ---------------------------------------------------------------------------------------


def check_time_to_let_go(world: World, evidence: Evidence, seen: Visible) -> None:
    """Rule 3, INV-30: who must let go has its rebalance timeout. INV-29: and no more than that."""
    plan = world.plan
    least_ms = plan.rebalance_timeout_ms - clock_steps_ms(world) - 1
    is_calm = {fault.kind for fault in plan.faults} <= MEMBER_KINDS
    forged = {s for s in range(plan.shards) if Ticks(world, s).are_forged}
    open_ms: dict[tuple[str, int], int] = {}
    met: dict[tuple[str, int], int] = {}
    for each in evidence.asked:
        if isinstance(each.request, api.Release) and _is_taken(each, evidence):
            met.setdefault((each.request.member, each.request.cause), each.offset)
    for event in evidence.told:
        if event.group != evidence.group or event.kind != ASSIGNED or event.shard in forged:
            continue
        key = (event.member, event.detail.get("cause", -1))
        if event.type == "ReleaseDemanded":
            open_ms[key] = seen.since_ms(event.record)
        elif event.type == "MemberRemoved" and event.reason == NOT_LET_GO:
            asked = [
                at_ms
                for (name, cause), at_ms in open_ms.items()
                if name == event.member and met.get((name, cause), event.offset) >= event.offset
            ]
            waited_ms = evidence.taken_ms(event.shard, event.offset) - min(asked, default=0)
            if not asked or waited_ms < least_ms:
                raise Violation(
                    f"INV-30: {event.member} {event.reason}: {waited_ms} ms after it could hear, "
                    f"its rebalance timeout is {plan.rebalance_timeout_ms} ms"
                )
    if is_calm and not forged:
        _check_patience(world, evidence, open_ms)


def _is_taken(each: Asked, evidence: Evidence) -> bool:
    """Not so while its group was set aside: the member must say it again."""
    answers = evidence.answers.get(each.coordinate, [])
    return all(answer["error"] == "NONE" for answer in answers)


def patience_ms(world: World) -> int:
    """RT + CAP/2 + 3D + V + 2L, and a tick that is still under way: by when it is out."""
    plan = world.plan
    cap_ms = min(plan.session_timeout_ms, plan.rebalance_timeout_ms) // 5
    longest_batch_ms = 3 * plan.batch_ms
    return (
        plan.rebalance_timeout_ms
        + cap_ms // 2
        + 3 * longest_batch_ms
        + plan.marker_delay_ms
        + 2 * plan.latency_ms
        + 1_000
    )


def _check_patience(world: World, evidence: Evidence, open_ms: dict[tuple[str, int], int]) -> None:
    """Of runs in which members only are disturbed: a demand is met, or its member is out."""
    met_ms: dict[tuple[str, int], int] = {}
    for each in evidence.asked:
        if isinstance(each.request, api.Release):
            met_ms.setdefault((each.request.member, each.request.cause), each.true_ms)
    out_ms = {
        event.member: evidence.taken_ms(event.shard, event.offset)
        for event in evidence.told
        if event.type == "MemberRemoved" and event.offset >= 0
    }
    for key, asked_ms in open_ms.items():
        now_ms = world.scheduler.now_ms
        end_ms = min(met_ms.get(key, now_ms), out_ms.get(key[0], now_ms))
        if end_ms - asked_ms > patience_ms(world):
            raise Violation(
                f"INV-29: {key[0]} was asked to let go at {asked_ms} ms and was in until "
                f"{end_ms} ms, its rebalance timeout is {world.plan.rebalance_timeout_ms} ms"
            )
