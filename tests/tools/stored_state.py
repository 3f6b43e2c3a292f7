"""Stored states of each version, kept as fixtures: what a job's checkpoint and topics hold.

    python -m tests.tools.stored_state             write the fixture of a new state version
    python -m tests.tools.stored_state --outputs   record anew what follows from each of them

A fixture has one rich shard: its blob, the values that it left in the compacted topics, its
position in the marker, a log that goes on from there, and what follows. The states are written
once and never again: they are what deployments have on disk. What follows from them is recorded
anew only when a change of behaviour is meant; then read the diff.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from coordlib.core.engine.effects import (
    CLUSTERS,
    COMMITTED,
    GROUPS,
    METADATA,
    OUTBOX,
    TRANSACTIONS,
    Output,
)
from coordlib.core.groups.assignors.server_model import Shares
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.stored import ShardPosition
from tests.tools import driving, stored_clusters, stored_transactions
from tests.tools.assigned_groups import group_of, let_go, subscribe, topic_id, topics
from tests.tools.core import STATE_VERSION, InputRecord, fold, restore
from tests.tools.driving import Conversation, commit, heartbeat, join, leave, sync

FOLDER: Final = Path("tests/core/engine/stored_states")
#: What the names of the fixtures of clusters and transactions say beside their version.
OF_CLUSTERS: Final = "-clusters"
OF_TRANSACTIONS: Final = "-transactions"
#: Compacted topics of which a fixture has all that they hold.
_BESIDE: Final = (CLUSTERS, METADATA, TRANSACTIONS, OUTBOX)


def failing(*_: object) -> Shares:
    """A user's strategy that never divides."""
    raise LookupError("no idea")


SETTINGS: Final = driving.settings(
    requires_member_id=True, initial_rebalance_delay_ms=3_000, strategies={"failing": failing}
)
WANTS_T: Final = cp.encode_subscription(cp.Subscription(topics=("t", "\u00e9"), rack="r1"))
HAS_T0: Final = cp.encode_assignment(cp.Assignment(partitions={"t": (0, 1)}))


class Stored(msgspec.Struct, kw_only=True):
    """A fixture; bytes are base64."""

    version: int
    blob: bytes
    #: Newest values of `coord.groups`, by key.
    groups: dict[str, bytes]
    #: Newest (key, value) of `coord.committed`.
    committed: list[tuple[bytes, bytes]]
    position: ShardPosition
    #: What comes next: topic, offset, timestamp, value.
    log: list[tuple[str, int, int, bytes]]
    #: Newest (topic, key, value) of the other compacted topics.
    beside: list[tuple[str, bytes, bytes]]
    #: What follows from the blob, and from the compacted topics: lines of `lines_of`.
    outputs: list[str] = []
    outputs_after_rebuild: list[str] = []

    def rebuilt(self) -> bytes:
        """The blob as the compacted topics give it."""
        saved = self.groups.values()
        return restore(saved, self.committed, self.position, beside=self.beside)

    def go_on(self, blob: bytes) -> list[str]:
        """What follows from the log that comes next."""
        records = [InputRecord(*row) for row in self.log]
        outcome = fold(blob, records, SETTINGS)
        return [*lines_of(outcome.outputs), msgspec.json.encode(outcome.status).decode()]


def lines_of(outputs: list[Output]) -> list[str]:
    """Outputs whole, one line each; values are JSON, so they are kept as text."""
    return [
        f"{output.topic} {output.partition} {output.key.decode()} "
        f"{'gone' if output.value is None else output.value.decode()}"
        for output in outputs
    ]


# -- a rich shard ----------------------------------------------------------------------------


def made() -> Stored:
    """The fixture of today's code."""
    return _made(_have_everything, _go_on)


def made_clusters() -> Stored:
    """The fixture of clusters of brokers, which had not been there when the version began."""
    return _made(stored_clusters.have_everything, stored_clusters.go_on)


def made_transactions() -> Stored:
    """The fixture of transactions, which came as late."""
    return _made(stored_transactions.have_everything, stored_transactions.go_on)


def _made(begin: Callable[[Conversation], None], go_on: Callable[[Conversation], None]) -> Stored:
    talk = Conversation(SETTINGS)
    begin(talk)
    talk.end_batch()
    written = _compacted(talk.outputs)
    fixture = Stored(
        version=STATE_VERSION,
        blob=talk.shard.encode(),
        groups={key.decode(): value for (topic, key), value in written.items() if topic == GROUPS},
        committed=[(key, value) for (topic, key), value in written.items() if topic == COMMITTED],
        position=talk.shard.status().position,
        log=[],
        beside=[(topic, key, value) for (topic, key), value in written.items() if topic in _BESIDE],
    )
    stored_until = len(talk.log)
    go_on(talk)
    fixture.log = [
        (each.topic, each.offset, each.timestamp_ms, each.value or b"")
        for each in talk.log[stored_until:]
    ]
    return record_outputs(fixture)


def record_outputs(fixture: Stored) -> Stored:
    """With what follows by today's code."""
    fixture.outputs = fixture.go_on(fixture.blob)
    fixture.outputs_after_rebuild = fixture.go_on(fixture.rebuilt())
    return fixture


def _have_everything(talk: Conversation) -> None:
    """Groups in every state, and every field of the hard state with more than its default."""
    consumers: dict[str, Any] = {"protocol_type": "consumer", "protocols": {"range": WANTS_T}}
    for group in ("consumers", "guarded", "completing", "preparing", "empty", "failed"):
        _start(talk, group, "a", instance=f"{group}-a", **consumers)
    fields = {"instance": "consumers-b", "reply": 0, "host": "machine-b", **consumers}
    _start(talk, "consumers", "b", **fields)
    talk.tick()
    talk.wait(7_000)
    for group in ("consumers", "guarded", "preparing", "empty"):
        _divide(talk, group)
    # The leader of this one cannot divide.
    why = {"error": "INCONSISTENT_GROUP_PROTOCOL", "message": "user data of a cannot be read"}
    talk.send(sync("a", 1, _member(talk, "failed"), group="failed", **why))
    talk.tick()
    _commit(talk, "consumers")
    _commit(talk, "empty")
    talk.send(leave("a", _member(talk, "empty"), group="empty"))
    talk.send(commit("tool", group="tools", offset=2**40), topic=COMMITS)
    _divide_on_the_server(talk)
    # A newer process takes a's place and waits behind a guard; an older one has let go.
    talk.send(join("a2", group="guarded", instance="guarded-a", **consumers))
    talk.send(sync("a2", 1, _member(talk, "guarded"), group="guarded"))
    talk.send(leave("b", _member(talk, "consumers", 1), group="consumers", remain=True))
    # One joins beside a, who has not heard of it yet; an announced id has not joined.
    _start(talk, "preparing", "c", instance="preparing-c", reason="scaled out", **consumers)
    talk.tick(published=talk.next_offset - 3)
    talk.send(join("d", group="preparing", **consumers))
    talk.send(join("e", group="announced", id="first", **consumers))
    _start(talk, "initial", "f", instance="initial-f")
    # What readers cannot see yet is counted.
    rows = tuple(api.CommittedOffset("t", each, each, metadata="m" * 4_000) for each in range(3))
    talk.send(commit("tool", group="tools", offsets=rows))
    talk.send(driving.fetch("tool", group="tools"))
    _divide_anew(talk)
    # A topic that was made anew, and is read under both of its ids.
    for number in (1, 2):
        one = {"ids": {"u-1": topic_id(number)}, "after": "u", "through": "u-1"}
        talk.send(topics({"u-1": 3}, **one))
    rows = tuple(api.CommittedOffset("u-1", n, 7, topic_id=topic_id(n)) for n in (1, 2))
    talk.send(commit("tool", group="tools", offsets=rows), topic=COMMITS)


def _divide_on_the_server(talk: Conversation) -> None:
    """Server-assigned groups: at rest, deserted, and one in which everything is on its way."""
    talk.send(topics({"t": 6, "\u00e9": 2, "u-1": 3, "u-2": 1}))
    talk.send(subscribe("a", group="assigned-stable", strategy="failing"))
    talk.send(subscribe("a", group="assigned-deserted"))
    talk.send(leave("ops", _member(talk, "assigned-deserted"), group="assigned-deserted"))
    talk.send(subscribe("a", group="assigned-empty"))
    talk.send(leave("a", _member(talk, "assigned-empty"), group="assigned-empty"))
    name = "assigned-reconciling"
    wants: dict[str, Any] = {"pattern": ".*", "exclude": "u-2", "topics": ("\u00e9", "later")}
    talk.send(subscribe("a", group=name, capacity=2, reply=0, host="machine-a", **wants))
    talk.send(subscribe("b", group=name, rebalance_timeout_ms=9_000))
    talk.tick()
    a, b = talk.group(name).members
    (demand,) = group_of(talk, name).members[a].demands
    talk.send(let_go("a", 2, a, cause=demand.timer.cause, group=name))
    rows = tuple(api.CommittedOffset("t", each, each) for each in range(6))
    talk.send(commit("a", 2, a, group=name, offsets=rows))
    talk.send(commit("b", 2, b, group=name, offsets=rows))
    talk.send(subscribe("c", group=name))
    talk.tick()


def _divide_anew(talk: Conversation) -> None:
    """Nobody has heard of it yet."""
    name = "assigned-reconciling"
    talk.send(leave("ops", _member(talk, name, 1), group=name))
    talk.send(topics({"t": 7, "\u00e9": 2, "u-1": 3, "u-2": 1}))
    wants: dict[str, Any] = {"pattern": ".*", "exclude": "u-2", "topics": ("\u00e9", "later")}
    talk.send(subscribe("d", group=name, **wants))


def _start(talk: Conversation, group: str, client: str, **fields: Any) -> None:
    talk.send(join(client, group=group, **fields))


def _member(talk: Conversation, group: str, place: int = 0) -> str:
    return list(talk.group(group).members)[place]


def _divide(talk: Conversation, group: str) -> None:
    """The leader gives shares, and everybody has theirs."""
    now = talk.group(group)
    shares = dict.fromkeys(now.members, HAS_T0)
    for member in now.members.values():
        given = shares if member.member == now.leader else {}
        request = sync(member.client, now.generation, member.member, group=group, assignments=given)
        talk.send(request)


def _commit(talk: Conversation, group: str) -> None:
    now = talk.group(group)
    member = now.members[now.leader or ""]
    times: dict[str, Any] = {"gone": 2**43}
    rows = tuple(
        api.CommittedOffset(
            topic, partition, 10 * partition, 3, f"at {partition}", times.get(topic, UNSET)
        )
        for topic in ("t", "\u00e9", "gone")
        for partition in (0, 1, 64, 1_000)
    )
    talk.send(commit(member.client, now.generation, member.member, group=group, offsets=rows))


def _go_on(talk: Conversation) -> None:
    """A log in which everything that was stored matters once more."""
    leader = _member(talk, "consumers")
    talk.tick(after_ms=500)
    talk.send(heartbeat("a", 1, leader, group="consumers", instance="consumers-a"))
    talk.send(api.OffsetFetch(v=1, id="f", client="a", group="consumers"))
    talk.send(driving.describe("ops", group="guarded"))
    talk.send(heartbeat("a", 1, "a-t-0-1", group="guarded"))
    talk.send(join("e", group="announced", id="first"))
    fields = {"group": "preparing", "instance": "preparing-a", "generation": 1}
    talk.send(join("a", "again", member=_member(talk, "preparing"), **fields))
    talk.send(sync("a", 1, _member(talk, "completing"), group="completing"))
    talk.send(sync("a", 1, _member(talk, "failed"), group="failed"))
    talk.send(leave("a", "a-t-0-1", group="guarded"))
    talk.send(driving.delete("ops", group="tools"))
    _go_on_dividing(talk, "assigned-reconciling")
    talk.send(driving.describe("ops", group="empty"))
    talk.wait(30_000, 3_000)
    talk.tick()
    talk.wait(700_000, 100_000)


def _go_on_dividing(talk: Conversation, name: str) -> None:
    first = group_of(talk, name).members[_member(talk, name)]
    for demand in first.demands:
        request = let_go("a", 2, first.member, demand.timer.cause, group=name)
        talk.send(request, after_ms=200)
    talk.send(driving.describe("ops", group=name))
    talk.send(heartbeat("a", 1, first.member, group=name))
    talk.send(subscribe("b", group=name, rebalance_timeout_ms=9_000))  # once more, and late
    talk.send(heartbeat("b", 2, next(iter(group_of(talk, name).guards)), group=name))
    talk.send(subscribe("a", "2", group=name, member=first.member, generation=2))
    talk.send(topics({"later": 2}, through="m"))
    talk.send(driving.fetch("ops", group=name))
    talk.send(driving.describe("ops", group="assigned-deserted"))


def _compacted(outputs: list[Output]) -> dict[tuple[str, bytes], bytes]:
    newest: dict[tuple[str, bytes], bytes] = {}
    for output in outputs:
        newest.pop((output.topic, output.key), None)
        if output.value is not None:
            newest[output.topic, output.key] = output.value
    return newest


# -- files -----------------------------------------------------------------------------------


def path_of(version: int, folder: Path = FOLDER, what: str = "") -> Path:
    return folder / f"v{version}{what}.json"


def read(path: Path) -> Stored:
    return msgspec.json.decode(path.read_bytes(), type=Stored)


def write(path: Path, fixture: Stored) -> None:
    path.write_text(json.dumps(msgspec.to_builtins(fixture), indent=1, ensure_ascii=False) + "\n")


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    if arguments == ["--outputs"]:
        for path in sorted(FOLDER.glob("v*.json")):
            write(path, record_outputs(read(path)))
        return 0
    missing = {
        path: make
        for path, make in (
            (path_of(STATE_VERSION), made),
            (path_of(STATE_VERSION, what=OF_CLUSTERS), made_clusters),
            (path_of(STATE_VERSION, what=OF_TRANSACTIONS), made_transactions),
        )
        if not path.exists()
    }
    for path, make in missing.items():
        write(path, make())
    if not missing:
        print("All are written: raise STATE_VERSION for another layout", file=sys.stderr)
    return 0 if missing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
