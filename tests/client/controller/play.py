"""One broker, fed by hand. S = 8 s, RT = 12 s, F = 16 s, so the margin is 2 s. It is broker 7."""

from typing import Any

from coordlib.client.controller import requests as bs
from coordlib.client.controller.machine import BrokerMachine
from coordlib.client.controller.requests import (
    BrokerTiming,
    Call,
    Callback,
    Following,
    Leadership,
    Registration,
)
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.requests import Identity
from coordlib.core.wire import api

IDENTITY = Identity("shop", "app", "cafe", shard=1, reply=3, incarnation="AbCdEfGh")
MEMBER = "app-AbCdEfGh-1-40"
ENDPOINT = api.Endpoint("in", "host", 9092)
SAID = Registration(broker=7, endpoints=(ENDPOINT,), storage="disk", previous=12)
TIMING = BrokerTiming(
    session_timeout_ms=8_000, release_timeout_ms=12_000, heartbeat_interval_ms=3_000
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Play:
    """Feeds a broker, and keeps what it was told to send."""

    def __init__(self) -> None:
        self.broker = BrokerMachine(IDENTITY, TIMING, SAID)
        self.sent: list[api.Request] = []
        self.offset = 39

    def say(self, event: bs.Input) -> list[bs.Output]:
        outputs = self.broker.handle(event)
        self.sent += [each.request for each in outputs if isinstance(each, sg.Send)]
        return outputs

    def newest(self, kind: type[api.Request]) -> Any:
        """The newest request of a kind."""
        return next(each for each in reversed(self.sent) if isinstance(each, kind))

    def written(self, now_ms: int, kind: type[api.Request]) -> list[bs.Output]:
        """The newest request of a kind is acknowledged."""
        self.offset += 1
        return self.say(sg.Acknowledged(now_ms, self.newest(kind).id, self.offset, now_ms))

    def answer(
        self, now_ms: int, to: type[api.Request], kind: type[api.Response], **fields: Any
    ) -> list[bs.Output]:
        """The newest request of a kind is answered."""
        return self.say(sg.Received(now_ms, self.response(self.newest(to), kind, **fields)))

    def response(self, to: api.Request, kind: type[api.Response], **fields: Any) -> Any:
        fields.setdefault("cause", f"r1-{self.offset}")
        return kind(id=to.id, client="app", group="shop", **fields)

    def registered(self, *rows: api.ReplicaRow, now_ms: int = 0) -> None:
        """An Inactive broker with these replicas."""
        self.say(sg.ReadToEnd(now_ms, now_ms))
        self.say(bs.Begin(now_ms))
        self.written(now_ms, api.RegisterBroker)
        fields = {"broker": 7, "incarnation": 40, "member": MEMBER, "current_state": "Inactive"}
        fields |= {"since": 40, "generation": 1, "partitions": rows, "part": 0, "parts": 1}
        self.answer(now_ms, api.RegisterBroker, api.RegisterBrokerResponse, **fields)
        self.answer(now_ms, api.Metadata, api.MetadataResponse, generation=1, parts=1)

    def told(
        self, now_ms: int, state: str, since: int, may_stop: bool = False, **more: Any
    ) -> list[bs.Output]:
        """The newest BrokerHeartbeat is answered."""
        fields = {"broker": 7, "incarnation": 40, "current_state": state, "since": since, **more}
        kind = api.BrokerHeartbeatResponse
        return self.answer(now_ms, api.BrokerHeartbeat, kind, may_stop=may_stop, **fields)

    def active(self, *rows: api.ReplicaRow, now_ms: int = 0) -> None:
        """An Active broker whose user was told all; since record 50."""
        self.registered(now_ms=now_ms)
        self.say(bs.Ready(now_ms))
        self.offset = 49
        self.written(now_ms, api.BrokerHeartbeat)
        self.told(now_ms, "Active", 50)
        self.changed(now_ms, 55, *rows)
        self.polled(now_ms)

    def changed(
        self, now_ms: int, at: int, *rows: api.ReplicaRow, gone: tuple[int, ...] = ()
    ) -> list[bs.Output]:
        """A record has changed these."""
        notice = api.MetadataChanged(
            group="shop",
            cause=f"r1-{at}",
            generation=2,
            gone=tuple(api.GoneBroker(7, each) for each in gone),
            partitions=rows,
        )
        return self.say(sg.Received(now_ms, notice))

    def demanded(self, now_ms: int, cause: int, *numbers: int) -> list[bs.Output]:
        """Others are to lead these."""
        rows = (api.LedPartitions("t", numbers),)
        notice = api.LeadershipDemanded(group="shop", cause=cause, member=MEMBER, partitions=rows)
        return self.say(sg.Received(now_ms, notice))

    def polled(self, now_ms: int) -> list[bs.Output]:
        """The user's thread comes by; its callbacks return at once."""
        found: list[bs.Output] = []
        while True:
            outputs = self.say(sg.Polled(now_ms))
            found += outputs
            calls = [each for each in outputs if isinstance(each, Call)]
            for call in calls:
                found += self.say(bs.CalledBack(now_ms, call))
            if not calls:
                return found

    def live(self, from_ms: int, to_ms: int, polls: bool = True) -> list[bs.Output]:
        """Heartbeats taken, everything read, the user polling, once a second."""
        found = []
        for now_ms in range(from_ms, to_ms + 1, 1_000):
            ticked = self.say(sg.Elapsed(now_ms))
            for each in ticked:
                if isinstance(each, sg.Send) and isinstance(each.request, api.Heartbeat):
                    self.offset += 1
                    self.say(sg.Acknowledged(now_ms, each.request.id, self.offset, now_ms))
            found += ticked + self.say(sg.ReadToEnd(now_ms, now_ms))
            found += self.polled(now_ms) if polls else []
        return found


def row(number: int = 0, leader: int = 7, epoch: int = 0, fence: int = 55, **more: Any) -> Any:
    """A row as brokers are told of it."""
    fields: dict[str, Any] = {"replicas": (7, 8), "isr": (7, 8), "partition_epoch": epoch, **more}
    return api.ReplicaRow(
        topic="t",
        partition=number,
        topic_id=fields.pop("topic_id", 30),
        leader=leader,
        leader_epoch=epoch,
        fence=fence,
        **fields,
    )


def leads(given: api.ReplicaRow) -> Call:
    return Call(
        Callback.LEADER,
        (
            Leadership(
                given.topic,
                given.partition,
                given.leader_epoch,
                given.fence,
                given.isr,
                given.replicas,
                given.topic_id,
            ),
        ),
    )


def follows(number: int, epoch: int, leader: int, topic_id: int = 30) -> Call:
    return Call(Callback.FOLLOWER, (Following("t", number, epoch, leader, topic_id),))


def resigns(*places: TopicPartition) -> Call:
    return Call(Callback.RESIGN, (places,))


def stops(number: int, delete: bool) -> Call:
    return Call(Callback.STOP, ("t", number, delete))


UNFENCED = Call(Callback.UNFENCED)


def envelope(id_: str) -> dict[str, Any]:
    return {"v": 1, "id": id_, "client": "app", "group": "shop", "reply": 3}


def target(id_: str, state: Any, since: int, reason: str | None = None) -> sg.Send:
    return sg.Send(
        api.BrokerHeartbeat(
            **envelope(id_),
            broker=7,
            incarnation=40,
            since=since,
            target_state=state,
            reason=reason,
        )
    )


def release(id_: str, cause: int) -> sg.Send:
    fields = {"generation": 0, "member": MEMBER, "cause": cause, "space": "cluster"}
    return sg.Send(api.Release(**envelope(id_), **fields))


def leave(id_: str, reason: str) -> sg.Send:
    members = (api.Leaver(MEMBER),)
    fields = {"members": members, "reason": reason, "space": "cluster"}
    return sg.Send(api.LeaveGroup(**envelope(id_), **fields))
