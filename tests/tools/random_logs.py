"""Random logs: what several clients would write, and what they should not have written.

Clients are simulated while the log is drawn: they know the answers that they could have read, and
sometimes act on them. So most requests fit the state of their group, and all kinds of others are
mixed in. Some are static members, two of them twins under one instance id, and anybody may remove
anybody.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from coordlib.core.engine.effects import REQUESTS, RESPONSES
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import Refusal
from tests.tools import driving
from tests.tools.core import InputRecord, ShardSettings
from tests.tools.driving import Conversation

CLIENTS = ("a", "b", "c", "d", "e")
GROUPS = ("g", "h")
#: This one's members are consumers, so that its offsets may expire while they are there.
CONSUMERS = "h"
WANTS_T = cp.encode_subscription(cp.Subscription(topics=("t",)))
WANTS_TU = cp.encode_subscription(cp.Subscription(topics=("t", "u")))
#: Static members: c and d are twins.
INSTANCES = {"c": "i", "d": "i", "e": "j"}
STEPS_MS = (0, 0, 1, 300, 900, 1_500, 4_000, 20_000, 3_600_000, -5_000)
VERBS = (
    *("join", "sync", "heartbeat", "leave", "leave", "commit", "fetch", "release"),
    *("describe", "find", "delete", "delete", "delete-offsets"),
)
GARBAGE = (
    b"",
    b"{",
    b"\xff\xfe",
    b"[1,2]",
    b'{"v":1,"type":"Heartbeat","id":"x","client":"a","group":"g"}',
    b'{"v":1,"type":"DescribeGroup","id":"x","client":"a","group":"g"}',
    b'{"v":3,"type":"JoinGroup","id":"x","client":"a","group":"g"}',
    b'{"v":1,"type":"Heartbeat","id":"x","client":"a","group":"","generation":1,"member":"m"}',
)


ODD_VERBS = (
    *("join", "sync", "heartbeat", "leave", "remain"),
    *("expel", "commit", "fetch", "release"),
)


class Client:
    """What a client knows of one group."""

    def __init__(self, name: str, group: str) -> None:
        self.name, self.group = name, group
        self.instance = INSTANCES.get(name)
        self.member, self.generation, self.leads = "", -1, False
        self.members: list[str] = []
        #: Another process has its instance id: it gives up, mostly.
        self.is_fenced = False
        self.count = 0
        #: What it would say next if all went well; "wait" while an answer is due.
        self.wants = "join"

    def hear(self, answer: dict[str, Any]) -> None:
        if answer["type"] in ("DeleteGroup", "OffsetDelete"):
            return  # the operator's business, whatever it was
        if answer["type"] == "JoinGroup" and answer["error"] == "NONE":
            self.member, self.generation = answer["member"], answer["generation"]
            self.members = [row["member"] for row in answer["members"]]
            self.wants = "sync"
        elif answer.get("error") == "MEMBER_ID_REQUIRED":
            self.member, self.wants = answer["member"], "join"
        elif answer.get("error") == "FENCED_INSTANCE_ID":
            self.wants = "leave" if self.member else "wait"  # it says that it has stopped
            self.is_fenced = True
        elif answer["type"] == "LeaveGroup" or answer.get("error") == "UNKNOWN_MEMBER_ID":
            self.member, self.generation, self.members = "", -1, []
            self.wants = "wait" if self.is_fenced else "join"
            self.is_fenced = False
        elif answer.get("error") == "GROUP_MAX_SIZE_REACHED":
            self.wants = "wait"
        elif answer["type"] == "SyncGroup" and "assignment" in answer:
            # Also where the leader gave an error; then it joins again in a while.
            self.wants = "heartbeat" if answer["error"] == "NONE" else "join"
        elif answer["type"] == "RebalanceInProgress" or answer.get("error", "NONE") != "NONE":
            self.wants = "join"

    def say(self, rnd: Random) -> api.AnyRequest:
        """Something that this client might well write now."""
        self.count += rnd.random() < 0.9  # sometimes the same correlation id once more
        envelope: dict[str, Any] = {"group": self.group, "id": f"{self.name}{self.count}"}
        verb = self.wants
        if verb == "heartbeat":
            verb = rnd.choice(("heartbeat", "heartbeat", "heartbeat", "commit", "fetch"))
        if verb == "wait" or rnd.random() < 0.15:
            verb = rnd.choice((*VERBS, *ODD_VERBS))
        if verb == self.wants and verb in ("join", "sync"):
            self.wants = "wait"
        if rnd.random() < 0.03:
            envelope["reply"] = rnd.choice((0, 1, 2, 7))
        if self.instance and rnd.random() < 0.9 and verb in ("join", "sync", "heartbeat", "commit"):
            envelope["instance"] = self.instance
        member, generation = self.member, self.generation
        if rnd.random() < 0.05:
            member, generation = rnd.choice((member, "", "x")), generation + rnd.choice((-1, 1))
        return self._request(rnd, verb, member, max(generation, 0), envelope)

    def _request(
        self, rnd: Random, verb: str, member: str, generation: int, envelope: dict[str, Any]
    ) -> api.AnyRequest:
        if verb == "join":
            names = rnd.choice(({"range": b"1"}, {"range": b"1", "sticky": b"2"}))
            if self.group == CONSUMERS:
                names = {"range": rnd.choice((WANTS_T, WANTS_T, WANTS_TU, b"unreadable"))}
            known = rnd.choice((-1, self.generation)) if member else -1
            timeouts = rnd.choice(((6_000, 6_000), (10_000, 20_000), (45_000, 300_000)))
            return driving.join(
                self.name,
                member=member,
                generation=known,
                protocols=names,
                protocol_type="consumer" if self.group == CONSUMERS else "demo",
                session_timeout_ms=timeouts[0],
                rebalance_timeout_ms=timeouts[1],
                **envelope,
            )
        if verb == "sync":
            return driving.sync(self.name, generation, member, **self._divided(rnd), **envelope)
        if verb == "heartbeat":
            return driving.heartbeat(self.name, generation, member, **envelope)
        if verb == "leave":
            return driving.leave(self.name, self._leaver(member, rnd), **envelope)
        if verb == "remain":
            return driving.leave(self.name, self._leaver(member, rnd), remain=True, **envelope)
        if verb == "expel":
            return driving.leave(self.name, *self._others(rnd), **envelope)
        if verb == "commit":
            place = api.CommittedOffset(rnd.choice("tu"), rnd.randrange(3), rnd.randrange(100))
            return driving.commit(self.name, generation, member, offsets=(place,), **envelope)
        if verb == "delete-offsets":
            at = (rnd.choice("tu"), rnd.randrange(3))
            return driving.delete_offsets(self.name, at, ("t", 0), **envelope)
        return _ABOUT_GROUPS[verb](self.name, **envelope)

    def _divided(self, rnd: Random) -> dict[str, Any]:
        """Everybody's share, or why there is none."""
        if rnd.random() > 0.15:
            return {"assignments": {m: f"{m}!".encode() for m in self.members}}
        why = "\u00e9" * rnd.randrange(900)
        message = rnd.choice(("", "The assignor raised KeyError.", f"The assignor raised {why}."))
        told = {"message": message} if message else {}
        return {"error": rnd.choice(api.ASSIGNMENT_ERRORS).name, **told}

    def _leaver(self, member: str, rnd: Random) -> api.Leaver:
        return api.Leaver(member or "x", self.instance if rnd.random() < 0.5 else None)

    def _others(self, rnd: Random) -> list[api.Leaver]:
        """Whom somebody else might remove, by member id or by instance id."""
        known = [api.Leaver(member) for member in self.members]
        known += [api.Leaver("", instance) for instance in ("i", "j", "k")]
        return rnd.sample(known, rnd.randint(1, min(3, len(known))))


_ABOUT_GROUPS: dict[str, Callable[..., api.AnyRequest]] = {
    "fetch": driving.fetch,
    "release": driving.release,
    "describe": driving.describe,
    "find": driving.find,
    "delete": driving.delete,
}


def draw_log(
    seed: int,
    length: int,
    settings: ShardSettings,
    positions: bool = False,
    talk: Conversation | None = None,
) -> tuple[list[InputRecord], Conversation]:
    """A log of `length` records, and the shard that judged it record by record.

    `talk`: a conversation of the caller's, which may write more than it is told.
    """
    rnd = Random(seed)
    talk = talk or Conversation(settings)
    clients = [Client(c, g) for c in CLIENTS for g in GROUPS]
    heard = 0
    while len(talk.log) < length:
        _write_something(rnd, talk, clients, positions)
        for output in talk.outputs[heard:]:
            if output.topic == RESPONSES:
                _hear(rnd, clients, json.loads(output.value or b"{}"))
        heard = len(talk.outputs)
    return talk.log, talk


def _write_something(
    rnd: Random, talk: Conversation, clients: list[Client], positions: bool
) -> None:
    kind = rnd.random()
    step_ms = rnd.choice(STEPS_MS) if rnd.random() < 0.3 else rnd.randrange(800)
    if kind < 0.12:
        published = rnd.choice((talk.next_offset - 1, rnd.randrange(-1, talk.next_offset + 5)))
        talk.tick(published, step_ms)
    elif kind < 0.13:  # all clients are silent for a while
        talk.tick()
        talk.wait(rnd.choice((8_000, 24_000)), 4_000)
    elif kind < 0.15:
        talk.send(rnd.choice(GARBAGE), step_ms)
    elif kind < 0.18:
        _stop_group(rnd, talk, rnd.choice(GROUPS))
    elif positions and kind < 0.23:
        request = driving.commit(rnd.choice(CLIENTS), group=rnd.choice(GROUPS))
        talk.send(request, topic=COMMITS)
    elif kind < 0.26 and talk.log:  # a producer's retry, perhaps a late one
        again = rnd.choice(talk.log)
        if again.topic == REQUESTS:
            talk.send(again.value, step_ms)
    else:
        ready = [client for client in clients if client.wants != "wait"]
        patient = rnd.random() < 0.9 and ready
        talk.send(rnd.choice(ready if patient else clients).say(rnd), step_ms)


def _stop_group(rnd: Random, talk: Conversation, name: str) -> None:
    """All members leave; perhaps time passes, and an operator takes away what is left."""
    cell = talk.shard.groups.get(name)
    if cell is None or cell.value is None:
        return
    for member in cell.value.members.values():
        talk.send(driving.leave(member.client, member.member, group=name))
    if rnd.random() < 0.5:
        place = api.CommittedOffset(rnd.choice("tu"), rnd.randrange(3), 7)
        talk.send(driving.commit("ops", group=name, offsets=(place,)))
    if rnd.random() < 0.5:
        talk.wait(rnd.choice((4_000, 8_000, 24_000)), 4_000)
    places = [(topic, partition) for topic in "tu" for partition in range(rnd.choice((1, 3)))]
    requests: tuple[api.AnyRequest, ...] = (
        driving.delete_offsets("ops", *places, group=name),
        driving.delete("ops", group=name),
        driving.describe("ops", group=name),
    )
    for request in rnd.sample(requests, rnd.randrange(3)):
        talk.send(request, rnd.choice((0, 900)))


def _hear(rnd: Random, clients: list[Client], answer: dict[str, Any]) -> None:
    for client in clients:
        theirs = answer.get("client", client.name) == client.name
        if theirs and answer.get("group") == client.group and rnd.random() < 0.95:
            client.hear(answer)


def decoded(record: InputRecord) -> api.AnyRequest | Refusal:
    request: api.AnyRequest | Refusal = codec.decode_request(record.value)
    return request
