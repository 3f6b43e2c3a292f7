"""The copy of new positions in Kafka's group: in one commit, and taken back with all else."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from coordlib.client.claims.admin import ClaimsAdmin
from coordlib.client.claims.resetting import Step
from coordlib.client.kit.events import TopicPartition
from coordlib.errors import CannotReach
from tests.client.claims.test_admin import Admin, reading
from tests.client.claims.test_interrupted_admin import time_goes_on
from tests.client.claims.world import GROUP, HI_MS, RELEASE, World, t

BEFORE = {t(0)[0]: 10, t(1)[0]: 10}
WANTED = {t(0)[0]: 3, t(1)[0]: 4}
Positions = Mapping[TopicPartition, int]


def at_work(world: World) -> None:
    """A consumer has read everything, and Kafka's group has its positions."""
    reading(world, 10, 10)
    world.enter("a", greedy_claims=True)
    world.run(2 * HI_MS)


def copies(world: World) -> Positions:
    """What Kafka's group has."""
    return {place: world.log.committed[GROUP, place] for place in WANTED}


def on_commit(transport: Any, *steps: Callable[[], None]) -> list[Positions]:
    """Do one step at each commit, before Kafka takes it; all that is committed."""
    usual, seen, left = transport.commit, list[Positions](), list(steps)

    def commit(group: str, positions: Positions, is_awaited: bool) -> None:
        if left:
            left.pop(0)()
        seen.append(dict(positions))
        usual(group, positions, is_awaited)

    transport.commit = commit
    return seen


def interrupt(admin: Admin) -> None:
    admin.work._do(admin.life.interrupt("it was interrupted", admin.world.log.now_ms))


def lose() -> None:
    raise CannotReach("No answer.")


def test_a_copy_under_way_is_taken_back_when_it_has_ended() -> None:
    """Kafka's group stayed at the new positions: nothing was undone before the answer, or after."""
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    seen = on_commit(admin.transport, lambda: interrupt(admin))
    outcomes = admin.run()

    assert seen == [WANTED, BEFORE]
    assert copies(world) == BEFORE
    assert [(each.error, each.is_copied) for each in outcomes] == [("it was interrupted", True)] * 2


def test_a_claim_that_is_lost_while_positions_are_copied_takes_the_copy_back() -> None:
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    seen = on_commit(
        admin.transport, lambda: admin.life._fail(admin.life._targets[t(1)[0]], "it was taken")
    )
    outcomes = admin.run()

    assert seen == [WANTED, BEFORE]
    assert copies(world) == BEFORE
    assert all(each.error and each.is_copied for each in outcomes)


def test_a_copy_without_an_answer_is_taken_back_too() -> None:
    """Kafka has taken it, and nobody heard of that."""
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)

    def is_lost() -> None:
        world.log.committed |= {(GROUP, place): new for place, new in WANTED.items()}
        interrupt(admin)
        lose()

    on_commit(admin.transport, is_lost)
    outcomes = admin.run()

    assert copies(world) == BEFORE
    assert all(each.error and each.is_copied for each in outcomes)


def test_what_cannot_be_taken_back_is_said() -> None:
    """Every partition that was not set was said to be as before in Kafka's group."""
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    on_commit(admin.transport, lambda: interrupt(admin), lose)
    outcomes = admin.run()

    assert all(each.error and not each.is_copied for each in outcomes)
    assert world.log.world("t").paused_by(GROUP) is None


def test_what_an_interrupt_leaves_in_kafkas_group_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"t": 2})
    reading(world, 10, 10)
    transport: Any = world.log.transport()
    check = transport.check

    def fail() -> None:
        raise CannotReach("The transport has failed.")

    def copied() -> None:
        monkeypatch.setattr(transport, "is_unacknowledged", True)  # its signs; so it waits
        monkeypatch.setattr(transport, "check", fail)

    def taken_back() -> None:
        monkeypatch.setattr(transport, "is_unacknowledged", False)
        lose()

    on_commit(transport, copied, taken_back)
    admin = ClaimsAdmin({"client.id": "admin"}, transport=transport)
    with time_goes_on(world), pytest.raises(CannotReach) as ended:
        admin.set_positions(GROUP, WANTED, timeout_s=60)

    assert transport.check is not check
    (note,) = ended.value.__notes__
    assert note == (
        "0 of 2 positions are set, the others are as before. Kafka's group may have 2 positions "
        "that differ, until their next owners copy them. The group continues."
    )


def test_a_release_that_fails_is_no_copy_that_agrees() -> None:
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    send = admin.transport.send

    def refuse(handler: Any, id_: int, partition: int, made: Any) -> None:
        if isinstance(made(0), RELEASE) and made(0).partition == 1:
            admin.transport.fail_next += 1
        send(handler, id_, partition, made)

    admin.transport.send = refuse  # type: ignore[method-assign]
    outcomes = admin.run()

    assert [bool(each.error) for each in outcomes].count(True) == 1
    assert all(each.is_copied is not bool(each.error) for each in outcomes)


def test_all_positions_go_in_one_commit() -> None:
    """One for each partition, in a pool of four: most of a large group's were late."""
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    seen = on_commit(admin.transport)
    outcomes = admin.run()

    assert seen == [WANTED]
    assert all(each.is_copied for each in outcomes)


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_copy_that_waited_too_long_for_a_worker_is_dropped(gives_up: bool) -> None:
    """It could undo what the next owner has copied meanwhile."""
    world = World({"t": 2})
    at_work(world)
    admin = Admin(world, WANTED)
    waiting: list[Callable[[], None]] = []
    admin.transport.in_background = lambda _, work: waiting.append(work)  # type: ignore[method-assign]
    for _ in range(200):
        world.run(50)
        if waiting:
            break
    assert admin.life.step is Step.COPYING
    if gives_up:
        interrupt(admin)
    outcomes = admin.run()
    world.run(2 * HI_MS)
    before = copies(world)
    seen = on_commit(admin.transport)
    for work in waiting:
        work()

    assert seen == []
    assert copies(world) == before
    assert [each.is_copied for each in outcomes] == [gives_up] * 2
