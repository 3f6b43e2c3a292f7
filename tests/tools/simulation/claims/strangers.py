"""Who else writes to a world's coordination topic: admins, Marshal's clients, and anybody."""

from random import Random
from typing import Final

from confluent_kafka import KafkaException

from coordlib.client.claims.admin import ClaimsAdmin, _Work
from coordlib.client.claims.resetting import Step
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import claims
from coordlib.errors import CannotReach
from tests.tools.claims.logs import _RAW
from tests.tools.simulation.claims.world import ADMIN, GROUP, ClaimsWorld
from tests.tools.simulation.cluster import EPOCH_MS
from tests.tools.simulation.lasting import Lasting
from tests.tools.simulation.scheduler import Process

HOUR_S: Final = 3_600
#: A group of Marshal's own clients, beside ours.
LEGACY: Final = "legacy"


def _say(world: ClaimsWorld, message: claims.AnyMessage, partition: int | None = None) -> None:
    if world.cluster.is_up:
        own = claims.partition_of(message.topic, world.plan.partitions)
        number = own if partition is None else partition
        world.cluster.append((world.plan.topic, number), None, claims.encode(message))


def pause(world: ClaimsWorld, for_s: int) -> None:
    """As `ClaimsAdmin.pause` writes it; 0: the group goes on."""
    now_s = (EPOCH_MS + world.scheduler.now_ms) // 1_000
    for number in range(world.plan.partitions):
        names = ("ad314159", f"{ADMIN}-pause", GROUP, "", 0)
        made = claims.ReleaseGroup(claims.OUR_VERSION, now_s, *names, now_s + for_s)
        _say(world, made, number)


def paused(world: ClaimsWorld, luck: Random, for_ms: int) -> Lasting:
    ends_by_itself = luck.random() < 0.5
    pause(world, max(1, (for_ms if ends_by_itself else 10 * for_ms) // 1_000))
    yield
    if not ends_by_itself:
        pause(world, 0)


def positions_set(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """An admin sets positions; in half of the times it dies at one of its steps."""
    topic = luck.choice(world.topics)
    wanted = {
        TopicPartition(topic, number): luck.randint(0, world.cluster.partitions[topic, number].end)
        for number in range(world.cluster.count(topic))
        if luck.random() < 0.7
    }
    name = f"{ADMIN}-{len(world.others)}"
    process = Process(world.scheduler, name)
    transport = world.connect(process, luck)
    if not wanted:
        return
    admin = ClaimsAdmin(
        {"client.id": name}, coordination_topic=world.plan.topic, transport=transport
    )
    patience_s = luck.choice([2, 6]) * world.plan.interval_ms / 1_000
    try:
        work = _Work(transport, admin._plan(GROUP, wanted, patience_s))
    except (CannotReach, KafkaException):
        process.kill()
        return
    world.others.append(process)
    dies_at = luck.choice([None, None, None, *list(Step)[:-1]])

    def look() -> bool:
        if work.is_over or work._machine.step is dies_at:
            world.note("admin ended", name, work._machine.step.value)
            process.kill()
        return process.is_alive

    world.every(50, look)


def marshals_client(world: ClaimsWorld, luck: Random, for_ms: int) -> Lasting:
    """A client of Marshal's own in a group of its own, with a clock that may be wrong."""
    skew_s, is_on = luck.choice([0, 0, 30, -30, HOUR_S]), True
    client, topic = luck.choice(["go-1", "go-2"]), luck.choice(world.topics)

    def write() -> bool:
        now_s = (EPOCH_MS + world.scheduler.now_ms) // 1_000 + skew_s
        number = luck.randrange(world.cluster.count(topic))
        names = (1, now_s, f"go{client[-1]}", client, LEGACY, topic, number)
        kind = luck.choice(["claim", "beat", "beat", "release"])
        if kind == "claim":
            _say(world, claims.ClaimingPartition(*names))
        elif kind == "beat":
            _say(world, claims.Heartbeat(*names, luck.randrange(100)))
        else:
            _say(world, claims.ReleasingPartition(*names, luck.randrange(100)))
        return is_on and not world.is_healing

    world.every(max(100, world.plan.interval_ms // 8), write)
    yield
    is_on = False


def foreign_bytes(world: ClaimsWorld, luck: Random, for_ms: int) -> None:
    """What is no message, or stands where it does not belong."""
    for _ in range(luck.randint(1, 5)):
        place = (world.plan.topic, luck.randrange(world.plan.partitions))
        value = luck.choice(_RAW)
        if luck.random() < 0.4:
            names = (2, 1, "0badc0de", luck.choice(["c1", "stranger"]), GROUP)
            number = luck.choice([0, 3, 2 * 10**9])
            other = luck.choice([*world.topics, "elsewhere"])
            misplaced = claims.partition_of(other, world.plan.partitions) != place[1]
            if misplaced or other == "elsewhere":
                claim = claims.ClaimingPartition(*names, other, number)
                value = claims.encode(claim)
        if world.cluster.is_up:
            world.cluster.append(place, None, value)
