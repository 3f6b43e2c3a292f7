"""Members and replicas in one rack find each other; groups that name no rack pay nothing for it.

Replicas of t-0 and t-1 stand in the east, those of t-2 and t-3 in the west.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.client.groups.assignors import BUILT_IN, FunctionAssignor, GroupMemberView
from coordlib.client.kit.data import racks_of, read_racks
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.groups.assignors import range_roundrobin as range_assignor
from coordlib.core.groups.assignors.model import Member, ReplicaRacks
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import CannotReach
from coordlib.kafka import topics
from coordlib.local.broker import Broker
from tests.client import cooperative
from tests.client.world import User, World, t

EAST, WEST = ("east",), ("west",)
RACKS = {"t": (EAST, EAST, WEST, WEST)}


def world_with_racks() -> World:
    world = World({"t": 4})
    world.log.racks.update(RACKS)
    return world


def join_both(world: World, assignor: object = "range") -> tuple[User, User]:
    """Members in the order in which plain range gives the first of them the wrong partitions."""
    (a,) = world.join("a", assignors=(assignor,), rack="west")
    (b,) = world.join("b", assignors=(assignor,), rack="east")
    return a, b


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_members_get_the_partitions_whose_replicas_stand_beside_them(assignor: str) -> None:
    """KIP-881: otherwise every fetch crosses the zones, which costs money."""
    world = world_with_racks()
    a, b = join_both(world, assignor)

    assert (a.owns, b.owns) == (t(2, 3), t(0, 1))


def test_a_leader_divides_as_the_assignor_itself_does() -> None:
    world = world_with_racks()
    a, b = join_both(world)

    expected = range_assignor.assign(
        {
            a.member.member_id: Member(("t",), rack="west"),
            b.member.member_id: Member(("t",), rack="east"),
        },
        {"t": 4},
        RACKS,
    )
    got = {user.member.member_id: {"t": tuple(p for _, p in user.owns)} for user in (a, b)}
    assert got == expected


def test_a_group_without_racks_never_asks_for_them() -> None:
    """Most clusters have none: their leaders read the topics' counts and nothing else."""
    world = world_with_racks()
    world.join("a", "b")

    assert world.log.racks_asked == 0


@pytest.mark.parametrize("assignor", [BUILT_IN["roundrobin"](), cooperative.assignor()])
def test_an_assignor_that_knows_no_racks_is_not_asked_for(assignor: object) -> None:
    world = world_with_racks()
    join_both(world, assignor)

    assert world.log.racks_asked == 0


def test_replicas_that_move_rebalance_nobody_and_the_next_division_goes_by_them() -> None:
    """A reassignment moves replicas one by one: a group must not stop for every step of it."""
    world = world_with_racks()
    a, b = join_both(world)
    generation = a.member.generation
    for number in range(4):
        moved = list(world.log.racks["t"])
        moved[number] = WEST if moved[number] is EAST else EAST
        world.log.racks["t"] = moved
        world.run(6_000)  # the leader looks at the topics every 5 s
    assert (a.member.generation, a.owns, b.owns) == (generation, t(2, 3), t(0, 1))

    world.log.topics["t"] = 6
    world.log.racks["t"] = [*world.log.racks["t"], EAST, WEST]
    world.run(8_000)
    assert (a.owns, b.owns) == (t(0, 1, 5), t(2, 3, 4))


class Near(FunctionAssignor):
    """A user's own, which gives each partition to whoever is in the replica's rack."""

    def assign_near(
        self,
        members: Mapping[str, GroupMemberView],
        partitions: Mapping[str, int],
        racks: ReplicaRacks,
    ) -> Mapping[str, cp.Assignment]:
        member_in = {view.subscription.rack: member for member, view in members.items()}
        given: dict[str, list[int]] = {member: [] for member in members}
        for number in range(partitions["t"]):
            (rack,) = racks["t"][number]
            if rack in member_in:
                given[member_in[rack]].append(number)
        return {m: cp.Assignment(partitions={"t": tuple(some)}) for m, some in given.items()}


def test_a_users_own_assignor_may_look_at_racks() -> None:
    world = world_with_racks()
    a, b = join_both(world, Near("near", cooperative.divide))

    assert (a.owns, b.owns) == (t(2, 3), t(0, 1))


def test_racks_that_cannot_be_read_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group waits for its leader's assignment: a division without racks would stay for long."""
    world = world_with_racks()
    failures = iter([CannotReach("No racks from Kafka."), CannotReach("Nor now.")])

    def fails_twice(topics: Sequence[str]) -> ReplicaRacks:
        for problem in failures:
            raise problem
        return RACKS

    (a,) = world.join("a", rack="west")
    monkeypatch.setattr(a.transport, "replica_racks", fails_twice)
    (b,) = world.join("b", rack="east")
    world.run(3_000)

    assert (a.owns, b.owns) == (t(2, 3), t(0, 1))
    assert list(failures) == []


def test_brokers_that_are_down_or_name_no_rack_add_none() -> None:
    """Partition 1 has lost its metadata, as it may for a moment after it was added."""
    brokers = {"t": {0: [1, 2, 9], 2: [3]}, "u": {}}

    found = racks_of(brokers, {1: "east", 2: "west"})

    nowhere: frozenset[str] = frozenset()
    assert found == {"t": (frozenset({"east", "west"}), nowhere, nowhere), "u": ()}


class RackedBroker(Broker):
    """A broker that says where it stands, as those in the zones of a cloud do."""

    def _render(self, ports: tuple[int, int]) -> None:
        super()._render(ports)
        with (self.home / "server.properties").open("a") as settings:
            settings.write("\nbroker.rack=zone-1\n")


def create(config: dict[str, str], topic: str, partitions: int) -> None:
    """Make a topic, and see that the broker's metadata have it."""
    admin = AdminClient(dict(config))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    deadline = monotonic() + 60
    while len(read_racks(config, [topic]).get(topic, ())) < partitions:
        assert monotonic() < deadline, "the metadata have no such topic"


@pytest.mark.stack
def test_racks_are_read_from_a_real_broker(tmp_path: Path) -> None:
    """Metadata name the replicas' brokers, and the description of the cluster their racks."""
    from coordlib.local.jars import ensure_jars

    broker = RackedBroker(tmp_path / "broker", ensure_jars().broker)
    broker.start()
    try:
        config = {"bootstrap.servers": broker.bootstrap_servers}
        topics.create(config, "coord", 1, 1, 1)
        create(config, "t", 3)  # and with it the metadata have the older ones
        transport = KafkaTransport(config)

        zone = frozenset({"zone-1"})
        assert transport.replica_racks(["t", "not-there"]) == {"t": (zone, zone, zone)}
        transport.close()
    finally:
        broker.stop()


@pytest.mark.stack
def test_a_broker_without_a_rack_and_one_that_does_not_answer(broker: Broker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    create(config, "rackless", 1)

    assert read_racks(config, ["rackless"]) == {"rackless": (frozenset(),)}
    with pytest.raises(CannotReach):
        read_racks({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, ["rackless"], 0.5)
