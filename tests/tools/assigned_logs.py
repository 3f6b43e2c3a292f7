"""Random logs of server-assigned groups: what members would write, and what nobody should.

As in `random_logs`: clients know the answers that they could have read, and mostly act on them.
Topics come, grow, shrink and go; operators remove members; some ask for the other kind of group.
"""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from coordlib.core.engine.effects import RESPONSES
from coordlib.core.groups.assignors import server_sticky
from coordlib.core.groups.assignors.server_model import Shares, Subscriber
from coordlib.core.wire import api
from tests.tools import driving
from tests.tools.assigned_groups import let_go, subscribe, topics
from tests.tools.core import InputRecord, ShardSettings, of_groups
from tests.tools.driving import Conversation
from tests.tools.random_logs import GARBAGE, STEPS_MS

CLIENTS = ("a", "b", "c", "d")
GROUPS = ("g", "h")
TOPICS = ("t", "u", "v-1", "v-2", "__internal")
WISHES: tuple[dict[str, Any], ...] = (
    {"topics": ("t",)},
    {"topics": ("t", "u")},
    {"topics": ("u", "nowhere")},
    {"pattern": "v-.*"},
    {"topics": ("t",), "pattern": ".*", "exclude": "v-2"},
)
WRONG: tuple[dict[str, Any], ...] = (
    {"strategy": "nobody's"},
    {"pattern": "(?=x)"},
    {"session_timeout_ms": 1},
)
TIMEOUTS = ((6_000, 6_000), (6_000, 20_000), (10_000, 20_000))
#: What a member that owes nothing writes, the usual first.
VERBS = (
    *("heartbeat",) * 8,
    *("commit", "commit", "change", "change", "leave", "fetch", "describe", "first"),
)
ODD_VERBS = ("release", "join", "delete", "delete-offsets", "commit", "change", "bad")


def brittle(members: Mapping[str, Subscriber], partitions: Mapping[str, int]) -> Shares:
    """A user's strategy that fails now and then, the same way each time."""
    if sum(partitions.values()) % 3 == 0:
        raise LookupError("three is too many")
    if sum(partitions.values()) % 3 == 1 and len(members) > 2:
        return {}
    return server_sticky.assign_uniform(members, partitions)


SETTINGS = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=3,
    incarnation="t",
    families=of_groups(
        {"brittle": brittle}, initial_rebalance_delay_ms=0, max_size=3, groups_per_shard_max=2
    ),
    checks_invariants=True,
)


class Client:
    """What a client knows of one group."""

    def __init__(self, name: str, group: str) -> None:
        self.name, self.group = name, group
        self.count = 0
        self.forget()

    def forget(self) -> None:
        self.member, self.generation, self.is_waiting = "", -1, False
        self.owns: list[tuple[str, int]] = []
        self.owes: list[int] = []

    def hear(self, told: dict[str, Any]) -> None:
        """One response, or one notification."""
        is_of_me = told.get("member", self.member) == self.member
        if told.get("error", "NONE") == "UNKNOWN_MEMBER_ID" and told["type"] != "LeaveGroup":
            self.forget()
        elif told.get("error", "NONE") != "NONE":
            self.is_waiting = False
        elif told["type"] == "MemberRemoved" and is_of_me:
            self.forget()
        elif told["type"] == "Subscribe" or (told["type"] == "AssignmentChanged" and is_of_me):
            self.member, self.generation = told["member"], told["generation"]
            rows = told["partitions"]
            self.owns = [(row["topic"], each) for row in rows for each in row["partitions"]]
            self.owes = [row["cause"] for row in told["release"]]
            self.is_waiting = False

    def say(self, rnd: Random) -> api.AnyRequest:
        """Something that this client might well write now."""
        self.count += rnd.random() < 0.95
        envelope: dict[str, Any] = {"group": self.group, "id": f"{self.name}{self.count}"}
        if rnd.random() < 0.03:
            envelope["reply"] = rnd.choice((0, 1, 2, 7))
        verb = rnd.choice(VERBS) if self.member else "first"
        if self.owes and rnd.random() < 0.5:
            verb = "release"
        if rnd.random() < 0.12:
            verb = rnd.choice(ODD_VERBS)
        member, generation = self.member, self.generation
        if rnd.random() < 0.06:
            member = rnd.choice((member, "", "x", "a-t-0-1"))
            generation += rnd.choice((-1, 1, 5))
        return self._request(rnd, verb, member, max(generation, 0), envelope)

    def _request(
        self, rnd: Random, verb: str, member: str, generation: int, envelope: dict[str, Any]
    ) -> api.AnyRequest:
        if verb in ("first", "change", "bad"):
            self.is_waiting = True
            return self._subscribe(rnd, verb, member, generation, envelope)
        if verb == "release":
            cause = rnd.choice(self.owes) if self.owes else rnd.randrange(60)
            rows = self._rows(rnd)
            return let_go(self.name, generation, member, cause, offsets=rows, **envelope)
        if verb == "leave":
            self.is_waiting = True
            return driving.leave(self.name, member or "x", **envelope)
        if verb == "commit":
            rows = self._rows(rnd) or (api.CommittedOffset("t", 0, 3),)
            return driving.commit(self.name, generation, member, offsets=rows, **envelope)
        if verb == "join":
            return driving.join(self.name, **envelope)
        if verb == "delete-offsets":
            return driving.delete_offsets(self.name, ("t", 0), ("u", 1), **envelope)
        if verb == "heartbeat":
            return driving.heartbeat(self.name, generation, member, **envelope)
        return _ABOUT_GROUPS[verb](self.name, **envelope)

    def _subscribe(
        self, rnd: Random, verb: str, member: str, generation: int, envelope: dict[str, Any]
    ) -> api.Subscribe:
        session_ms, rebalance_ms = rnd.choice(TIMEOUTS)
        strategies = ("sticky", "uniform", "range", "brittle")
        fields: dict[str, Any] = {
            "session_timeout_ms": session_ms,
            "rebalance_timeout_ms": rebalance_ms,
            "strategy": rnd.choice(strategies) if rnd.random() < 0.15 else None,
            "capacity": rnd.choice((1, 1, 2)),
            **rnd.choice(WISHES),
            **envelope,
        }
        if verb == "bad":
            fields |= rnd.choice(WRONG)
        known: dict[str, Any] = {"member": member, "generation": generation}
        if verb == "bad" and rnd.random() < 0.5:
            known["generation"] = -1
        if verb == "first":
            known = {}
        return subscribe(self.name, **known, **fields)

    def _rows(self, rnd: Random) -> tuple[api.CommittedOffset, ...]:
        places = [*self.owns, ("t", 1), ("u", 0)]
        some = rnd.sample(places, min(len(places), rnd.randrange(3)))
        return tuple(api.CommittedOffset(topic, each, rnd.randrange(100)) for topic, each in some)


_ABOUT_GROUPS: dict[str, Callable[..., api.AnyRequest]] = {
    "fetch": driving.fetch,
    "describe": driving.describe,
    "delete": driving.delete,
}


def draw_log(
    seed: int, length: int, settings: ShardSettings = SETTINGS, talk: Conversation | None = None
) -> tuple[list[InputRecord], Conversation]:
    """A log of at least `length` records, and the shard that judged it record by record.

    `talk`: a conversation of the caller's, which may look at more than it is told.
    """
    rnd = Random(seed)
    talk = talk or Conversation(settings)
    clients = [Client(c, g) for c in CLIENTS for g in GROUPS]
    counts = {"t": 4}
    heard = 0
    talk.send(topics(counts))
    while len(talk.log) < length:
        _write_something(rnd, talk, clients, counts)
        for output in talk.outputs[heard:]:
            if output.topic == RESPONSES:
                _hear(rnd, clients, json.loads(output.value or b"{}"))
        heard = len(talk.outputs)
    return talk.log, talk


def _write_something(
    rnd: Random, talk: Conversation, clients: list[Client], counts: dict[str, int]
) -> None:
    kind = rnd.random()
    step_ms = rnd.choice(STEPS_MS) if rnd.random() < 0.2 else rnd.randrange(600)
    if kind < 0.12:
        published = rnd.choice((talk.next_offset - 1, rnd.randrange(-1, talk.next_offset + 5)))
        talk.tick(published, step_ms)
    elif kind < 0.13:  # all clients are silent for a while
        talk.tick()
        talk.wait(rnd.choice((8_000, 24_000)), 4_000)
    elif kind < 0.14:
        talk.send(rnd.choice(GARBAGE), step_ms)
    elif kind < 0.19:
        talk.send(_listing(rnd, counts), step_ms)
    elif kind < 0.22:
        _operate(rnd, talk, rnd.choice(GROUPS))
    elif kind < 0.27 and talk.log:  # a producer's retry, perhaps a late one
        talk.send(rnd.choice(talk.log).value, step_ms)
    else:
        ready = [client for client in clients if not client.is_waiting]
        talk.send(rnd.choice(ready or clients).say(rnd), step_ms)


def _operate(rnd: Random, talk: Conversation, name: str) -> None:
    """An operator removes a few; or all leave, and perhaps the group is taken away."""
    cell = talk.shard.groups.get(name)
    members = list(cell.value.members.values()) if cell is not None else []
    if not members:
        talk.send(driving.delete("ops", group=name))
    elif rnd.random() < 0.8:
        some = rnd.sample(members, rnd.randint(1, len(members)))
        talk.send(driving.leave("ops", *(each.member for each in some), group=name))
    else:
        for member in members:
            talk.send(driving.leave(member.client, member.member, group=name))
        if rnd.random() < 0.5:
            talk.send(driving.join("e", group=name, session_timeout_ms=6_000))


def _listing(rnd: Random, counts: dict[str, int]) -> api.TopicMetadata:
    """The topics as they are by now, whole or in part."""
    name = rnd.choice(TOPICS)
    counts[name] = rnd.choice((0, 1, 2, 3, 4, 6))
    exist = {topic: count for topic, count in counts.items() if count}
    if rnd.random() < 0.2:  # of the first names only
        return topics({n: c for n, c in exist.items() if n <= "t"}, through="t")
    return topics(exist)


def _hear(rnd: Random, clients: list[Client], told: dict[str, Any]) -> None:
    for client in clients:
        is_theirs = told.get("client", client.name) == client.name
        if is_theirs and told.get("group") == client.group and rnd.random() < 0.95:
            client.hear(told)
