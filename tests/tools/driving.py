"""A shard driven by hand, one record at a time: what tests, transcripts and the simulator share.

    talk = Conversation()
    talk.send(join("a"))               # -> what the shard answered, as readable lines
    talk.send(heartbeat(...), after_ms=500)
    talk.tick()

Requests are written as a client writes them and read from their bytes, and outputs are read back
from theirs, so that nothing between is assumed.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Raw

from coordlib.core.engine.effects import OUTBOX, REQUESTS, Output
from coordlib.core.engine.step import NOT_INDEXED
from coordlib.core.groups.classic.group import Group
from coordlib.core.groups.protocol import COMMITS, Groups
from coordlib.core.wire import api, codec
from tests.tools.core import Fold, InputRecord, Shard, ShardSettings, of_groups, with_groups
from tests.tools.notation import render

START_MS = 1_000_000

SETTINGS = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=1,
    incarnation="t",
    families=of_groups(initial_rebalance_delay_ms=0),
    checks_invariants=True,
)


class Conversation:
    """One shard, its log, and the newest that it said."""

    def __init__(self, settings: ShardSettings = SETTINGS) -> None:
        self.settings = settings
        self.shard = Shard(None, settings)
        self.now_ms = START_MS
        self.log: list[InputRecord] = []
        #: Everything that was written, batch ends included.
        self.outputs: list[Output] = []
        self._next = {REQUESTS: 0, COMMITS: 0}
        self._seen = 0

    @property
    def next_offset(self) -> int:
        """Where the next request will stand."""
        return self._next[REQUESTS]

    def send(
        self, request: api.AnyRequest | bytes | None, after_ms: int = 0, topic: str = REQUESTS
    ) -> list[str]:
        """Append a request to the log and judge it; what came out, as lines."""
        return [render(output) for output in self.send_raw(request, after_ms, topic)]

    def send_raw(
        self, request: api.AnyRequest | bytes | None, after_ms: int = 0, topic: str = REQUESTS
    ) -> list[Output]:
        """As `send`; what came out, as it is."""
        self.now_ms += after_ms
        value = request if isinstance(request, bytes | None) else codec.encode(request)
        record = InputRecord(topic, self._next[topic], self.now_ms, value)
        self._next[topic] += 1
        self.log.append(record)
        self.shard.judge(record)
        return self._new_outputs()

    def send_all(self, *requests: api.AnyRequest) -> list[str]:
        return [line for request in requests for line in self.send(request)]

    def tick(self, published: int | None = None, after_ms: int = 0) -> list[str]:
        """A tick; without `published` everything before it can be read."""
        covered = self.next_offset - 1 if published is None else published
        return self.send(api.Tick(v=1, published=covered), after_ms)

    def outbox(self) -> dict[int, bytes]:
        """The messages of the shard to itself that wait, by number."""
        found: dict[int, bytes] = {}
        for each in self.outputs:
            key = json.loads(each.key) if each.topic == OUTBOX else []
            if len(key) == 3:
                found.pop(key[2], None)
                if each.value is not None:
                    found[key[2]] = each.value
        return found

    def feed(self) -> list[str]:
        """A driver writes the messages that wait."""
        lines: list[str] = []
        for number, body in sorted(self.outbox().items()):
            if number > self.shard.channels.heard.get(0, 0):
                lines += self.send(api.FromShard(v=1, source=0, seq=number, body=Raw(body)))
        return lines

    def hear(self) -> list[str]:
        """And tells the shard which of them it has judged."""
        heard = self.shard.channels.heard
        return self.send(api.Tick(v=1, published=self.shard.published, heard=heard))

    def wait(self, duration_ms: int, step_ms: int = 1_000) -> list[str]:
        """Let time pass by ticks that cover nothing new, each within CAP."""
        lines: list[str] = []
        for _ in range(duration_ms // step_ms):
            lines += self.tick(published=self.shard.published, after_ms=step_ms)
        return lines

    def end_batch(self) -> list[str]:
        """End the batch and begin the next from its blob."""
        return [render(output) for output in self.end_batch_raw()]

    def end_batch_raw(self) -> list[Output]:
        self.shard.close()
        new = self._new_outputs()
        self._restart(self.shard.encode())
        return new

    def fold(self) -> Fold:
        """The batch as `fold` would return it."""
        return Fold(self.shard.encode(), self.shard.outputs, self.shard.status())

    def load(self, blob: bytes) -> None:
        """Go on from another blob, as after a rebuild."""
        self._restart(blob)

    def use(self, how: ShardSettings) -> None:
        """Go on with other settings, in the same batch."""
        self.settings = self.shard.settings = how
        registry, stored, _ = self.shard.families.begin
        self.shard.families.begin = registry, stored, how.families
        for family in self.shard.families.values():
            family.settings = how.of(type(family))
            if isinstance(family, Groups):
                family.learn(dict(family.topics), family.ids)
            else:
                family.context = type(family)(NOT_INDEXED, family.settings).context

    def _restart(self, blob: bytes) -> None:
        self.shard = Shard(blob, self.settings)
        self._seen = 0

    def _new_outputs(self) -> list[Output]:
        new = self.shard.outputs[self._seen :]
        self._seen = len(self.shard.outputs)
        self.outputs += new
        return new

    def group(self, name: str = "g") -> Group:
        """The hard state of a group. Raises LookupError when there is none."""
        row = self.shard.groups.get(name)
        group: Group | None = row.value if row else None
        if group is None:
            raise LookupError(name)
        return group


def settings(**changes: Any) -> ShardSettings:
    """The settings of tests with some bounds of groups or of the shard changed."""
    return with_groups(SETTINGS, **changes)


# -- groups that have come so far ------------------------------------------------------------

#: The members of the groups below: the leader, and a follower.
LEADER, FOLLOWER = "a-t-0-0", "b-t-0-3"
NEWCOMER = "c-t-0-8"
SHARES = {LEADER: b"p0", FOLLOWER: b"p1"}


def empty(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2 has no members: a was alone, and left."""
    talk = Conversation(how)
    talk.send_all(join("a"), sync("a", 1, LEADER))
    talk.tick()
    talk.send(leave("a", LEADER))
    talk.tick()
    return talk


def completing(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2 of a, who leads, and b; nobody has synced yet; all answers are covered."""
    talk = Conversation(how)
    talk.send_all(join("a"), sync("a", 1, LEADER))
    talk.tick()
    talk.send_all(join("b"), join("a", "j2", member=LEADER, generation=1))
    talk.tick()
    return talk


def stable(how: ShardSettings = SETTINGS) -> Conversation:
    """Generation 2: a has p0, b has p1."""
    talk = completing(how)
    talk.send_all(sync("a", 2, LEADER, assignments=SHARES), sync("b", 2, FOLLOWER))
    return talk


def settled(how: ShardSettings = SETTINGS) -> Conversation:
    """As `stable`, and all sessions run."""
    talk = stable(how)
    talk.tick()
    return talk


def preparing(how: ShardSettings = SETTINGS) -> Conversation:
    """c has joined the stable group and is parked; a and b are asked to join again."""
    talk = stable(how)
    talk.send(join("c"))
    talk.tick()
    return talk


#: How a group gets into each state of Kafka's table.
STATES: dict[str, Callable[[], Conversation]] = {
    "absent": Conversation,
    "Empty": empty,
    "Preparing": preparing,
    "Completing": completing,
    "Stable": stable,
}


# -- requests, with what rarely matters left out ---------------------------------------------


def join(client: str, id: str = "j1", **fields: Any) -> api.JoinGroup:
    """A JoinGroup of type "demo"; `protocols` may be given as {name: metadata}."""
    protocols = fields.pop("protocols", {"range": b"m"})
    if isinstance(protocols, dict):
        protocols = tuple(api.Protocol(name, value) for name, value in protocols.items())
    defaults = {
        "group": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "demo",
    }
    return api.JoinGroup(v=1, id=id, client=client, protocols=protocols, **{**defaults, **fields})


def sync(client: str, generation: int, member: str, id: str = "s1", **fields: Any) -> api.SyncGroup:
    """A SyncGroup; `assignments` may be given as {member: bytes}."""
    given = fields.pop("assignments", {})
    rows = tuple(api.MemberAssignment(name, value) for name, value in given.items())
    fields.setdefault("group", "g")
    return api.SyncGroup(
        v=1,
        id=id,
        client=client,
        generation=generation,
        member=member,
        assignments=rows,
        **fields,
    )


def heartbeat(client: str, generation: int, member: str, **fields: Any) -> api.Heartbeat:
    fields = {"group": "g", "id": "h", **fields}
    return api.Heartbeat(v=1, client=client, generation=generation, member=member, **fields)


def leave(client: str, *members: str | api.Leaver, **fields: Any) -> api.LeaveGroup:
    fields = {"group": "g", "id": "l", **fields}
    rows = tuple(api.Leaver(each) if isinstance(each, str) else each for each in members)
    return api.LeaveGroup(v=1, client=client, members=rows, **fields)


def commit(
    client: str, generation: int = -1, member: str = "", offset: int = 5, **fields: Any
) -> api.OffsetCommit:
    fields = {"group": "g", "id": "c", **fields}
    fields.setdefault("offsets", (api.CommittedOffset("t", 0, offset),))
    return api.OffsetCommit(v=1, client=client, generation=generation, member=member, **fields)


def pending_commit(
    client: str, generation: int = -1, member: str = "", offset: int = 5, **fields: Any
) -> api.PendingCommit:
    """A commit that a transaction of Kafka decides, of t/0 unless `offsets` are given."""
    fields = {"group": "g", "id": "p", "decided_by": "kafka", **fields}
    fields.setdefault("offsets", (api.CommittedOffset("t", 0, offset),))
    return api.PendingCommit(v=1, client=client, generation=generation, member=member, **fields)


def with_writes(
    client: str, generation: int = -1, member: str = "", offset: int = 5, **fields: Any
) -> api.PendingCommit:
    """The same, decided by a commit of the Delta table `lake`."""
    fields = {"id": "w", "decided_by": "delta", "table": "lake", **fields}
    return pending_commit(client, generation, member, offset, **fields)


def decide(
    client: str, pending: str, result: Literal["commit", "abort"] = "commit", **fields: Any
) -> api.DecidePending:
    """How pending offsets are decided; the sender is no member unless `member` is given."""
    fields = {"group": "g", "id": "y", **fields}
    return api.DecidePending(v=1, client=client, pending=pending, result=result, **fields)


def ended(committed: Iterable[int] = (), aborted: Iterable[int] = ()) -> api.TxnDecided:
    """How the transactions of these records ended."""
    return api.TxnDecided(v=1, committed=tuple(committed), aborted=tuple(aborted))


def fetch(client: str, **fields: Any) -> api.OffsetFetch:
    return api.OffsetFetch(v=1, client=client, **{"group": "g", "id": "f", **fields})


def delete_offsets(client: str, *places: tuple[str, int], **fields: Any) -> api.OffsetDelete:
    """An OffsetDelete; places are topics and partitions."""
    fields = {"group": "g", "id": "o", **fields}
    rows = tuple(api.TopicPartitions(topic, (partition,)) for topic, partition in places)
    return api.OffsetDelete(v=1, client=client, topics=rows, **fields)


def describe(client: str, **fields: Any) -> api.DescribeGroup:
    return api.DescribeGroup(v=1, client=client, **{"group": "g", "id": "d", **fields})


def delete(client: str, **fields: Any) -> api.DeleteGroup:
    return api.DeleteGroup(v=1, client=client, **{"group": "g", "id": "d", **fields})


def find(client: str, **fields: Any) -> api.FindCoordinator:
    return api.FindCoordinator(v=1, client=client, **{"group": "g", "id": "f", **fields})


def release(client: str, **fields: Any) -> api.ReleaseQuarantine:
    return api.ReleaseQuarantine(v=1, client=client, **{"group": "g", "id": "q", **fields})
