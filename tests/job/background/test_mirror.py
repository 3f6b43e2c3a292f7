"""The mirror against a Kafka group that refuses, forgets and is written by others."""

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.errors import SetupError
from coordlib.job.background import committed_log
from coordlib.job.background import offset_watch as module
from coordlib.job.background.committed_log import CommittedOffsets
from coordlib.job.background.loop import HealthReport
from coordlib.job.background.offset_watch import Mirror, chosen
from coordlib.kafka.logs import Place

ORDERS, OTHERS = Place("orders", 0), Place("others", 0)
BUSY = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
GONE = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class FakeGroups:
    """Kafka's own groups, and what is asked of them."""

    def __init__(self) -> None:
        self.held: dict[str, dict[Place, int]] = {}
        self.calls: list[str] = []
        self.refuses: dict[Place, KafkaError] = {}
        self.failure: Exception | None = None

    def write(self, group: str, offsets: Mapping[Place, int]) -> dict[Place, KafkaError]:
        self._note(f"write {group} {len(offsets)}")
        refused = {place: self.refuses[place] for place in offsets if place in self.refuses}
        taken = {place: offset for place, offset in offsets.items() if place not in refused}
        if taken:
            self.held.setdefault(group, {}).update(taken)
        return refused

    def delete(self, group: str) -> None:
        self._note(f"delete {group}")
        self.held.pop(group, None)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure

    def called(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


class World:
    def __init__(self) -> None:
        self.now_s = 50.0
        self.kafka = FakeGroups()
        self.offsets = CommittedOffsets()
        self.mirror = Mirror(
            self.kafka,
            chosen(("billing", "^a-.*")),
            lambda: self.now_s,
            HealthReport(lambda: round(1000 * self.now_s)),
        )

    def commit(self, group: str, place: Place, offset: int | None) -> None:
        self.offsets.put(group, place, offset)
        self.mirror.changed(group, place, offset)

    def turn(self) -> list[str]:
        self.mirror.turn(self.offsets)
        return self.kafka.called()


@pytest.fixture
def world() -> World:
    return World()


def test_only_groups_that_are_named_are_copied_and_many_offsets_at_once(world: World) -> None:
    world.commit("billing", ORDERS, 3)
    world.commit("billing", OTHERS, 5)
    world.commit("a-1", ORDERS, 7)
    world.commit("ba-1", ORDERS, 7)

    assert world.turn() == ["write billing 2", "write a-1 1"]
    assert world.kafka.held == {"billing": {ORDERS: 3, OTHERS: 5}, "a-1": {ORDERS: 7}}
    assert world.turn() == []


def test_a_group_that_is_left_out_is_not_deleted_at_kafka(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more offsets than are followed, and this group lost the last of its own: it is
    there all the same, and deleting Kafka's copy would send its readers back to the beginning."""
    world.commit("billing", ORDERS, 3)
    world.turn()
    monkeypatch.setattr(committed_log, "OFFSETS_MAX", 0)
    world.offsets.trim()
    world.now_s += module.CHECK_EVERY_S

    assert world.turn() == []

    assert world.kafka.held == {"billing": {ORDERS: 3}}


def test_of_many_commits_the_newest_is_written_also_if_it_is_lower(world: World) -> None:
    """A group was reset to an earlier offset: tools must show that too."""
    for offset in (3, 9, 4):
        world.commit("billing", ORDERS, offset)
    world.turn()
    world.commit("billing", ORDERS, 2)

    assert world.turn() == ["write billing 1"]
    assert world.kafka.held["billing"] == {ORDERS: 2}


def test_a_group_with_live_members_is_told_and_tried_again_ever_more_seldom(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody still runs a Kafka consumer of that name: it must not be disturbed, nor the job."""
    world.kafka.refuses = {ORDERS: BUSY}
    world.commit("billing", ORDERS, 3)
    world.turn()
    assert world.mirror.failing.keys() == {"billing"}
    assert "has members" in world.mirror.failing["billing"].error
    assert world.turn() == []
    tries = 0
    for _ in range(600):
        world.now_s += 1
        tries += bool(world.turn())
    assert 8 < tries < 20
    told = world.mirror.failing["billing"]
    assert (told.since_ms, told.last_ms > told.since_ms) == (50_000, True)
    assert capsys.readouterr().out.count("cannot be copied") == 1
    world.kafka.refuses = {}
    world.now_s += module.RETRY_MAX_S

    world.turn()

    assert world.mirror.failing == {}
    assert world.kafka.held["billing"] == {ORDERS: 3}


def test_one_group_that_fails_does_not_hold_up_the_others(world: World) -> None:
    world.kafka.refuses = {OTHERS: BUSY}
    world.commit("a-1", OTHERS, 3)
    world.commit("billing", ORDERS, 3)

    world.turn()

    assert world.kafka.held == {"billing": {ORDERS: 3}}


def test_a_deleted_topic_holds_nothing_up_and_is_not_tried_until_the_next_check(
    world: World,
) -> None:
    world.kafka.refuses = {OTHERS: GONE}
    world.commit("billing", OTHERS, 5)
    world.commit("billing", ORDERS, 3)
    world.turn()
    world.commit("billing", ORDERS, 4)
    assert world.turn() == ["write billing 1"]
    assert world.mirror.failing == {}
    world.kafka.refuses = {}
    world.now_s += module.CHECK_EVERY_S

    assert world.turn() == ["write billing 2"]
    assert world.kafka.held["billing"] == {ORDERS: 4, OTHERS: 5}


def test_what_others_have_written_is_put_right_at_the_next_check(world: World) -> None:
    """A driver of ours that was suspended in a request wakes up and writes an older offset."""
    world.commit("billing", ORDERS, 9)
    world.turn()
    world.kafka.held["billing"][ORDERS] = 3
    assert world.turn() == []
    world.now_s += module.CHECK_EVERY_S

    assert world.turn() == ["write billing 1"]
    assert world.kafka.held["billing"] == {ORDERS: 9}


def test_an_answer_that_never_came_is_made_up_for(world: World) -> None:
    """Nobody knows whether the write went through: it is written again, and may then be deleted."""
    world.commit("billing", ORDERS, 9)
    world.kafka.failure = TimeoutError()
    assert world.turn() == ["write billing 1"]
    world.kafka.failure = None
    world.now_s += 1

    assert world.turn() == ["write billing 1"]
    assert world.mirror.failing == {}


def test_a_deleted_group_is_deleted_and_forgotten(world: World) -> None:
    world.commit("billing", ORDERS, 9)
    world.turn()
    world.commit("billing", ORDERS, None)

    assert world.turn() == ["delete billing"]
    assert world.kafka.held == {}
    world.now_s += 2 * module.CHECK_EVERY_S
    assert world.turn() == []


def test_a_group_that_comes_again_after_its_deletion_is_written(world: World) -> None:
    """Deleted and created within one turn: no offset of the former life decides what is written."""
    world.commit("billing", ORDERS, 9)
    world.turn()
    world.commit("billing", ORDERS, None)
    world.commit("billing", ORDERS, 9)

    assert world.turn() == ["write billing 1"]


def test_a_delete_that_fails_is_tried_again(world: World) -> None:
    world.commit("billing", ORDERS, 9)
    world.turn()
    world.commit("billing", ORDERS, None)
    world.kafka.failure = KafkaException(KafkaError(KafkaError.NON_EMPTY_GROUP))
    world.turn()
    assert "has members" in world.mirror.failing["billing"].error
    world.kafka.failure = None
    world.now_s += 1

    assert world.turn() == ["delete billing"]


def test_a_group_that_this_run_has_not_written_is_not_deleted(world: World) -> None:
    """The job starts and reads the tombstones of a group that was deleted yesterday: Kafka's group
    of that name may be somebody else's by now."""
    world.kafka.held = {"billing": {ORDERS: 1}}
    world.commit("billing", ORDERS, None)

    assert world.turn() == []
    assert world.kafka.held == {"billing": {ORDERS: 1}}


def test_a_deleted_offset_is_renewed_no_more_and_the_others_are(world: World) -> None:
    """Kafka lets it expire: deleting the group for it would take what others keep there too."""
    world.commit("billing", ORDERS, 9)
    world.commit("billing", OTHERS, 2)
    world.turn()
    world.commit("billing", ORDERS, None)
    assert world.turn() == []
    world.now_s += module.CHECK_EVERY_S

    assert world.turn() == ["write billing 1"]
    assert world.kafka.held == {"billing": {ORDERS: 9, OTHERS: 2}}


def test_writes_are_cut_into_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITTEN_AT_ONCE_MAX", 2)
    for partition in range(5):
        world.commit("billing", Place("t", partition), 1)

    assert world.turn() == ["write billing 2", "write billing 2", "write billing 1"]


def test_an_expression_that_nobody_can_read_is_refused_at_the_start() -> None:
    with pytest.raises(SetupError, match=r"engine\.mirror_offsets"):
        chosen(("good", "^(bad"))
