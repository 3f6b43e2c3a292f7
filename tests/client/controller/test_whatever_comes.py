"""Brokers in every state, and whatever may come: answers with all errors, to all ids, in any order.

A state machine that raises ends its agent (INV-70); none may, whatever others write.
"""

from random import Random
from typing import Any

import pytest

from coordlib.client.controller import requests as bs
from coordlib.client.controller.state import State
from coordlib.client.kit import events as sg
from coordlib.core.wire import api
from coordlib.errors import ErrorCode
from tests.client.controller.play import MEMBER, T0, T1, Play, row

ANSWER_TO: dict[type[api.Request], type[api.Response]] = {
    api.RegisterBroker: api.RegisterBrokerResponse,
    api.BrokerHeartbeat: api.BrokerHeartbeatResponse,
    api.AlterPartition: api.AlterPartitionResponse,
    api.ReplicasDeleted: api.ReplicasDeletedResponse,
    api.Release: api.ReleaseResponse,
    api.Heartbeat: api.HeartbeatResponse,
    api.LeaveGroup: api.LeaveGroupResponse,
    api.Metadata: api.MetadataResponse,
}
USUAL = (
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)


class World:
    """Feeds one broker what could come, drawn by chance."""

    def __init__(self, luck: Random) -> None:
        self.play, self.luck, self.now_ms = Play(), luck, 0
        self.calls: list[bs.Call] = []
        self.unwritten: list[api.Request] = []
        self.states: set[State] = set()
        self.tickets = 0
        self.open: set[int] = set()
        self.say(sg.ReadToEnd(0, 0))
        self.say(bs.Begin(0))

    def say(self, event: bs.Input) -> None:
        for output in self.play.say(event):
            match output:
                case bs.Call():
                    self.calls.append(output)
                case sg.Send(request):
                    self.unwritten.append(request)
                case bs.Altered(ticket):
                    self.open.remove(ticket)
                case _:
                    pass
        self.states.add(self.play.broker.state)

    def step(self) -> None:
        luck = self.luck
        self.now_ms += luck.choice((0, 10, 500, 3_000))
        draw = luck.random()
        if draw < 0.35 and self.play.sent:
            self.say(sg.Received(self.now_ms, self.answer()))
        elif draw < 0.5:
            self.say(sg.Received(self.now_ms, self.notice()))
        elif draw < 0.65 and self.unwritten:
            self.acknowledge()
        elif draw < 0.75:
            self.say(sg.ReadToEnd(self.now_ms, self.now_ms))
        elif draw < 0.82:
            self.say(sg.Elapsed(self.now_ms))
        else:
            self.use()

    def acknowledge(self) -> None:
        request = self.unwritten.pop(0)
        self.play.offset += 1
        if self.luck.random() < 0.85:
            at_ms = self.luck.randint(max(0, self.now_ms - 3_000), self.now_ms)
            self.say(sg.Acknowledged(self.now_ms, request.id, self.play.offset, at_ms))
        else:
            self.say(sg.NotWritten(self.now_ms, request.id, "why", self.luck.random() < 0.1))

    def use(self) -> None:
        """The user's thread."""
        luck, now_ms = self.luck, self.now_ms
        if self.calls and luck.random() < 0.8:
            self.say(bs.CalledBack(now_ms, self.calls.pop(0), luck.random() < 0.2))
            return
        draw = luck.random()
        if draw < 0.02:
            self.say(bs.Close(now_ms))
        elif draw < 0.2:
            self.say(luck.choice([bs.Ready(now_ms), bs.Ready(now_ms), bs.Stop(now_ms)]))
        elif draw < 0.4:
            self.tickets += 1
            self.open.add(self.tickets)
            self.say(bs.AlterIsr(now_ms, self.tickets, luck.choice((T0, T1)), {8: 31}))
        else:
            self.say(sg.Polled(now_ms))

    def answer(self) -> api.AnyResponse:
        luck = self.luck
        request = luck.choice(self.play.sent[-4:])
        kinds = [ANSWER_TO[type(request)]] if luck.random() < 0.9 else [*ANSWER_TO.values()]
        kind = luck.choice(kinds)
        fields: dict[str, Any] = {"cause": luck.choice([f"r1-{self.play.offset}", "", "x", "r1-"])}
        draw = luck.random()
        if draw < 0.2:
            fields["error"] = luck.choice(USUAL).name
        elif draw < 0.3:
            fields["error"] = luck.choice([*(code.name for code in ErrorCode), "NO_SUCH_ERROR"])
        elif draw < 0.9:
            fields |= self.fields(kind)
        return self.play.response(request, kind, **fields)  # type: ignore[no-any-return]

    def fields(self, kind: type[api.Response]) -> dict[str, Any]:
        luck = self.luck
        if kind is api.RegisterBrokerResponse:
            fields = {"incarnation": 40, "member": MEMBER, "since": 40, "partitions": (self.row(),)}
            return fields | {"parts": luck.choice((1, 1, 2))}
        if kind is api.BrokerHeartbeatResponse:
            state = luck.choice(("Active", "Active", "Stopping", "Inactive", "Odd"))
            since = luck.randrange(100)
            return {"current_state": state, "since": since, "may_stop": luck.random() < 0.5}
        if kind is api.AlterPartitionResponse:
            error = luck.choice(("NONE", "INELIGIBLE_REPLICA", "NO_SUCH_ERROR"))
            rows = [api.AlteredRow(topic="t", partition=n, error=error) for n in (0, 1, 5)]
            return {"results": tuple(luck.sample(rows, luck.randrange(3)))}
        if kind is api.MetadataResponse:
            return {"parts": luck.choice((1, 2)), "partitions": (self.row(),)}
        return {}

    def row(self) -> api.ReplicaRow:
        luck, epoch = self.luck, self.luck.randrange(5)
        replicas = luck.choice(((7, 8), (8,), (7,), ()))
        given: api.ReplicaRow = row(
            luck.randrange(2),
            leader=luck.choice((7, 7, 8, -1)),
            epoch=epoch,
            fence=luck.randrange(self.play.offset + 5),
            replicas=replicas,
            isr=replicas,
            topic_id=luck.choice((30, 30, 31)),
            deleting=luck.choice(((), (), (7,))),
        )
        return given

    def notice(self) -> api.AnyResponse:
        luck, at = self.luck, f"r1-{self.play.offset}"
        member = luck.choice((MEMBER, "another"))
        draw = luck.randrange(5)
        if draw == 0:
            return api.MemberRemoved(group="shop", cause=at, member=member, reason="why")
        if draw == 1:
            rows = (api.LedPartitions("t", (0, 1)),)
            cause = self.play.offset
            return api.LeadershipDemanded(group="shop", cause=cause, member=member, partitions=rows)
        if draw == 2:
            return api.Progress(shard=luck.choice((0, 1)), offset=self.play.offset, time_ms=0)
        gone = (api.GoneBroker(7, luck.choice((40, 41))),) if luck.random() < 0.2 else ()
        group = luck.choice(("shop", "shop", "else"))
        return api.MetadataChanged(
            group=group, cause=at, generation=1, gone=gone, partitions=(self.row(), self.row())
        )


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_comes_breaks_a_broker(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(400):
        world.step()
        broker = world.play.broker
        for place in (T0, T1):
            may_lead = broker.may_lead(world.now_ms, place)
            assert not may_lead or broker.must_acknowledge(place)
            assert not may_lead or not broker.is_fenced(world.now_ms)
        broker.wake_ms()


def test_all_states_are_met() -> None:
    """Or the test above does not test what it says."""
    states: set[State] = set()
    for seed in range(60):
        world = World(Random(seed))
        for _ in range(400):
            world.step()
        states |= world.states

    assert states == set(State)


@pytest.mark.parametrize("seed", range(20))
def test_every_caller_gets_an_outcome(seed: int) -> None:
    """Whoever waits for a change of in-sync replicas waits for something that comes."""
    world = World(Random(seed))
    for _ in range(300):
        world.step()
    world.say(bs.Close(world.now_ms))

    assert not world.open
