"""Positions, administrators and crowds: each check can fail, mostly on evidence made by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.simulation.test_checks import assert_breaks, edit
from tests.tools.driving import Conversation, commit, describe, join
from tests.tools.simulation import bystanders, checks, drawing, one_fold, plan
from tests.tools.simulation.cluster import Outcome, Record, Transaction
from tests.tools.simulation.crowds import CROWD
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.kinds import KINDS
from tests.tools.simulation.lasting import bring
from tests.tools.simulation.plan import Fault
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import GROUP, PREFIX, World

CALM = replace(drawing.draw(0, kind=plan.CLASSIC), faults=(), shards=1, broker_skew_ms=0)
NOW_MS = 50_000


def record(true_ms: int, value: bytes = b"{}") -> Record:
    written = Transaction()
    written.outcome = Outcome.COMMITTED
    return Record(0, None, value, true_ms, true_ms, written)


def told(type_: str, cause: str, true_ms: int = NOW_MS, **fields: Any) -> Told:
    offset = int(cause.rsplit("-", 1)[1]) if cause.startswith("r") else -1
    known = {"group": "g", "kind": "classic", "member": "", "generation": 1, "reason": ""}
    known |= {"detail": {}, "event_id": f"x-{cause}-0"} | fields
    return Told(0, offset, type_, cause=cause, record=record(true_ms), **known)


def asked(
    request: api.Request, coordinate: str, true_ms: int, group: str = "g", client: str = ""
) -> Asked:
    topic, offset = coordinate[0], int(coordinate.rsplit("-", 1)[1])
    named = {"group": group, **({"client": client} if client else {})}
    return Asked(0, offset, true_ms, msgspec.structs.replace(request, **named), topic)


class Made(Evidence):
    """Evidence of things that nobody has to play."""

    def __init__(self, some: list[Asked], lines: list[Told], **answers: dict[str, Any]) -> None:
        world = World(CALM)
        super().__init__(world.cluster, 1, 1)
        rows = {cause.replace("_", "-"): answer for cause, answer in answers.items()}
        self.__dict__ |= {
            "asked": [each for each in some if each.topic == REQUESTS],
            "positions": [each for each in some if each.topic == COMMITS],
            "told": lines,
            "answers": {cause: [answer] for cause, answer in rows.items()},
            "_answer_records": {
                cause: [(answer, record(NOW_MS, answer.pop("value", b"{}")))]
                for cause, answer in rows.items()
            },
        }
        self.times = {each.offset: each.true_ms for each in some if each.topic == REQUESTS}

    def taken_ms(self, shard: int, offset: int) -> int:
        return self.times.get(offset, NOW_MS)


def world(**traits: Any) -> World:
    return World(replace(CALM, **traits))


# ---- what a request comes to --------------------------------------------------------------------


def test_an_answer_without_bound_is_seen() -> None:
    """INV-68: one partition, named 25,000 times."""
    fetch = api.OffsetFetch(v=1, id="1", client="a", group="g")
    made = Made([asked(fetch, "r0-1", 0)], [], r0_1={"error": "NONE", "value": b"x" * 1_000_000})

    bystanders.check_sizes(world(), made)
    assert_breaks("INV-68", lambda: bystanders.check_sizes(world(sizes=32), made))


def test_a_group_that_was_made_for_nothing_is_seen() -> None:
    """INV-24: its first commit was refused row by row."""
    lines = [told("GroupCreated", "o0-3", reason="first commit")]
    kept = told("OffsetsCommitted", "o0-3", detail={"offsets": []})

    bystanders.check_creations(Made([], [*lines, kept]))
    assert_breaks("INV-24", lambda: bystanders.check_creations(Made([], lines)))


# ---- retention ----------------------------------------------------------------------------------


def expiry(committed_ms: int, member: str = "") -> Made:
    rows = {"offsets": [{"topic": "orders", "partition": 0}]}
    some = [asked(commit("q"), "r0-1", committed_ms), asked(describe("q"), "r0-9", NOW_MS)]
    lines = [
        told("OffsetsCommitted", "r0-1", detail=rows),
        told("OffsetsExpired", "r0-9", detail=rows),
    ]
    if member:
        lines.insert(0, told("MemberJoined", "r0-0", 1_000, member=member))
    return Made(some, lines)


def test_an_offset_that_expires_too_early_is_seen() -> None:
    """INV-26."""
    short = world(retention_ms=8_000)

    bystanders.check_retention(short, expiry(NOW_MS - 8_000))
    assert_breaks("INV-26", lambda: bystanders.check_retention(short, expiry(NOW_MS - 7_000)))


def test_an_offset_that_expires_while_somebody_reads_is_seen() -> None:
    """INV-26: he has subscribed to its topic all the time."""
    short = world(retention_ms=8_000)
    program = short.start_program(wish=Wish(("orders",)))
    reads = expiry(NOW_MS - 9_000, f"{program.name}-Simulat0-0-0")

    assert_breaks("INV-26.*reads", lambda: bystanders.check_retention(short, reads))

    program.wishes = [(0, Wish(("parcels",)))]
    bystanders.check_retention(short, reads)


def test_who_must_do_it_again_is_told_to_the_history() -> None:
    """What a group has forgotten its members process again, from generation 1."""
    rows = {"offsets": [{"topic": "orders", "partition": 3}]}
    lines = [told("OffsetsDeleted", "r0-1", detail=rows), told("GroupDeleted", "r0-1")]

    found = list(bystanders.forgotten(Made([], lines)))

    assert [(each.what, each.partitions) for each in found] == [
        ("rewound", ("orders-3",)),
        ("deleted", ()),
    ]


# ---- crowds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("others", "is_seen"), [(0, True), (20, False)])
def test_who_waits_for_a_turn_that_is_free_is_seen(others: int, is_seen: bool) -> None:
    """INV-31: the rate of new groups was measured on a clock that stood."""
    throttled = {"error": bystanders.THROTTLED}
    client = f"{CROWD}-1"
    some = [asked(commit("q"), f"o0-{n}", n * 20_000, "late", client) for n in (0, 1)]
    lines = [told("GroupCreated", "o0-9", 1_000 * n, group=f"g{n}") for n in range(1, others)]
    made = Made(some, lines, o0_0=dict(throttled), o0_1=dict(throttled))
    crowded = world(new_groups_per_second=1)

    if is_seen:
        assert_breaks("INV-31", lambda: bystanders.check_turns(crowded, made))
    else:
        bystanders.check_turns(crowded, made)


def test_who_was_throttled_and_does_not_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-31: a crowd that comes again at once never thins out."""
    monkeypatch.setattr(bystanders.Visible, "since_ms", lambda self, record: record.true_ms)
    mine = world()
    name = mine.start_program().name

    def again(after_ms: int) -> Made:
        times = (NOW_MS - 500, NOW_MS + after_ms)
        some = [asked(join(name), f"r0-{n}", at_ms) for n, at_ms in enumerate(times)]
        return Made(some, [], r0_0={"error": bystanders.THROTTLED})

    bystanders.check_pauses(mine, again(200))
    assert_breaks("INV-31", lambda: bystanders.check_pauses(mine, again(20)))


# ---- administrators -----------------------------------------------------------------------------


def test_a_description_of_other_members_is_seen() -> None:
    """INV-18."""
    lines = [told("MemberJoined", "r0-1", member="a"), told("MemberJoined", "r0-9", member="b")]

    def look(*members: str) -> None:
        answer = {"error": "NONE", "members": [{"member": each} for each in members]}
        made = Made([asked(describe("ops"), "r0-5", 0)], lines, r0_5=answer)
        bystanders.check_described(made)

    look("a")
    assert_breaks("INV-18", lambda: look("a", "b"))


# ---- played -------------------------------------------------------------------------------------


@quiet_logs()
def played(*kinds: str) -> World:
    faults = tuple(Fault(20_000 + 2_000 * n, kind, 12_000, 7) for n, kind in enumerate(kinds))
    found = World(replace(CALM, faults=faults, length_ms=40_000))
    play(found)
    return found


def test_a_world_with_positions_is_compared_with_one_fold() -> None:
    """INV-02, INV-37: with the positions where the batches had them."""
    found = played("query-deleted", "positions-of-members")
    assert found.cluster.partitions[(f"{PREFIX}.offsets", 0)].end > 0
    evidence = one_fold_evidence(found)
    one_fold.check(found, evidence)

    edit(found, "events", lambda value: value["cause"].startswith("o"), lambda v: v.update(v=2))

    assert_breaks("INV-37", lambda: one_fold.check(found, one_fold_evidence(found)))


def one_fold_evidence(found: World) -> Evidence:
    return checks.evidence_of(found)


def test_positions_that_change_who_is_a_member_are_seen() -> None:
    """INV-24: with them somebody expires later than without them."""
    talk = Conversation()
    talk.send(join("a"))
    joined = talk.outputs

    one_fold._check_membership(0, joined, joined)
    assert_breaks("INV-24", lambda: one_fold._check_membership(0, joined, []))


def test_another_group_of_the_shard_is_held_to_the_same_promises() -> None:
    """Two groups may work on one partition at a time; two members of one of them may not."""
    found = World(replace(CALM, faults=(Fault(1_000, "company-joins", 0, 3),), length_ms=40_000))
    with quiet_logs():
        found.start_driver(0)
        readers = found.start_program()
        bring(found, found.plan.faults[0], KINDS[found.plan.faults[0].kind].begin)
        found.scheduler.run(40_000, found.check)
    (team,) = found.company
    first, second = [each for each in team.living if each.may_act_on()][:2]
    assert readers.may_act_on()

    second.consumer.member._machine.held.delivered = first.may_act_on()

    assert_breaks("INV-21", found.check)


def test_what_users_and_others_do_is_counted() -> None:
    """A campaign that has not met something says so."""
    met = count_sometimes(played("user-seeks", "group-described", "group-deleted"))

    assert met["went back in a partition"] > 0
    assert met["group described"] > 0
    assert met["deletion refused to a living group"] > 0
    assert met["transport shared"] == 0


def test_the_group_of_the_readers_is_the_first_team() -> None:
    """Whatever looks at one group looks at this one, unless it is told of another."""
    assert world().teams[0].name == GROUP
