"""Partitions on their way from one member to another: races that lose or double them."""

import json

import msgspec
import pytest

from coordlib.core.engine.effects import ASSIGNMENTS, EVENTS
from coordlib.core.groups.assigned import reconciliation
from coordlib.core.groups.assigned.group import State
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.wire import api
from tests.tools import driving
from tests.tools.assigned_groups import (
    A,
    B,
    C,
    deserted,
    group_of,
    guarded,
    halved,
    let_go,
    owned_in,
    reconciling,
    stable,
    subscribe,
    told,
    topics,
)
from tests.tools.core import set_value
from tests.tools.driving import Conversation, commit, heartbeat, leave, settings
from tests.tools.transcript import Session


def silent(talk: Conversation, duration_ms: int, *living: str) -> list[str]:
    """Time passes; these members heartbeat, the others are not heard."""
    lines = []
    for _ in range(duration_ms // 1_000):
        lines += talk.tick(after_ms=1_000)
        for member in living:
            lines += talk.send(heartbeat(member[0], 0, member))
    return lines


def of(lines: list[str], *words: str) -> list[str]:
    return [line for line in lines if all(word in line for word in words)]


# ---- demands ------------------------------------------------------------------------------------


def test_what_was_demanded_for_somebody_who_left_comes_back_with_a_new_fence() -> None:
    """b came and went before a had read of it: a lets go, and must be told that it may go on."""
    talk = halved()
    talk.send(leave("b", B))
    assert group_of(talk).state is State.RECONCILING

    lines = talk.send(let_go("a", 2, A, cause=3))

    assert of(lines, f"notify AssignmentChanged member={A}", "partitions=[2, 3] fence=5")
    assert of(lines, f"assign {A} ", "fence=5")
    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3)}}
    assert group_of(talk).state is State.STABLE


def test_a_demand_is_not_taken_back_nor_made_twice() -> None:
    """Whoever is letting go already must not be believed to own; one Release ends the demand."""
    talk = halved()
    demand = group_of(talk).members[A].demands
    talk.send(leave("b", B))
    talk.send(subscribe("b", "again"))

    assert group_of(talk).members[A].demands == demand


def test_a_release_ends_the_demand_that_it_names_and_no_other() -> None:
    """Two newcomers, one after the other; a answers the second demand before the first."""
    talk = told(t=4)
    talk.send(subscribe("a"))
    talk.send(subscribe("b"))
    talk.send(topics({"t": 4, "u": 4}))
    talk.send(subscribe("a", "j2", member=A, generation=1, topics=("u",)))
    first, second = group_of(talk).members[A].demands

    talk.send(let_go("a", 3, A, cause=second.timer.cause))

    assert group_of(talk).members[A].demands == (first,)


def test_a_heartbeat_puts_off_a_session_and_no_demand() -> None:
    """Seed 000, slow consumers: who shows that it lives must let go in time all the same."""
    talk = reconciling()
    (demand,) = group_of(talk).members[B].demands

    silent(talk, 15_000, A, B, C)
    assert group_of(talk).members[B].demands == (demand,)
    lines = silent(talk, 5_000, A, B, C)

    assert of(lines, f"MemberRemoved generation=3 member={B} cause=deadline:release:{B}")
    assert owned_in(talk)["c"] == {"t": (2, 3)}


def test_a_demand_runs_only_when_it_can_have_been_heard() -> None:
    """Rule 3: a job that was away for an hour judges nobody for not having answered."""
    talk = halved()
    for _ in range(30):
        talk.tick(published=2, after_ms=1_000)
        talk.send_all(heartbeat("a", 1, A), heartbeat("b", 1, B))

    assert list(group_of(talk).members) == [A, B]


# ---- one record, several causes -----------------------------------------------------------------


def test_two_who_die_at_once_are_one_division() -> None:
    """What the one had is not given to the other: fences tell owners apart, and nobody who lives
    is asked for something in between."""
    talk = told(t=6)
    for client in "abc":
        talk.send(subscribe(client, strategy="range"))
    for _ in range(3):
        for member in list(group_of(talk).members.values()):
            for demand in member.demands:
                talk.send(let_go(member.client, 3, member.member, demand.timer.cause))
    talk.tick()
    _, b, c = group_of(talk).members
    generation = group_of(talk).generation

    lines = silent(talk, 12_000, c)

    assert len(of(lines, "event MemberRemoved")) == 2
    assert of(lines, "MemberRemoved", f"member={b} cause=deadline:session:{b}")
    assert len(of(lines, "GenerationStarted")) == 1
    assert not of(lines, f"assign {b} generation={generation + 1}")
    assert owned_in(talk) == {"c": {"t": (0, 1, 2, 3, 4, 5)}}
    assert group_of(talk).generation == generation + 1


def test_a_commit_of_the_first_of_two_generations_of_one_record_counts() -> None:
    """A deadline frees something for a, and the record itself something more: a is told twice."""
    talk = stable()
    talk.send(subscribe("c", topics=("u",)))
    silent(talk, 9_000, A, C)
    talk.now_ms += 1_000
    lines = talk.send(topics({"t": 5}))

    generations = [line.split("generation=")[1].split()[0] for line in of(lines, "Generation")]
    assert generations == ["4", "5"]
    rows = (api.CommittedOffset("t", 3, 7),)
    assert talk.send(commit("a", 4, A, offsets=rows))[0].startswith("commit t/3 offset=7")
    newest = group_of(talk).members[A].grants[-1]
    assert (newest.generation, newest.partitions) == (4, {"t": (2, 3, 4)})


def test_one_who_leaves_as_the_last_and_says_that_another_stopped_empties_the_group_once() -> None:
    """Both rows come from one process, which was removed by an operator and came again."""
    talk = stable()
    talk.send(leave("ops", B))
    talk.send(leave("a", A))
    talk.send(subscribe("b", "again"))
    again = f"b-t-0-{talk.next_offset - 1}"

    lines = talk.send(leave("b", again, B))

    assert len(of(lines, "GroupEmptied")) == 1
    assert group_of(talk).state is State.EMPTY


def test_who_says_that_it_stopped_is_given_on_after_the_answer_and_told_once() -> None:
    """Whoever waits hears of it by the record that ends the wait, and once."""
    talk = guarded()
    lines = talk.send(leave("b", B))

    assert lines[0].startswith("answer b#l LeaveGroup")
    assert len(of(lines, "notify")) == 1
    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3)}}


# ---- guards (rule 14) ---------------------------------------------------------------------------


def test_what_an_operator_took_waits_for_the_former_owners_fence() -> None:
    """One session after its newest heartbeat that the log took, and not a moment earlier."""
    talk = guarded()
    before = owned_in(talk)

    silent(talk, 9_000, A)
    assert owned_in(talk) == before
    lines = silent(talk, 1_000, A)

    assert of(lines, f"AssignmentIssued generation=3 member={A} cause=deadline:guard:{B}")
    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3)}}


def test_a_former_owner_that_has_not_read_yet_is_waited_for_but_not_for_ever() -> None:
    """It heartbeats on, so it may work on; its rebalance timeout without reading ends that."""
    talk = guarded()

    silent(talk, 18_000, A, B)
    assert owned_in(talk) == {"a": {"t": (0, 1)}}
    silent(talk, 3_000, A, B)

    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3)}}


def test_a_newcomer_in_a_deserted_group_gets_what_nobody_is_waited_for() -> None:
    """All have left, and one who was removed may be at work still."""
    talk = deserted()
    talk.send(subscribe("n"))

    assert owned_in(talk) == {"n": {"t": (0, 1)}}
    assert group_of(talk).state is State.RECONCILING


def test_a_newcomer_that_is_removed_at_once_is_waited_for() -> None:
    """It may read that it is in, and begin, before it reads that it is out."""
    talk = told()
    talk.send(subscribe("a"))
    talk.send(leave("ops", A))
    talk.send(subscribe("b"))
    newcomer = f"b-t-0-{talk.next_offset - 1}"

    silent(talk, 9_000, newcomer)
    assert owned_in(talk) == {"b": {}}
    silent(talk, 1_000, newcomer)

    assert owned_in(talk) == {"b": {"t": (0, 1, 2, 3)}}


def test_a_member_that_owns_nothing_is_not_waited_for() -> None:
    """An operator removes a newcomer that had nothing yet."""
    talk = reconciling()
    talk.send(leave("ops", C))

    assert group_of(talk).guards == {}


# ---- duplicates (rule 12) -----------------------------------------------------------------------


def test_a_late_duplicate_of_another_timeout_does_not_bring_it_back() -> None:
    """With the shorter session of before, the member's heartbeats would be too rare."""
    talk = stable()
    short = subscribe("a", "j2", member=A, generation=2, session_timeout_ms=6_000)
    talk.send(short)
    talk.send(subscribe("a", "j3", member=A, generation=3, session_timeout_ms=60_000))

    lines = talk.send(short)

    assert group_of(talk).members[A].session_timeout_ms == 60_000
    assert lines == [f"answer a#j2 Subscribe REBALANCE_IN_PROGRESS member={A}"]


def test_a_second_wish_before_the_first_is_answered_is_refused_and_not_dropped() -> None:
    """A client of another make does not wait for the answer. The answer NONE told it that the group
    divides by its newest wish, which was forgotten."""
    talk = stable()
    talk.send(subscribe("a", "j2", member=A, generation=2, topics=("u",)))
    before = group_of(talk)

    lines = talk.send(subscribe("a", "j3", member=A, generation=2, topics=("v",)))

    assert lines == [f"answer a#j3 Subscribe REBALANCE_IN_PROGRESS member={A}"]
    answer = msgspec.json.decode(talk.outputs[-1].value or b"")
    assert answer["message"] == (
        "Wait for the answer to the Subscribe before, then ask with its generation."
    )
    assert group_of(talk) == before
    talk.send(subscribe("a", "j4", member=A, generation=3, topics=("v",)))
    assert group_of(talk).members[A].topics == ("v",)


@pytest.mark.parametrize("strategy", [None, "sticky"])
def test_the_same_wish_once_more_is_answered_as_before(strategy: str | None) -> None:
    """Its answer was late, so it was written again, under its old id or a new one."""
    talk = stable()
    wish = {"member": A, "generation": 2, "topics": ("u",), "strategy": strategy}
    (first,) = of(talk.send(subscribe("a", "j2", **wish)), "answer a#")

    for request_id in ("j2", "j3"):
        (again,) = talk.send(subscribe("a", request_id, **wish))
        assert again == first.replace("#j2", f"#{request_id}")


def test_an_older_wish_for_another_strategy_is_overtaken() -> None:
    """The group divides by another one since."""
    talk = told()
    talk.send(subscribe("a"))
    talk.send(subscribe("a", "j2", member=A, generation=1, strategy="range"))

    lines = talk.send(subscribe("a", "j3", member=A, generation=1, strategy="uniform"))

    assert lines == [f"answer a#j3 Subscribe REBALANCE_IN_PROGRESS member={A}"]
    assert group_of(talk).protocol == "range"


def test_a_late_duplicate_of_a_release_does_not_bring_its_offsets_back() -> None:
    """The partition has come back to its former owner, who has gone on."""
    talk = halved()
    late = let_go("a", 2, A, cause=3, offsets=(api.CommittedOffset("t", 2, 10),))
    talk.send(late)
    talk.send(leave("b", B))
    talk.send(commit("a", 3, A, offsets=(api.CommittedOffset("t", 2, 99),)))

    lines = talk.send(late)

    assert lines[0] == (
        "answer a#r Release failed=[(topic=t partition=2 error=PARTITION_NOT_OWNED)]"
    )
    assert [line.split()[1] for line in lines[1:]] == ["CommitRefused"]


@pytest.mark.parametrize("make", [stable, guarded, deserted])
def test_a_ghost_goes_by_itself(make: type[Conversation]) -> None:
    """A first Subscribe that comes when its member is gone makes one that nobody speaks for. It
    takes nothing that anybody works on, and one session after it could be heard it is out."""
    talk = make()
    talk.send(leave("b", B))
    talk.send(subscribe("b"))
    ghost = f"b-t-0-{talk.next_offset - 1}"
    assert ghost in group_of(talk).members

    living = [A] if A in group_of(talk).members else []
    silent(talk, 12_000, *living)

    assert list(group_of(talk).members) == living
    assert group_of(talk).guards == {}


# ---- tokens -------------------------------------------------------------------------------------


def test_a_members_own_token_never_falls() -> None:
    """Its newest partitions go elsewhere: what it writes with the token is still its own."""
    talk = stable()
    talk.send(topics({"t": 4, "u": 2}))
    talk.send(subscribe("b", "j2", member=B, generation=2, topics=("t", "u")))
    high = group_of(talk).members[B].fence
    talk.send(topics({"t": 4}))
    (demand,) = [each for each in group_of(talk).members[B].demands if "u" in each.partitions]

    talk.send(let_go("b", 4, B, cause=demand.timer.cause))

    assert max(grant.fence for grant in group_of(talk).members[B].grants) < high
    assert group_of(talk).members[B].fence == high
    newest = [o.value for o in talk.outputs if o.topic == ASSIGNMENTS and B.encode() in o.key]
    assert json.loads(newest[-1] or b"{}")["fence"] == high


# ---- quarantine, retention ----------------------------------------------------------------------


def test_topics_that_changed_during_a_quarantine_are_divided_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-10: else new partitions are nobody's until a topic changes once more."""
    talk = stable()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("go_on")

    with monkeypatch.context() as patch:
        patch.setattr(reconciliation, "go_on", broken)
        assert of(talk.send(leave("b", B)), "GroupQuarantined")
    assert talk.send(topics({"t": 6})) == []

    lines = talk.send(driving.release("ops"))

    assert of(lines, "answer ops#q ReleaseQuarantine")
    assert of(lines, "topics changed")
    assert {c: len(owned["t"]) for c, owned in owned_in(talk).items()} == {"a": 3, "b": 3}


RETENTION = settings(offsets_retention_ms=20_000, check_interval_ms=1_000)


def test_offsets_of_a_topic_that_is_wanted_no_more_expire_in_a_stable_group() -> None:
    """INV-26: the state does not change when a wish is given up that nothing belonged to."""
    talk = told(RETENTION)
    talk.send(commit("ops", offsets=(api.CommittedOffset("old", 0, 7),)))
    talk.send(subscribe("a", topics=("t", "old")))
    member = f"a-t-0-{talk.next_offset - 1}"
    silent(talk, 40_000, member)
    talk.send(subscribe("a", "j2", member=member, generation=1))
    assert group_of(talk).state is State.STABLE

    lines = silent(talk, 2_000, member)

    assert of(lines, "OffsetsExpired", "topic=old")


def test_offsets_of_what_somebody_has_still_do_not_expire() -> None:
    """INV-26: b wants u no more, and must commit there once more when it lets go."""
    talk = stable(RETENTION)
    talk.send(topics({"t": 4, "u": 1}))
    talk.send(
        subscribe("b", "j2", member=B, generation=2, topics=("t", "u"), rebalance_timeout_ms=60_000)
    )
    talk.send(commit("b", 3, B, offsets=(api.CommittedOffset("u", 0, 7),)))
    talk.send(subscribe("b", "j3", member=B, generation=3, rebalance_timeout_ms=60_000))
    (demand,) = group_of(talk).members[B].demands
    assert not of(silent(talk, 30_000, A, B), "OffsetsExpired")

    talk.send(let_go("b", 4, B, cause=demand.timer.cause))

    assert of(silent(talk, 2_000, A, B), "OffsetsExpired", "topic=u")


def expired_after(*commands: str) -> list[str]:
    """What retention says for half a minute in which a member owes something."""
    session = Session()
    lines = []
    for command in (
        "settings offsets_retention_ms=10000 check_interval_ms=1000",
        "topics t=4 u=1",
        "a subscribe topics=t,u rebalance=90000 session=60000",
        "a commit u/0=7",
        "a resubscribe topics=t rebalance=90000 session=60000",
        "b subscribe session=60000",
        "tick",
        "a lets-go",
        *commands,
        "wait 30000",
    ):
        lines += session.run(command)
    assert group_of(session.talk).state is State.RECONCILING
    return of(lines, "OffsetsExpired")


def test_a_rebuilt_group_forgets_no_earlier_than_it_would_have() -> None:
    """INV-38: while somebody still has to let go nothing expires, in either of them."""
    assert expired_after() == expired_after("rebuild") == []


# ---- generations --------------------------------------------------------------------------------


def test_after_the_last_int32_comes_1() -> None:
    """INV-11: after two milliards of divisions a group goes on."""
    talk = stable()
    cell = talk.shard.groups["g"]
    set_value(talk.shard, "g", msgspec.structs.replace(cell.value, generation=2**31 - 1))

    talk.send(topics({"t": 5}))

    assert group_of(talk).generation == 1
    ASSIGNED.check(group_of(talk))
    assert not [o for o in talk.outputs if o.topic == EVENTS and b"Quarantined" in (o.value or b"")]
