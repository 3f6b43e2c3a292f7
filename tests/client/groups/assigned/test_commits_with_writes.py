"""Commits that a Delta table decides, of real members over the real core; the table is played."""

from collections.abc import Callable
from typing import Any

import pytest

from coordlib.client.groups.machine import CHECK_AFTER_MS
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import MemberFenced
from coordlib.client.kit.requests import UNSTABLE_RETRY_MAX_MS, offset_of
from coordlib.core.wire import api
from coordlib.errors import CannotReach, ErrorCode, GroupError
from tests.client.groups.assigned.world import AssignedUser, AssignedWorld
from tests.client.transactions.test_in_doubt import FakeTable
from tests.client.world import t

TABLE = "file:///lake/out"
#: Of a word, until who asks has read what came of it.
WRITE_MS = 1_000


class LakeWorld(AssignedWorld):
    """Members, and tables by path and application; looks run when the world comes to them."""

    def __init__(self) -> None:
        super().__init__({"t": 2})
        self.tables: dict[tuple[str, str], FakeTable] = {}
        self.looks: list[Callable[[], None]] = []
        #: Whether tables cannot be read just now.
        self.is_away = False

    def open(self, path: str, app: str) -> FakeTable:
        if self.is_away:
            raise CannotReach("the store does not answer", path)
        return self.tables.setdefault((path, app), FakeTable(None))

    def enter(self, name: str, *more: Any, **fields: Any) -> Any:
        user = super().enter(name, *more, **fields)
        user.member.commit_checker.opener = self.open
        user.member.commit_checker.spawn = self.looks.append
        return user

    def poll_all(self) -> None:
        super().poll_all()
        looks = list(self.looks)
        self.looks.clear()
        for look in looks:
            look()

    # ---- what a program does --------------------------------------------------------------------

    def app(self, user: AssignedUser) -> str:
        return f"coordlib/FakeLog0/orders/{user.member.member_id}"

    def commit(self, user: AssignedUser, **more: Any) -> "Any":
        """A commit of what the member owns, 7 each; the future of its answer."""
        fields = {
            "offsets": tuple(api.CommittedOffset(*each, 7) for each in user.owns),
            "table": TABLE,
            "member": user.member.member_id,
            "generation": user.member.generation,
        } | more
        future = user.member.ask(lambda now, ticket: sg.CommitWithWrites(now, ticket, **fields))
        self.log.pump()
        return future

    def accepted(self, user: AssignedUser) -> str:
        answer = self.commit(user).result(0)
        assert answer.error is None
        return str(answer.pending)

    def write(self, user: AssignedUser, key: str) -> bool:
        """The commit of the table; whether it landed."""
        return self.open(TABLE, self.app(user)).write(offset_of(key))

    def say(self, user: AssignedUser, key: str, result: Any = "commit") -> "Any":
        who = (user.member.member_id, user.member.generation)
        future = user.member.ask(lambda now, ticket: sg.Decide(now, ticket, key, result, *who))
        self.log.pump()
        return future

    def kill(self, user: AssignedUser) -> None:
        """It says nothing any more, and others get its partitions when its session ends."""
        user.transport.is_cut = True
        self.users.remove(user)

    def fetched(self, user: AssignedUser, for_ms: int = 20_000) -> dict[TopicPartition, int] | None:
        """Where it begins to read what it owns; None: no answer by then."""
        future = user.member.committed_async(user.owns)
        self.run(for_ms)
        if not future.done():
            return None
        return {TopicPartition(r.topic, r.partition): r.offset for r in future.result(0).offsets}


@pytest.fixture
def world() -> LakeWorld:
    return LakeWorld()


def test_a_batch_goes_through(world: LakeWorld) -> None:
    """Accepted, written, said; the next one follows without a pause."""
    (user,) = world.join("a")

    for _ in range(3):
        key = world.accepted(user)
        assert world.write(user, key)
        assert world.say(user, key).result(0).error is None

    assert world.fetched(user) == dict.fromkeys(t(0, 1), 7)


@pytest.mark.parametrize(("writes", "found"), [(True, 7), (False, -1)])
def test_a_successor_finds_what_became_of_a_killed_members_batch(
    world: LakeWorld, writes: bool, found: int
) -> None:
    """INV-100: killed before its write, or between its write and its word."""
    (dead,) = world.join("a")
    key = world.accepted(dead)
    if writes:
        world.write(dead, key)
    table = world.open(TABLE, world.app(dead))
    world.kill(dead)
    (heir,) = world.join("b")
    world.run(30_000)
    assert heir.owns == t(0, 1)

    assert world.fetched(heir) == dict.fromkeys(t(0, 1), found)
    assert not table.write(offset_of(key)), "it wakes up late"
    assert (offset_of(key) in table.versions) is writes


def test_the_senders_own_word_has_two_seconds(world: LakeWorld) -> None:
    """The usual hand-over: the word is on its way, and no table is looked into."""
    a, b = world.join("a", "b")
    key = world.accepted(a)
    future = b.member.committed_async(t(0, 1))
    world.run(CHECK_AFTER_MS - 500)
    assert not future.done()

    world.write(a, key)
    world.say(a, key)
    world.run(2_000)

    assert future.done()
    assert not world.looks
    assert world.open(TABLE, world.app(a)).versions == [None, offset_of(key)]


def test_a_members_batch_is_not_disturbed_by_who_only_asks(world: LakeWorld) -> None:
    """A member shows all offsets of the group, while another one writes for a minute."""
    a, b = world.join("a", "b")
    key = world.accepted(a)
    (asked,) = a.owns
    future = b.member.committed_async([asked])

    world.run(10_000)

    assert not future.done()
    assert world.write(a, key)
    world.say(a, key)
    world.run(3_000)
    assert future.result(0).offsets[0].offset == 7


def test_a_table_that_cannot_be_read_is_looked_into_again(world: LakeWorld) -> None:
    """The store is away; who asks reads why it waits."""
    (dead,) = world.join("a")
    world.write(dead, world.accepted(dead))
    world.kill(dead)
    (heir,) = world.join("b")
    world.run(30_000)
    world.is_away = True

    future = heir.member.committed_async(heir.owns)
    world.run(20_000)
    assert not future.done()
    assert "the store does not answer" in heir.member.commit_checker.trouble
    with pytest.raises(CannotReach, match="the store does not answer"):
        heir.member.committed(timeout_s=0)
    world.is_away = False
    world.run(10_000)

    assert {row.offset for row in future.result(0).offsets} == {7}
    assert heir.member.commit_checker.trouble == ""


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("away_ms", [0, 60_000], ids=["readable", "unreadable for a minute"])
def test_what_nobody_decides_is_decided_within_a_bound(
    world: LakeWorld, writes: bool, away_ms: int
) -> None:
    """INV-96: by who reads on: its next fetch, two seconds for the sender's word, and its own."""
    (dead,) = world.join("a")
    key = world.accepted(dead)
    if writes:
        world.write(dead, key)
    world.kill(dead)
    (heir,) = world.join("b")
    world.run(30_000)
    world.is_away = bool(away_ms)
    future = heir.member.committed_async(heir.owns)
    world.run(away_ms)
    assert not future.done()
    world.is_away = False

    world.run(UNSTABLE_RETRY_MAX_MS + CHECK_AFTER_MS + WRITE_MS)

    assert {row.offset for row in future.result(0).offsets} == {7 if writes else -1}


def test_a_member_that_cannot_take_what_was_found_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would never ask for this table again, and nobody would be told."""
    (user,) = AssignedWorld({"t": 2}).join("a")
    given: list[Any] = []
    monkeypatch.setattr(user.transport, "in_background", lambda *work: given.append(work))

    def look() -> None:
        """Of a table."""

    user.member.commit_checker.spawn(look)

    assert given == [(user.member, look)]


def test_one_that_was_put_out_may_still_say_what_it_wrote(world: LakeWorld) -> None:
    """Its session ended while it was cut off; its rows are in the table."""
    (user,) = world.join("a")
    key = world.accepted(user)
    world.write(user, key)
    who = (user.member.member_id, user.member.generation)
    user.transport.is_cut = True
    world.run(30_000)
    user.transport.is_cut = False
    world.run(5_000)
    assert user.member.member_id != who[0]

    future = user.member.ask(lambda now, ticket: sg.Decide(now, ticket, key, "commit", *who))
    world.log.pump()

    assert future.result(0).error is None


def test_a_commit_of_a_membership_that_has_ended_is_not_sent(world: LakeWorld) -> None:
    """Its batch was read by another right than the one of now."""
    (user,) = world.join("a")

    answer = world.commit(user, member="a-FakeLog0-0-99").result(0)

    assert isinstance(answer.error, MemberFenced)
    assert world.of("a", api.PendingCommit) == []


def test_a_commit_of_what_is_not_owned_is_refused(world: LakeWorld) -> None:
    """Read before a release, written after it."""
    a, b = world.join("a", "b")
    offsets = tuple(api.CommittedOffset(*each, 7) for each in b.owns)

    error = world.commit(a, offsets=offsets).result(0).error

    assert isinstance(error, GroupError)
    assert error.code is ErrorCode.PARTITION_NOT_OWNED


def test_the_next_batch_waits_until_the_word_is_there(world: LakeWorld) -> None:
    """The word could not be written at once: refused for now, the commit is asked again."""
    (user,) = world.join("a")
    key = world.accepted(user)
    world.write(user, key)

    second = world.commit(user)
    world.run(1_000)
    assert not second.done()
    world.say(user, key)
    world.run(5_000)

    assert second.result(0).error is None
    assert second.result(0).pending != key
    (one, *again) = world.of("a", api.PendingCommit)[1:]
    assert {each.id for each in again} == {one.id}, "twice in the log it is one entry"


def test_a_word_that_comes_too_late_is_told(world: LakeWorld) -> None:
    """An operator has decided: the reader begins again from what is committed."""
    (user,) = world.join("a")
    key = world.accepted(user)
    world.say(user, key, "abort")

    error = world.say(user, key).result(0).error

    assert isinstance(error, GroupError)
    assert error.code is ErrorCode.INVALID_TXN_STATE


def test_a_commit_that_comes_once_more_late_holds_up_nothing(world: LakeWorld) -> None:
    """A producer that was given up writes it again when it is decided. It made an entry of which no
    program knew, and the member's next batch waited for its decision for ever.
    """
    (user,) = world.join("a")
    key = world.accepted(user)
    assert world.write(user, key)
    assert world.say(user, key).result(0).error is None
    (first,) = (r for each in world.log.batches for r in each if isinstance(r, api.PendingCommit))
    world.log.append(user.member.identity.shard, first)
    world.run(1_000)

    later = world.commit(user)
    world.run(1_000)
    assert later.result(0).error is None
    assert world.write(user, later.result(0).pending)
    assert world.say(user, later.result(0).pending).result(0).error is None
    assert world.fetched(user) == dict.fromkeys(user.owns, 7)


def test_a_commit_that_comes_twice_before_it_is_decided_is_one(world: LakeWorld) -> None:
    """Its second answer names the entry that is being written: it must not be dropped."""
    (user,) = world.join("a")
    key = world.accepted(user)
    (first,) = (r for each in world.log.batches for r in each if isinstance(r, api.PendingCommit))
    world.log.append(user.member.identity.shard, first)
    world.run(1_000)

    assert world.write(user, key)
    assert world.say(user, key).result(0).error is None
    assert world.fetched(user) == dict.fromkeys(user.owns, 7)


@pytest.mark.parametrize(
    ("coordinate", "offset"),
    [("r1-57", 57), ("r0-0", 0), ("", -1), ("7-x", -1), ("r1-", -1), ("r1-" + "9" * 30, -1)],
)
def test_the_offset_in_a_coordinate(coordinate: str, offset: int) -> None:
    """Answers come from the wire: whatever stands there must not end a member."""
    assert offset_of(coordinate) == offset
