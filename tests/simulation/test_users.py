"""What users do in a simulated world, how they wait in it, and what is seen when a client fails."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.kit import events as sg
from coordlib.core.wire import api
from coordlib.demo.history import Happened
from tests.simulation.test_checks import assert_breaks
from tests.tools.checking import checkers
from tests.tools.simulation import checks, drawing, plan, transport, wishes
from tests.tools.simulation.kinds import FIRST_KINDS, KINDS, LATER_KINDS, NEEDS
from tests.tools.simulation.plan import Fault
from tests.tools.simulation.program import Program
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play, who_leaves_others
from tests.tools.simulation.scheduler import Gone, Process, Scheduler
from tests.tools.simulation.user import CLOSES, RAISES
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import Violation, World

SETTLED_MS = 15_000


@cache
def _calm() -> plan.Plan:
    found = (drawing.draw(seed, kind=plan.CLASSIC) for seed in range(1_000))
    calm = next(each for each in found if each.shards == 1 and not each.group_size_max)
    return replace(calm, faults=(), length_ms=40_000, requires_member_id=False)


@quiet_logs()
def at_work(members: int = 2, **traits: Any) -> tuple[World, list[Program]]:
    """A world in which some members share all topics, and records keep coming."""
    world = World(replace(_calm(), **traits))
    world.start_driver(0)
    programs = [world.start_program(wish=Wish(world.topics)) for _ in range(members)]
    for number in range(60):
        topic = world.topics[number % len(world.topics)]
        place = (topic, number % world.cluster.count(topic))
        write = partial(world.cluster.append, place, None, b"")
        world.scheduler.after(100 * number, lambda write=write: write() and None)
    world.scheduler.run(SETTLED_MS, world.check)
    return world, programs


def goes_on(world: World, for_ms: int = 10_000) -> None:
    with quiet_logs():
        world.scheduler.run(world.scheduler.now_ms + for_ms, world.check)


def lines(world: World, program: Program, what: str) -> list[Happened]:
    return [each for each in world.history if (each.member, each.what) == (program.name, what)]


# ---- the plan -----------------------------------------------------------------------------------


def test_later_kinds_change_nothing_that_a_seed_drew_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs are found by the seeds that their headers name."""

    def first(drawn: plan.Plan) -> list[plan.Fault]:
        return [fault for fault in drawn.faults if fault.kind in FIRST_KINDS]

    with_them = [drawing.draw(seed) for seed in range(50)]
    monkeypatch.setattr(drawing, "_later_swarm", lambda luck, kind: ())
    without = [drawing.draw(seed) for seed in range(50)]

    for one, other in zip(with_them, without, strict=True):
        assert first(one) == first(other)
        assert (one.members, one.batch_ms, one.kind) == (other.members, other.batch_ms, other.kind)
    assert [fault.kind for fault in without[3].faults][:3] == FIRST_FAULTS_OF_SEED_3


#: Should this change, a kind was added to FIRST_KINDS: put it among the later ones.
FIRST_FAULTS_OF_SEED_3 = ["state-corrupt", "slow-batches", "driver-away"]


def test_every_kind_is_drawn_and_has_the_world_that_it_needs() -> None:
    """A crowd in a world whose bounds are far away would show nothing."""
    drawn = [drawing.draw(seed) for seed in range(1_000)]
    kinds = {fault.kind for each in drawn for fault in each.faults}

    assert kinds == KINDS.keys()
    assert FIRST_KINDS.keys().isdisjoint(LATER_KINDS)
    for each in drawn:
        for kind in {fault.kind for fault in each.faults} & NEEDS.keys():
            assert all(getattr(each, name) == value for name, value in NEEDS[kind].items())


def test_half_of_the_worlds_have_the_production_s_settings() -> None:
    """There a broken invariant sets nothing aside: it goes on until something falls over."""
    drawn = [drawing.draw(seed).checks_invariants for seed in range(1_000)]

    assert 400 < sum(drawn) < 600
    assert World(drawing.draw(drawn.index(0))).engine.settings.checks_invariants is False


# ---- waiting ------------------------------------------------------------------------------------


def test_who_waits_lets_everything_else_happen() -> None:
    """A thread that waits for an answer must not keep the answer from coming."""
    scheduler = Scheduler(Random(1))
    process, seen = Process(scheduler, "a"), []
    answer: Future[int] = Future()

    def ask() -> None:
        scheduler.after(500, lambda: answer.set_result(7))
        seen.append((process.wait(2_000, answer.done), scheduler.now_ms))

    scheduler.after(0, ask)
    scheduler.run(10_000, lambda: None)

    assert seen == [(True, 500)]


def test_nobody_waits_longer_than_his_time_or_the_world() -> None:
    """What does not come in time has not come."""
    scheduler = Scheduler(Random(1))
    process, seen = Process(scheduler, "a"), []
    for at_ms in range(0, 20_000, 100):
        scheduler.after(at_ms, lambda: None)
    scheduler.after(0, lambda: seen.append((process.wait(2_000, bool), scheduler.now_ms)))
    scheduler.after(8_000, lambda: seen.append((process.wait(9_000, bool), scheduler.now_ms)))

    scheduler.run(10_000, lambda: None)

    assert seen == [(False, 2_000), (False, 10_000)]


def test_who_is_killed_while_he_waits_does_nothing_any_more() -> None:
    """Nothing of a dead process may go on, neither may what stands behind its waiting."""
    scheduler = Scheduler(Random(1))
    process, seen = Process(scheduler, "a"), []

    def ask() -> None:
        with pytest.raises(Gone):
            process.wait(9_000, bool)
        seen.append(scheduler.now_ms)

    scheduler.after(0, ask)
    scheduler.after(700, process.kill)
    scheduler.run(10_000, lambda: None)

    assert seen == [700]


# ---- users --------------------------------------------------------------------------------------


def test_a_user_who_takes_many_messages_works_on_all_of_them_once() -> None:
    """And what he has not done is in no commit: the checks of the end would see it."""
    world, (first, _) = at_work()
    first.habits.takes = 10
    place = sorted(first.held)[0]
    for _ in range(12):
        world.cluster.append(place, None, b"")

    goes_on(world)

    assert first.counts["many"] > 0
    assert checkers.check(world.history) == []


def test_a_user_who_waits_for_his_commit_hears_of_it_before_he_goes_on() -> None:
    """On virtual time, with the real client's own waiting."""
    world, (first, _) = at_work()
    first.habits.waits, first.habits.commit_every = True, 1
    world.cluster.append(sorted(first.held)[0], None, b"")

    goes_on(world)

    assert first.counts["waited"] > 0
    (act,) = [line for line in lines(world, first, "act") if line.t_ms > SETTLED_MS]
    (committed,) = [line for line in lines(world, first, "committed") if line.t_ms > SETTLED_MS]
    assert committed.t_ms > act.t_ms


def test_a_user_who_goes_back_sees_the_same_again_and_may() -> None:
    """INV-58, INV-60: from there on, and nothing before it."""
    world, (first, _) = at_work()
    place, done = sorted(first.behind().items())[0]
    first.rewind(place, done - 1)

    goes_on(world)

    again = [line for line in lines(world, first, "act") if line.t_ms > SETTLED_MS]
    assert [line.offset for line in again][:1] == [done - 1]
    assert checkers.check(world.history) == []


def test_what_was_paused_is_not_read_until_it_is_resumed() -> None:
    world, (first, _) = at_work()
    place = sorted(first.held)[0]
    first.consumer.pause([KafkaTopicPartition(*place)])
    world.cluster.append(place, None, b"")
    goes_on(world)
    acts = first.acts

    first.consumer.resume([KafkaTopicPartition(*place)])
    goes_on(world)

    assert first.acts == acts + 1


def test_a_callback_that_raises_stops_neither_the_user_nor_the_group() -> None:
    """What it had not committed its successor does again, and says why."""
    world, (first, _) = at_work()
    first.habits.next_callback = RAISES
    world.start_program(wish=Wish(world.topics))

    goes_on(world, 30_000)

    assert len(lines(world, first, "callback_raised")) == 1
    checks.check_peace(world)
    assert checkers.check(world.history) == []


def test_members_of_one_process_die_together() -> None:
    """And none before: who is closed leaves the connection to the others."""
    world, (first, _) = at_work()
    second = world.start_program(wish=Wish(world.topics), host=first)
    goes_on(world, 20_000)
    assert second.transport is first.transport
    checks.check_peace(world)

    first.close()
    goes_on(world, 20_000)
    assert first.is_alive
    assert second.may_act_on()

    second.kill()
    assert not first.is_alive


def test_nobody_is_mourned_whose_process_is_the_last() -> None:
    """INV-29 speaks of the others: where all members share a process there are none."""
    world, (first, other) = at_work()
    world.start_program(wish=Wish(world.topics), host=first)
    assert who_leaves_others(world) is first

    other.kill()
    assert who_leaves_others(world) is None


def test_expressions_never_mean_the_job_s_own_topics() -> None:
    """Whatever they match: a group that read `coord.lag` would feed itself."""
    everything = Wish(pattern=wishes.ANYTHING)

    assert everything.among(["coord.lag", "orders"]) == ("orders",)
    assert Wish(("orders",), pattern="p.*").words() == ["orders", "^(?:p.*)$"]


# ---- what is seen of a client that fails --------------------------------------------------------


def test_a_handler_that_raises_in_the_transport_s_thread_is_seen() -> None:
    """INV-70: every member of the program would be dead from then on."""
    world, (first, _) = at_work()

    feed = first.consumer.member.feed

    def raises(event: sg.Input) -> None:
        if isinstance(event, sg.ReadToEnd):  # nothing that its own user's thread would hear
            raise ValueError("invalid literal for int()")
        feed(event)

    first.consumer.member.feed = raises  # type: ignore[method-assign]

    assert_breaks("INV-70.*ValueError", lambda: goes_on(world))


def test_a_request_of_a_member_that_is_closed_is_seen() -> None:
    """INV-29: its own producer is closed by then, and others wait for its session."""
    _, (first, _) = at_work()
    member = first.consumer.member
    leave = api.LeaveGroup(v=1, id="1", client="a", group="g", members=(api.Leaver(member="m"),))
    first.transport.detach(member)

    assert_breaks("INV-29", lambda: first.transport.send(member, leave))


def test_who_is_closed_and_does_not_say_so_is_seen() -> None:
    """INV-29."""
    _, (first, _) = at_work()
    first._close_consumer = lambda patience_s: None  # type: ignore[method-assign]

    assert_breaks("INV-29.*no LeaveGroup", first.close)


def test_who_is_closed_in_a_callback_and_does_not_say_so_is_seen() -> None:
    """INV-29: it is looked at when the callback has returned."""
    world, (first, _) = at_work()
    first._close_consumer = lambda patience_s: None  # type: ignore[method-assign]
    first.habits.next_callback = CLOSES
    world.start_program(wish=Wish(world.topics))

    assert_breaks("INV-29.*no LeaveGroup", lambda: goes_on(world, 30_000))


def test_a_poll_that_uses_a_consumer_that_is_closed_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-29: confluent-kafka raises RuntimeError then, and a user hears it from `poll`."""
    world, (first, _) = at_work()

    def raises(timeout: float) -> None:
        raise RuntimeError("Consumer closed")

    monkeypatch.setattr(first.consumer, "poll", raises)

    assert_breaks("INV-29.*Consumer closed", lambda: goes_on(world))


def test_what_a_check_of_the_transport_raises_is_not_called_by_another_name() -> None:
    """Checks run inside of what happens, also inside a handler."""

    class Handler:
        identity = None

        def feed(self, event: object) -> None:
            raise Violation("INV-21: two")

    feed: Callable[..., None] = transport._feed
    assert_breaks("INV-21", lambda: feed(Handler(), None))


def test_a_world_of_users_keeps_every_promise() -> None:
    """What follows from the faults is about the client, and not about the stand-ins."""
    kinds = ("bulk-reader", "user-seeks", "user-pauses", "commit-waits", "members-share")
    faults = tuple(Fault(12_000 + 3_000 * n, kind, 9_000, n) for n, kind in enumerate(kinds))
    world = World(replace(_calm(), faults=faults))

    with quiet_logs():
        play(world)
