"""Requests of real members that Kafka had acknowledged, and that no job has judged, are gone.

Retention has removed them, or the log has lost its end. Their members repeat them, or join anew;
whatever was answered with success holds.  # INV-104 INV-105 INV-145
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordlib.client import (
    AssignedMember,
    BrokerAgent,
    BrokerTiming,
    ClassicMember,
    Endpoint,
    Timing,
)
from coordlib.client.kit import events as sg
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import CoordError
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.test_lost_requests import cut
from tests.stack.wire import Wire

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
PATIENCE_S = 300.0
#: All in the shard whose log is cut.
CLASSIC, ASSIGNED, SHOP = (
    next(name for name in (f"{kind}-{n}" for n in range(99)) if shard_of(name, 2) == 0)
    for kind in ("classic", "assigned", "shop")
)
#: Longer than the job is away on a busy machine: whoever joins anew was told to.
TIMING = Timing(session_timeout_ms=120_000, heartbeat_interval_ms=1_000)
BROKER = BrokerTiming(
    session_timeout_ms=120_000, release_timeout_ms=120_000, heartbeat_interval_ms=1_000
)
PLACE = sg.TopicPartition("t", 0)


class Polled:
    """A member or an agent, polled in a thread of its own."""

    def __init__(self, polled: Any) -> None:
        self.polled, self.problems = polled, list[Exception]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._is_over.is_set():
                self.polled.poll(0.1)
        except Exception as problem:  # noqa: BLE001  # the test looks at them
            self.problems.append(problem)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        self.polled.close(0)


class Programs:
    """One of each kind, and later another one of each."""

    def __init__(self, servers: str, open_: ExitStack) -> None:
        self._config, self._open = {"bootstrap.servers": servers}, open_
        self.all: list[Polled] = []

    def _keep(self, made: Any) -> Any:
        program = Polled(made)
        self._open.callback(program.close)
        self.all.append(program)
        return made

    def member(self, kind: Any, group: str) -> Any:
        member = kind(group, self._config, timing=TIMING, client=f"{group}-{len(self.all)}")
        member.subscribe(["t"])
        return self._keep(member)

    def agent(self, number: int) -> BrokerAgent:
        agent = BrokerAgent(
            SHOP,
            self._config,
            broker=number,
            endpoints=[Endpoint("in", "localhost", 9300 + number)],
            timing=BROKER,
        )
        agent.ready()
        self._keep(agent)
        return agent


def requests(stack: Stack) -> Iterator[tuple[str, str]]:
    """Kind and client of each request that the log of the shard has."""
    consumer = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "x"})
    place = TopicPartition("coord.requests", 0, 0)
    try:
        # Not to the end that the library tells of: heartbeats come before it has seen it.
        _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        consumer.assign([place])
        offset = -1
        while offset + 1 < end and (message := consumer.poll(PATIENCE_S)) is not None:
            offset = message.offset()
            value = json.loads(message.value() or b"{}")
            yield value.get("type", ""), value.get("client", "")
    finally:
        consumer.close()


def remove(stack: Stack) -> None:
    """As retention does: all that is there."""
    places = [TopicPartition("coord.requests", 0, OFFSET_END)]
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for done in admin.delete_records(places).values():
        done.result(PATIENCE_S)


def outcome(future: "Future[sg.Answer]") -> str:
    """Empty: it was accepted."""
    try:
        answer = future.result(PATIENCE_S)
    except CoordError as problem:
        return problem.what
    return str(answer.error or answer.failed or "")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("lose", [remove, cut])
def test_members_go_on_and_nothing_is_acknowledged_that_is_gone(
    own_stack: Stack, start_job: Callable[..., None], tmp_path: Path, lose: Callable[[Stack], None]
) -> None:
    """All three kinds, with what they had asked while the job was away: commits of members, the
    joins of newcomers, and the registration of a broker."""
    start_job()
    servers = own_stack.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result(PATIENCE_S)
    with ExitStack() as open_:
        programs = Programs(servers, open_)
        first = [programs.member(ClassicMember, CLASSIC), programs.member(AssignedMember, ASSIGNED)]
        broker = programs.agent(1)
        for each in first:
            wait_until("it has all", lambda each=each: len(each.assignment) == 4, PATIENCE_S)
            each.commit({PLACE: 5}, PATIENCE_S)
        wait_until("it is there", lambda: broker.state == "Active", PATIENCE_S)
        own_stack.stop_job()

        asked = [each.commit_async({PLACE: 7}) for each in first]
        late = [programs.member(ClassicMember, CLASSIC), programs.member(AssignedMember, ASSIGNED)]
        newcomer = programs.agent(2)
        wanted = {
            *(("OffsetCommit", each.identity.client) for each in first),
            ("JoinGroup", late[0].identity.client),
            ("Subscribe", late[1].identity.client),
            ("RegisterBroker", newcomer.identity.client),
        }
        wait_until("the log has them", lambda: wanted <= set(requests(own_stack)), PATIENCE_S)
        assert not any(each.done() for each in asked)
        lose(own_stack)
        own_stack.checkpoint.rename(tmp_path / "was")
        start_job("--rebuild", "--accept-loss")

        outcomes = [outcome(each) for each in asked]
        for group in (first[0], late[0]), (first[1], late[1]):
            wait_until("they share", lambda group=group: shared(group), PATIENCE_S)
        wait_until("both are there", lambda: newcomer.state == broker.state == "Active", PATIENCE_S)
        with Wire(servers) as wire:
            for member, told in zip(first, outcomes, strict=True):
                group = member.identity.group
                rows = wire.answer(wire.send("OffsetFetch", group), PATIENCE_S)["offsets"]
                assert [row["offset"] for row in rows] == [5 if told else 7], told
            wire.read_everything()
            events = [each for each in wire.values("events") if each["type"] == "RequestsLost"]
        assert len(events) == 1
        # Of a cut log, its members find out by themselves, by their next heartbeat.
        known = "lost before it was processed", "its log has lost records"
        assert all(not each or any(why in each for why in known) for each in outcomes), outcomes
        assert [each.problems for each in programs.all] == [[]] * len(programs.all)
        assert own_stack.job.is_running


def shared(group: tuple[Any, Any]) -> bool:
    """Whether the topic is divided among these two."""
    has = [each for member in group for each in member.assignment]
    return len(has) == len(set(has)) == 4 and all(len(m.assignment) == 2 for m in group)
