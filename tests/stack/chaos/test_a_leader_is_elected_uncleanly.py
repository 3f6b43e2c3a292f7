"""A replica that lags becomes the leader: what Kafka had acknowledged is gone, with no retention.

Three nodes: the controller, and two brokers with the replicas of a coordinator's topics.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,  # type: ignore[attr-defined]  # not in its stubs
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import KafkaTransport
from coordlib.core.wire import api
from coordlib.local.broker import Broker
from coordlib.local.jars import ensure_jars
from coordlib.local.progress import silent
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
PATIENCE_S = 300.0
REPLICAS = [2, 3]
TOPICS = ("coord.requests", "coord.responses")


class Node(Broker):
    """A broker of another one's cluster, whose controller is there."""

    def __init__(self, home: Path, jars: Sequence[Path], number: int, first: Broker) -> None:
        super().__init__(home, jars)
        self._number, self._first = number, first

    def _render(self, ports: tuple[int, int]) -> None:
        super()._render(ports)
        assert self._first.ports is not None
        path = self.home / "server.properties"
        path.write_text(
            path.read_text()
            .replace("process.roles=broker,controller", "process.roles=broker")
            .replace("node.id=1", f"node.id={self._number}")
            .replace(f",CONTROLLER://127.0.0.1:{ports[1]}", "")
            .replace(f"1@127.0.0.1:{ports[1]}", f"1@127.0.0.1:{self._first.ports[1]}")
        )

    def _format_once(self) -> None:
        if (self.home / "segments" / "meta.properties").exists():
            return
        kept = (self._first.home / "segments" / "meta.properties").read_text().splitlines()
        (cluster,) = (line.partition("=")[2] for line in kept if line.startswith("cluster.id"))
        config = str(self.home / "server.properties")
        command = [*self._java("kafka.tools.StorageTool"), "format", "-t", cluster, "-c", config]
        subprocess.run(command, check=True, capture_output=True)


class Listener:
    """A member, as the transport sees it."""

    def __init__(self, transport: KafkaTransport) -> None:
        self.identity = Identity("g", "c", "aa", 0, 0, transport.place.incarnation)
        self.heard: list[sg.Input] = []

    def feed(self, event: sg.Input) -> None:
        self.heard.append(event)

    def fail(self, problem: Exception) -> None:
        raise AssertionError from problem

    def wake_ms(self) -> int | None:
        return None

    def reading_lasts_ms(self) -> int | None:
        return 0

    def of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.heard if isinstance(each, kind)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Broker]]:
    jars = ensure_jars(silent).broker
    first = Broker(tmp_path / "1", jars)
    started = [first, *(Node(tmp_path / str(each), jars, each, first) for each in REPLICAS)]
    try:
        for each in started:
            each.start(PATIENCE_S)
        yield started
    finally:
        for each in reversed(started):
            each.kill()


def make_topics(admin: AdminClient) -> None:
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topics = [
        NewTopic(each, 1, replica_assignment=[REPLICAS], config=config)  # type: ignore[call-arg]
        for each in TOPICS
    ]
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)


def in_sync(admin: AdminClient, topic: str) -> list[int]:
    with suppress(KafkaException, KeyError):  # a topic may be told of before its partitions
        found = admin.list_topics(topic, timeout=10).topics[topic]
        return sorted(found.partitions[0].isrs)
    return []


def leader(admin: AdminClient, topic: str) -> int:
    with suppress(KafkaException, KeyError):
        return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)
    return -1


def is_known(nodes: list[Broker], topic: str) -> bool:
    """Whether every broker answers for the partition that it leads, or names its leader."""
    for each in nodes[1:]:
        alone = AdminClient({"bootstrap.servers": each.bootstrap_servers, "log_level": 2})
        try:
            future = alone.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
            for answer in future.values():
                answer.result(PATIENCE_S)
        except KafkaException:
            return False
    return True


def is_written_again(transport: KafkaTransport, member: Listener) -> bool:
    """As members do: the request of a new producer may be the one that finds the cut."""
    known = len(member.heard)
    again = api.FindCoordinator(v=1, id=f"aa-{known}", client="c", group="g", reply=0)
    transport.send(member, again)
    ends = sg.Acknowledged | sg.NotWritten
    wait_until(
        "it is written or not",
        lambda: any(isinstance(each, ends) for each in member.heard[known:]),
        PATIENCE_S,
    )
    return any(isinstance(each, sg.Acknowledged) for each in member.heard[known:])


def elect(admin: AdminClient) -> None:
    """The replica that lags, in place of the one that is gone."""
    places = [TopicPartition(each, 0) for each in TOPICS]
    with suppress(KafkaException):
        admin.elect_leaders(ElectionType.UNCLEAN, places).result(PATIENCE_S)


@pytest.mark.timeout(1_800)
def test_members_of_a_lagging_leader_stop_and_go_on(nodes: list[Broker]) -> None:
    """Requests that Kafka had acknowledged are gone, and so are responses that a member had read:
    it is told to stop and to join anew, and its transport lives.  # INV-105 INV-156"""
    servers = ",".join(each.bootstrap_servers for each in nodes)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    make_topics(admin)
    for topic in TOPICS:
        wait_until("both are in sync", lambda t=topic: in_sync(admin, t) == REPLICAS, PATIENCE_S)
        wait_until("both say who leads", lambda t=topic: is_known(nodes, t), PATIENCE_S)
    transport = KafkaTransport({"bootstrap.servers": servers}, "coord", "c", 0, PATIENCE_S)
    member = Listener(transport)
    transport.attach(member)

    def send(count: int) -> None:
        had = len(member.of(sg.Acknowledged))
        for number in range(count):
            id_ = f"aa-{len(member.heard)}-{number}"
            transport.send(member, api.FindCoordinator(v=1, id=id_, client="c", group="g", reply=0))
        wait_until(
            "it is acknowledged", lambda: len(member.of(sg.Acknowledged)) >= had + count, PATIENCE_S
        )

    try:
        send(3)
        nodes[2].stop()
        for topic in TOPICS:
            wait_until("one is left", lambda t=topic: in_sync(admin, t) == [2], PATIENCE_S)
        send(20)
        others = Producer({"bootstrap.servers": servers, "log_level": 2})
        for _ in range(20):
            others.produce("coord.responses", b"x", partition=0)
        assert others.flush(PATIENCE_S) == 0
        wait_until("it has read them", lambda: transport._reader._position >= 20, PATIENCE_S)
        newest = max(each.offset for each in member.of(sg.Acknowledged))
        assert member.of(sg.LogCut) == []

        nodes[1].kill()
        nodes[2].start(PATIENCE_S)
        elect(admin)
        for topic in TOPICS:
            wait_until("it leads", lambda t=topic: leader(admin, t) == 3, PATIENCE_S)
        transport.send(
            member, api.FindCoordinator(v=1, id="aa-late", client="c", group="g", reply=0)
        )
        wait_until("it is told to stop", lambda: bool(member.of(sg.LogCut)), PATIENCE_S)

        wait_until(
            "a repeat is acknowledged", lambda: is_written_again(transport, member), PATIENCE_S
        )
        assert member.of(sg.Acknowledged)[-1].offset < newest, "the log is shorter"
        wait_until("it reads on", lambda: transport._reader._position < 20, PATIENCE_S)
        transport.check()
    finally:
        transport.close()
