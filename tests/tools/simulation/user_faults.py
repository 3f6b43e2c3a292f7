"""Faults of users: what they do with their consumers, and with what they are handed by them."""

from random import Random

from coordlib.core.wire import api, codec
from tests.tools.simulation import reassigned, wishes
from tests.tools.simulation.lasting import Begin, Lasting, repeated
from tests.tools.simulation.people import disturbed, instance_of, join, somebody
from tests.tools.simulation.program import Program
from tests.tools.simulation.user import PATIENCE_S
from tests.tools.simulation.wishes import Wish
from tests.tools.simulation.world import GROUP, MEMBERS_MAX, PREFIX, TOPICS, World

#: What follows a member's token in an answer that no coordinator has written.
ODD_ENDS = ("x", "", "1e3", "-7", "0x1", "9" * 40, "\u0663", " 1")
#: A request that nobody has made: what is said to be its answer is looked at by members only.
NO_CAUSE = "r0-999999999999"
AGAIN_MS = 100


def _somebody_free(world: World, luck: Random) -> Program | None:
    """One whose thread waits for nothing: it can do something else."""
    program = somebody(world, luck)
    return None if program is None or program.is_blocked else program


def _restart(world: World, luck: Random, program: Program) -> None:
    world.start_program_after(luck.choice([500, 5_000, 15_000]), instance_of(program))


# ---- reading ------------------------------------------------------------------------------------


def bulk_reader(world: World, luck: Random, for_ms: int) -> Lasting:
    """It takes many messages at once, and works on them one after another."""
    if (program := somebody(world, luck)) is not None:
        program.habits.takes = luck.choice([3, 10, 50])
        yield
        program.habits.takes = 1


def seeks(world: World, luck: Random, for_ms: int) -> None:
    """Somebody wants to see the newest records of a partition once more."""
    program = _somebody_free(world, luck)
    places = sorted(program.behind().items()) if program is not None else []
    if program is not None and places:
        place, done = luck.choice(places)
        program.rewind(place, luck.randint(max(0, done - 10), done))


def pauses(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody fetches nothing of what it has for a while; meanwhile the group may rebalance."""
    program = _somebody_free(world, luck)
    if program is None:
        return
    paused = program.consumer.assignment()
    program.consumer.pause(paused)
    program.tell("paused")
    if luck.random() < 0.5:
        join(world, luck, for_ms)
    yield
    if program.is_alive and not program.is_done:
        program.consumer.resume(paused)


# ---- subscriptions ------------------------------------------------------------------------------


def unsubscribes(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody leaves the group and keeps its consumer; it is back at once, or later."""
    program = _somebody_free(world, luck)
    if program is None:
        return
    world.perturbations += 4
    program.consumer.unsubscribe()
    program.tell("unsubscribed")
    if luck.choice([0, for_ms]) != 0:
        yield
    if program.is_alive and not program.is_done:
        program.begin()
        program.tell("subscribed")


def subscription_changes(world: World, luck: Random, for_ms: int) -> None:
    """A member of a classic group wants other topics, by name or by an expression."""
    program = _somebody_free(world, luck)
    if program is None or world.protocol != world.plan.kind:
        return
    world.perturbations += 4
    wish = wishes.draw_classic(luck, TOPICS)
    if world.plan.group_size_max:  # there is no place for one more who reads what nobody does
        wish = luck.choice([Wish(TOPICS), Wish(pattern=wishes.ANYTHING)])
    program.say(wish)


def topic_created(world: World, luck: Random, for_ms: int) -> None:
    """Somebody makes a topic; expressions of classic members may match it."""
    if not world.plan.group_size_max:
        reassigned.topic_appears(world, luck, for_ms)


# ---- callbacks ----------------------------------------------------------------------------------


def next_callback(does: str) -> Begin[World]:
    """It raises, or closes the consumer."""

    def begin(world: World, luck: Random, for_ms: int) -> Lasting:
        program = disturbed(world, luck, by=3)
        if program is None:
            return
        program.habits.next_callback = does
        join(world, luck, for_ms)

        def look() -> bool:
            if program.is_done and not world.is_healing:
                _restart(world, luck, program)
            return not program.is_done and bool(program.habits.next_callback)

        world.every(AGAIN_MS, look)
        yield
        program.habits.next_callback = ""

    return begin


def patient_close(world: World, luck: Random, for_ms: int) -> None:
    """Somebody ends its consumer, and waits until the log knows."""
    program = _somebody_free(world, luck)
    if program is not None:
        world.perturbations += 2
        program.tell("closes_patiently")
        program.close(PATIENCE_S)
        _restart(world, luck, program)


def members_share(world: World, luck: Random, for_ms: int) -> None:
    """One member more in a program that has one: they share its connections and threads."""
    program = _somebody_free(world, luck)
    if program is not None and len(world.living) < MEMBERS_MAX:
        world.perturbations += 1
        world.start_program(host=program.host or program)


# ---- answers that nobody expects ----------------------------------------------------------------


def odd_answers(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody who may write responses, and knows a member's token, answers what nobody asked."""

    def say() -> None:
        program = somebody(world, luck)
        if program is not None:
            identity = program.consumer.member.identity
            answer = api.HeartbeatResponse(
                id=f"{identity.token}-{luck.choice(ODD_ENDS)}",
                client=identity.client,
                group=GROUP,
                cause=NO_CAUSE,
                error="UNKNOWN_SERVER_ERROR",
            )
            place = (f"{PREFIX}.responses", identity.reply)
            world.cluster.append(place, GROUP.encode(), codec.encode(answer))

    return repeated(world, 500, say)


def release_refused(world: World, luck: Random, for_ms: int) -> Lasting:
    """Somebody closes while its Release is not answered, and hears that it is refused for good."""
    is_on = True
    join(world, luck, for_ms)

    def look() -> bool:
        for program in world.living:
            asked = _open_release(program)
            if asked is None or program.is_blocked or program.is_stopped:
                continue
            world.perturbations += 3
            identity = program.consumer.member.identity
            answer = api.ReleaseResponse(
                id=asked.id,
                client=identity.client,
                group=GROUP,
                cause=NO_CAUSE,
                error="INCONSISTENT_GROUP_PROTOCOL",
            )
            place = (f"{PREFIX}.responses", identity.reply)
            world.cluster.append(place, GROUP.encode(), codec.encode(answer))
            program.tell("closes_patiently")
            program.close(PATIENCE_S)
            _restart(world, luck, program)
            return False
        return is_on and not world.is_healing

    world.every(20, look)
    yield
    is_on = False


def _open_release(program: Program) -> api.Release | None:
    """A Release of this member that waits for its answer."""
    for ask in program.consumer.member._machine._pending._open.values():
        if isinstance(ask.request, api.Release) and ask.again_ms is None:
            return ask.request
    return None
