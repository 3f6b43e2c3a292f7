"""Guards: when a hand-over waits for a former owner, until when, and when it need not (rule 14)."""

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import BrokenInvariant
from coordlib.core.groups.classic.group import Guard, State
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from tests.core.engine.refusals import refused
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    SHARES,
    Conversation,
    heartbeat,
    join,
    leave,
    release,
    settings,
    sync,
)
from tests.tools.static_groups import completing, preparing, stable


def guards(talk: Conversation) -> dict[str, int]:
    """Who is waited for, and how long from now at most."""
    group, clock_ms = talk.group(), talk.shard.clock_ms
    return {name: guard.due_ms - clock_ms for name, guard in group.guards.items()}


def test_a_guard_counts_from_the_last_heartbeat_in_the_log() -> None:
    """Rule 8: the owner's fence begins where its newest acknowledged heartbeat began."""
    talk = stable()
    talk.tick()
    talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_500)
    talk.send(join("d", instance="k"), after_ms=1_000)

    assert guards(talk) == {FOLLOWER: 9_000}


def test_a_guard_counts_from_now_when_a_sync_is_not_covered_yet() -> None:
    """A member joined, waited long, synced, works, and is removed before any tick: its SyncGroup

    counts for it as a heartbeat, but the shard would note that at the covering tick only."""
    talk = completing()
    for _ in range(5):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_900)
    talk.send_all(sync("b", 2, FOLLOWER), sync("a", 2, LEADER, assignments=SHARES))
    talk.send(leave("admin", api.Leaver("", "k")), after_ms=400)

    assert guards(talk) == {FOLLOWER: 10_000}


def test_a_member_that_never_had_anything_is_not_guarded() -> None:
    """A newcomer is parked in its first JoinGroup when it restarts, or when it is removed."""
    talk = preparing()
    talk.send(join("e", instance="n"))
    talk.send(join("f", instance="n"))
    talk.send(leave("admin", api.Leaver("", "n"), "c-t-0-8"))

    assert guards(talk) == {}


def test_who_joins_again_has_let_go() -> None:
    """A JoinGroup is consent: an operator that removes who is parked makes nobody wait."""
    talk = preparing()
    talk.send(join("b", "j9", member=FOLLOWER, instance="k"))
    talk.send(leave("admin", FOLLOWER))

    assert guards(talk) == {}


@pytest.mark.parametrize(
    ("metadata", "waits"),
    [
        (cp.encode_subscription(cp.Subscription(topics=("t",))), False),
        (cp.encode_subscription(cp.Subscription(topics=("t",), owned={"t": (0,)})), True),
        (b"unreadable", True),
    ],
)
def test_a_consumer_that_joins_again_keeps_what_it_names(metadata: bytes, waits: bool) -> None:
    """KIP-429: it works on until it reads that it is out. What cannot be read may name anything."""
    offers = {"range": metadata}
    talk = Conversation(SETTINGS)
    for client in "ab":
        talk.send(join(client, protocol_type="consumer", protocols=offers))
    rejoin = {"protocol_type": "consumer", "protocols": offers, "generation": 1}
    talk.send(join("a", "j2", member="a-t-0-0", **rejoin))
    talk.send_all(sync("a", 2, "a-t-0-0", assignments={"b-t-0-1": b"x"}), sync("b", 2, "b-t-0-1"))
    talk.send(join("c", protocol_type="consumer", protocols=offers))
    talk.send(join("b", "j2", member="b-t-0-1", **{**rejoin, "generation": 2}))

    talk.send(leave("admin", "b-t-0-1"))

    assert list(guards(talk)) == (["b-t-0-1"] if waits else [])


def test_who_let_go_and_asks_for_its_share_again_works() -> None:
    """A process says that it stops for a restart, and changes its mind: it must be waited for."""
    for again in (
        sync("b", 2, FOLLOWER, instance="k"),
        join("b", "j9", member=FOLLOWER, instance="k"),
    ):
        talk = stable()
        talk.tick()
        talk.send(leave("b", FOLLOWER, remain=True))
        talk.send_all(heartbeat("b", 2, FOLLOWER), again)
        talk.tick()
        talk.send(join("d", instance="k"))

        assert list(guards(talk)) == [FOLLOWER]


def test_a_late_heartbeat_is_not_work_again() -> None:
    """The thread that heartbeats stops a moment after the one that says it has stopped."""
    talk = stable()
    talk.tick()
    talk.send(leave("b", FOLLOWER, remain=True))
    talk.send(heartbeat("b", 2, FOLLOWER))
    talk.send(join("d", instance="k"))

    assert guards(talk) == {}
    assert talk.send(sync("d", 2, "d-t-0-11")) == [
        "answer d#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=11"
    ]


def test_remain_of_a_dynamic_member_is_a_leave() -> None:
    """Nobody can come back under its name: its partitions must not wait for its session."""
    talk = Conversation()
    talk.send_all(join("a"), sync("a", 1, LEADER))

    talk.send(leave("a", LEADER, remain=True))

    assert talk.group().state is State.EMPTY


def test_a_newer_process_is_not_the_member_by_its_client_id() -> None:
    """A start script removes its instance id before it joins, with the same client id as the old

    process, which may be alive: only who names its own member id speaks for it."""
    talk = stable()
    talk.tick()
    talk.send(leave("b", api.Leaver("", "k")))

    assert list(guards(talk)) == [FOLLOWER]


def delays(talk: Conversation) -> list[dict[str, object]]:
    events = [msgspec.json.decode(o.value or b"") for o in talk.outputs if o.topic == "events"]
    return [each for each in events if each["type"] == "HandOverDelayed"]


def test_history_tells_whom_a_hand_over_waits_for_and_how_long() -> None:
    """The new process hangs for seconds after its start: for whom does it wait?"""
    talk = stable()
    talk.tick()
    talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_500)
    talk.send(join("d", instance="k"), after_ms=1_000)

    (delay,) = delays(talk)
    assert (delay["member"], delay["generation"]) == (FOLLOWER, 2)
    assert delay["reason"] == "static member replaced"
    assert delay["detail"] == {
        "client": "b",
        "successor": f"d-t-0-{talk.next_offset - 1}",
        "wait_ms": 9_000,
        "wait_max_ms": 20_000,
    }


def test_history_tells_of_a_wait_once() -> None:
    """Its successor crashes and starts again and again: all of them wait for the same owner."""
    talk = stable()
    talk.tick()
    for number in range(5):
        talk.send(join(f"d{number}", instance="k"), after_ms=10)
        talk.send(heartbeat("b", 2, FOLLOWER))

    assert [each["member"] for each in delays(talk)] == [FOLLOWER]


def test_nobody_waits_for_one_that_has_let_go() -> None:
    """A clean restart, and a removal of one who is parked: no line of history says otherwise."""
    restarted = stable()
    restarted.tick()
    restarted.send_all(leave("b", FOLLOWER, remain=True), join("d", instance="k"))
    parked = preparing()
    parked.send_all(
        join("b", "j9", member=FOLLOWER, instance="k"), leave("admin", FOLLOWER, "c-t-0-8")
    )

    assert delays(restarted) == delays(parked) == []


def test_a_stranger_does_not_end_a_guard() -> None:
    """Only the former owner itself knows that it has stopped."""
    talk = stable()
    talk.tick()
    talk.send(join("d", instance="k"))
    talk.send(leave("admin", FOLLOWER))

    assert list(guards(talk)) == [FOLLOWER]


def test_a_crash_loop_does_not_pile_up_guards() -> None:
    """A static member that dies again and again while it waits: only who worked is waited for."""
    talk = stable()
    talk.tick()
    for number in range(20):
        talk.send(join(f"d{number}", instance="k"), after_ms=10)

    assert list(guards(talk)) == [FOLLOWER]
    assert [g.successor for g in talk.group().guards.values()] == [list(talk.group().members)[1]]


def test_a_successor_that_leaves_hands_its_wait_to_nobody() -> None:
    """The new process is stopped while it waits: its partition goes to others after the guard."""
    talk = stable()
    talk.tick()
    talk.send(join("d", instance="k"))
    talk.send(leave("d", "d-t-0-9"))
    talk.send(join("a", "j9", member=LEADER, generation=2, instance="i"))

    assert [g.successor for g in talk.group().guards.values()] == [None]
    assert talk.group().state is State.PREPARING_REBALANCE
    assert talk.wait(8_000, 2_000) == []
    assert [line.split()[0:2] for line in talk.wait(2_000, 2_000)] == [
        ["answer", "a#j9"],
        ["event", "GenerationStarted"],
    ]


def test_a_dead_successor_is_expelled_after_its_wait() -> None:
    """It dies parked behind a guard: the guard ends, it is answered, and then its session runs."""
    talk = stable()
    talk.tick()
    talk.send(join("d", instance="k"))
    talk.send(sync("d", 2, "d-t-0-9"))
    for _ in range(12):
        talk.send(heartbeat("a", 2, LEADER), after_ms=1_900)
        talk.tick()
    removed = [o for o in talk.outputs if b'"session expired"' in (o.value or b"")]

    assert removed
    assert list(talk.group().members) == [LEADER]


def test_a_former_owner_that_only_heartbeats_is_waited_for_at_most_its_rebalance_timeout() -> None:
    """It writes and does not read: rule 9 has stopped it by then, whatever it writes."""
    talk = stable()
    talk.tick()
    talk.send(join("d", instance="k"))
    talk.send(sync("d", 2, "d-t-0-9"))
    talk.tick()
    for _ in range(13):
        talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_500)
        talk.send(heartbeat("a", 2, LEADER))

    assert list(guards(talk)) == [FOLLOWER]
    assert talk.send(heartbeat("b", 2, FOLLOWER, instance="k"), after_ms=600) == [
        "assign d-t-0-9 generation=2 protocol=range assignment=p1 fence=9",
        "event AssignmentIssued generation=2 member=d-t-0-9 cause=deadline:guard:b-t-0-3 "
        "fence=9 sync=6 bytes=p1",
        "answer d#s1 SyncGroup protocol_type=demo protocol=range assignment=p1 fence=9",
        "answer b#h Heartbeat FENCED_INSTANCE_ID",
    ]


def test_a_guard_is_not_ended_by_a_jump_of_the_clock() -> None:
    """Rule 1: the last member is removed and nobody else is there; an hour passes in one record."""
    talk = Conversation()
    talk.send_all(join("a"), sync("a", 1, LEADER))
    talk.tick()
    talk.send(leave("admin", LEADER))
    talk.tick(after_ms=3_600_000)

    assert talk.shard.status().cap_ms == 2_000
    assert guards(talk) == {LEADER: 8_000}
    assert talk.shard.status().has_deadline


def test_a_restart_before_the_sync_leaves_no_sync_timer() -> None:
    """The older twin had not asked for its share: nobody else is waited for, and nobody expelled.

    Found by random logs: the group was quarantined."""
    talk = completing()
    talk.send(sync("a", 2, LEADER, assignments=SHARES))
    talk.tick()
    talk.send(join("d", instance="k"))

    assert talk.group().sync_timer is None
    assert not talk.group().is_quarantined


def test_quarantine_gives_guards_their_full_time_again() -> None:
    """INV-42: heartbeats that came meanwhile were not judged, so nobody knows how long they let
    the former owner work."""
    talk = stable()
    talk.tick()
    talk.send(heartbeat("b", 2, FOLLOWER), after_ms=100)
    talk.send(join("d", instance="k"), after_ms=1_900)
    cell = talk.shard.groups["g"]
    broken = msgspec.structs.replace(talk.group(), is_quarantined=True)
    talk.shard._settle(cell, broken, [])
    talk.send(heartbeat("b", 2, FOLLOWER), after_ms=1_900)
    talk.send(release("admin"), after_ms=1_900)

    assert guards(talk) == {FOLLOWER: 10_000}


def test_invariants_know_guards() -> None:
    """A guard without its member, or where nothing waits, would hold something up for ever."""
    talk = stable()
    talk.tick()
    talk.send(join("d", instance="k"))
    group = talk.group()
    (guard,) = group.guards.values()

    def with_guard(changed: Guard) -> None:
        CLASSIC.check(msgspec.structs.replace(group, guards={changed.member: changed}))

    with_guard(guard)
    for broken in (
        msgspec.structs.replace(guard, successor="nobody"),
        msgspec.structs.replace(guard, successor=None),
        msgspec.structs.replace(guard, member=LEADER),
    ):
        with pytest.raises(BrokenInvariant):
            with_guard(broken)


def test_a_full_group_takes_a_restarted_static_member() -> None:
    """testStaticMembersJoinGroupWithMaxSize: it takes a place, and needs none."""
    talk = stable()
    talk.use(settings(max_size=2))

    assert talk.send(join("x")) == refused(
        "answer x#j1 JoinGroup GROUP_MAX_SIZE_REACHED", cause="r0-8"
    )
    talk.send(join("d", instance="k"))
    assert list(talk.group().members) == [LEADER, f"d-t-0-{talk.next_offset - 1}"]


def test_a_restart_with_longer_names_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is accepted must be writable: a group at its limit takes back what is as large."""
    talk = stable()
    monkeypatch.setattr(limits, "GROUP_BYTES_MAX", talk.group().size_bytes)

    assert talk.send(join("d" * 150, instance="k"))[0].split()[2:] == [
        "JoinGroup",
        "GROUP_MAX_SIZE_REACHED",
    ]
    assert "MemberJoined" in talk.send(join("d", instance="k"))[0]
