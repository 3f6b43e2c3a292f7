"""Several members against the real core, over a log in memory with virtual time."""

import pytest

from coordlib.client.groups.member import ClassicMember
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.fence import MemberFenced, Stop
from coordlib.client.kit.requests import Timing
from coordlib.testing.fake_log import INCARNATION, FakeLog, FakeTransport

TIMING = Timing(session_timeout_ms=8_000, rebalance_timeout_ms=12_000, heartbeat_interval_ms=2_000)


class User:
    """A program with one member: works on what it is told to own, and commits when asked to go."""

    def __init__(self, log: FakeLog, name: str) -> None:
        self.transport: FakeTransport = log.transport()
        self.told: list[tuple[str, Partitions]] = []
        self.is_busy = False
        self.position: dict[TopicPartition, int] = {}
        self.member = ClassicMember(
            "orders",
            transport=self.transport,
            client=name,
            timing=TIMING,
            on_assigned=lambda some: self.told.append(("assigned", some)),
            on_revoked=self._revoked,
            on_lost=lambda some: self.told.append(("lost", some)),
        )
        self.member.subscribe(["t"])

    def _revoked(self, some: Partitions) -> None:
        self.told.append(("revoked", some))
        mine = {each: at for each, at in self.position.items() if each in some}
        if mine:
            self.member.commit_async(mine)

    def poll(self) -> None:
        if not self.is_busy:
            self.member.poll()


class World:
    def __init__(self, partitions: int = 4) -> None:
        self.log = FakeLog({"t": partitions})
        self.users: list[User] = []

    def join(self, *names: str) -> list[User]:
        made = [User(self.log, name) for name in names]
        self.users += made
        self.run(3_000)
        return made

    def poll_all(self) -> None:
        for user in self.users:
            user.poll()
        held = [each for user in self.users for each in user.member.assignment]
        assert len(held) == len(set(held)), f"two owners: {held}"

    def run(self, for_ms: int) -> None:
        self.log.pump()
        self.log.advance(for_ms, self.poll_all)


def t(*numbers: int) -> Partitions:
    return tuple(TopicPartition("t", number) for number in numbers)


def test_members_share_a_topic_and_their_ids_come_from_the_log() -> None:
    world = World()
    a, b = world.join("a", "b")

    assert (a.member.assignment, b.member.assignment) == (t(0, 1), t(2, 3))
    assert a.member.member_id == f"a-{INCARNATION}-0-0"
    assert a.member.generation == b.member.generation
    assert a.member.fence_token == b.member.fence_token


def test_a_newcomer_takes_over_what_was_committed_before_the_others_let_go() -> None:
    """Commit, then let go: no round trip between the two, and the newcomer sees the commit."""
    world = World(2)
    (a,) = world.join("a")
    a.position = {TopicPartition("t", 1): 42}
    token = a.member.fence_token

    (b,) = world.join("b")

    assert a.told == [("assigned", t(0, 1)), ("revoked", t(0, 1)), ("assigned", t(0))]
    assert b.member.assignment == t(1)
    asked = b.member.committed_async(t(1))
    world.log.pump()
    assert [(row.partition, row.offset) for row in asked.result(0).offsets] == [(1, 42)]
    assert token is not None
    assert b.member.fence_token is not None
    assert b.member.fence_token > token


def test_a_member_that_closes_hands_over_at_once() -> None:
    world = World(2)
    a, b = world.join("a", "b")
    world.users.remove(a)

    a.member.close(timeout_s=0)
    world.run(1_000)

    assert a.told[-1] == ("revoked", t(0))
    assert b.member.assignment == t(0, 1)


def test_a_dead_members_partitions_go_to_the_others_after_its_session() -> None:
    world = World(2)
    a, b = world.join("a", "b")
    a.transport.is_cut = True  # as kill -9: nothing is written or read any more
    a.is_busy = True

    world.run(30_000)

    assert a.member.assignment == ()
    assert b.member.assignment == t(0, 1)


def test_a_member_cut_off_from_kafka_stops_before_others_take_over() -> None:
    """The core invariant, over the real core: World.poll_all refuses two owners at any step."""
    world = World(2)
    a, b = world.join("a", "b")
    a.transport.is_cut = True

    world.run(20_000)
    assert a.told[-1] == ("lost", t(0))
    assert b.member.assignment == t(0, 1)

    a.transport.is_cut = False
    world.run(20_000)

    assert sorted(a.member.assignment + b.member.assignment) == list(t(0, 1))
    assert a.member.assignment
    assert a.member.member_id != f"a-{INCARNATION}-0-0"


def test_a_member_that_cannot_hear_stops_before_it_is_expelled() -> None:
    """Its heartbeats are taken, but it never hears that a newcomer wants a share."""
    world = World(2)
    (a,) = world.join("a")
    a.transport.is_deaf = True
    (b,) = world.join("b")
    assert (a.member.assignment, b.member.assignment) == (t(0, 1), ())

    world.run(30_000)

    assert a.told[-1] == ("lost", t(0, 1))
    assert b.member.assignment == t(0, 1)


def test_several_members_share_a_transport() -> None:
    """A load generator has thousands of members and few connections."""
    log = FakeLog({"t": 8}, shards=3)
    shared = log.transport()
    members = [
        ClassicMember(f"g{number % 3}", transport=shared, client=f"m{number}", timing=TIMING)
        for number in range(6)
    ]
    for member in members:
        member.subscribe(["t"])
    for _ in range(6):
        log.pump()
        for member in members:
            member.poll()

    assert [len(member.assignment) for member in members] == [4] * 6


def test_a_job_that_was_away_expels_nobody() -> None:
    """Heartbeats are taken by Kafka; silence of the coordinator is no reason to stop."""
    world = World(2)
    a, b = world.join("a", "b")
    world.log.job_is_up = False
    world.run(120_000)
    assert (a.member.assignment, b.member.assignment) == (t(0), t(1))

    world.log.job_is_up = True
    world.run(30_000)

    assert (a.member.assignment, b.member.assignment) == (t(0), t(1))
    assert [what for what, _ in a.told] == ["assigned"]


def test_a_stuck_user_is_fenced_leaves_and_comes_back() -> None:
    """Rule 10 and max.poll.interval.ms: the handler of one message takes half a minute."""
    world = World(2)
    a, b = world.join("a", "b")
    a.is_busy = True
    world.run(30_000)
    assert a.member.assignment == ()
    assert b.member.assignment == t(0, 1)

    a.is_busy = False
    world.run(5_000)

    assert ("lost", t(0)) in a.told
    assert sorted(a.member.assignment + b.member.assignment) == list(t(0, 1))


def test_a_stuck_user_stops_before_the_group_goes_on_without_it() -> None:
    """A rebalance asks it to let go; it does not answer, though its heartbeats go on."""
    world = World(2)
    (a,) = world.join("a")
    a.is_busy = True
    world.log.advance(6_000, world.poll_all)
    (b,) = world.join("b")  # the notice reaches a at about 9 s; its last poll was at 3 s

    world.run(30_000)

    assert a.member.assignment == ()
    assert b.member.assignment == t(0, 1)


def test_kafka_away_for_everybody_changes_nobodys_share() -> None:
    """Rule 11: all stop, and all go on with what they had, since the log's clock hardly moved."""
    world = World(2)
    a, b = world.join("a", "b")
    for user in (a, b):
        user.transport.is_cut = True
    world.run(7_000)
    assert (a.member.assignment, b.member.assignment) == ((), ())
    assert a.member.stopped_by() is Stop.NO_SIGN_OF_LIFE

    for user in (a, b):
        user.transport.is_cut = False
    world.run(10_000)

    assert (a.member.assignment, b.member.assignment) == (t(0), t(1))
    assert [what for what, _ in a.told] == ["assigned", "lost", "assigned"]


def test_a_fenced_member_cannot_commit() -> None:
    world = World(1)
    (a,) = world.join("a")
    a.transport.is_cut = True
    a.is_busy = True
    world.run(20_000)

    with pytest.raises(MemberFenced):
        a.member.commit({TopicPartition("t", 0): 1}, timeout_s=0)
