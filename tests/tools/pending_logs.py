"""Random logs of groups with pending offsets: commits of all makes, decisions in any order.

Whoever decides knows nothing of the group, and says things twice, late, and about records that are
no pending commits. So decisions name offsets that exist, mostly, and senders are members, mostly.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final, Literal, NamedTuple

from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from coordlib.core.wire.offsets import DELTA
from tests.tools import driving
from tests.tools.core import InputRecord, ShardSettings
from tests.tools.driving import Conversation

GROUPS = ("g", "h")
PLACES = tuple((topic, partition) for topic in ("t", "u") for partition in range(3))
RESULTS: Final[tuple[Literal["commit", "abort"], ...]] = ("commit", "abort")
STEPS_MS = (0, 0, 1, 300, 1_500, 4_000, 20_000)


class Report(NamedTuple):
    """What a request is about."""

    group: str
    client: str
    member: str
    generation: int
    rows: tuple[api.CommittedOffset, ...]
    is_stable: bool
    #: Few, so that a request comes twice.
    id: str

    @property
    def who(self) -> tuple[str, int, str]:
        return self.client, self.generation, self.member


_REQUESTS: Final[dict[str, Callable[[Report], api.AnyRequest]]] = {
    "pend": lambda s: driving.pending_commit(*s.who, group=s.group, offsets=s.rows),
    "write": lambda s: driving.with_writes(*s.who, group=s.group, offsets=s.rows, id=s.id),
    "commit": lambda s: driving.commit(*s.who, group=s.group, offsets=s.rows),
    "position": lambda s: driving.commit("tool", group=s.group, offsets=s.rows),
    "fetch": lambda s: driving.fetch(s.client, group=s.group, require_stable=s.is_stable),
    "describe": lambda s: driving.describe("ops", group=s.group),
    "join": lambda s: driving.join(
        s.client, group=s.group, member=s.member, generation=s.generation
    ),
    "sync": lambda s: driving.sync(
        s.client, max(s.generation, 0), s.member or "nobody", group=s.group
    ),
    "leave": lambda s: driving.leave(s.client, s.member or "nobody", group=s.group),
    "delete": lambda s: driving.delete("ops", group=s.group),
    "delete-offsets": lambda s: driving.delete_offsets(
        "ops", *((row.topic, row.partition) for row in s.rows), group=s.group
    ),
    "release": lambda s: driving.release("ops", group=s.group),
}
VERBS = (*["pend", "decide"] * 4, *["write", "say"] * 3, *["fetch"] * 2, *_REQUESTS, "sync", "tick")


def draw_log(
    seed: int,
    length: int,
    how: ShardSettings,
    positions: bool = False,
    talk: Conversation | None = None,
) -> tuple[list[InputRecord], Conversation]:
    """A log, and the conversation that it came of.

    `positions`: with records of `coord.offsets`. `talk`: a conversation of the caller's, which may
    write more than it is told.
    """
    draw, talk = Random(seed), talk or Conversation(how)
    while len(talk.log) < length:
        verb, after_ms = draw.choice(VERBS), draw.choice(STEPS_MS)
        if verb == "tick":
            talk.tick(after_ms=after_ms)
        elif verb == "decide":
            talk.send(_decision(draw, talk), after_ms)
        elif verb == "say":
            talk.send(_word(draw, talk), after_ms)
        else:
            topic = COMMITS if verb == "position" and positions else "r"
            talk.send(_REQUESTS[verb](_drawn(draw, talk)), after_ms, topic)
        if draw.random() < 0.1:
            talk.end_batch()
    return talk.log, talk


def _drawn(draw: Random, talk: Conversation) -> Report:
    group = draw.choice(GROUPS)
    places = draw.sample(PLACES, draw.randint(1, 4))
    rows = tuple(api.CommittedOffset(*place, draw.randint(0, 9)) for place in places)
    client, member, generation = _sender(draw, talk, group)
    is_stable, id_ = draw.random() < 0.8, draw.choice("vw")
    return Report(group, client, member, generation, rows, is_stable, id_)


def _sender(draw: Random, talk: Conversation, group: str) -> tuple[str, str, int]:
    """A member that is there, mostly; else somebody of before, or nobody."""
    row = talk.shard.groups.get(group)
    members: list[Any] = list(row.value.members.values()) if row and row.value else []
    if members and draw.random() < 0.8:
        member = draw.choice(members)
        return member.client, member.member, row.value.generation if row else -1
    if draw.random() < 0.7:
        return draw.choice(("a", "b")), "", -1
    return "z", draw.choice(("", "nobody")), draw.choice((-1, 0, 1, 2))


def _decision(draw: Random, talk: Conversation) -> api.TxnDecided:
    """Some of the open entries, and sometimes any record."""
    named = {each for each in talk.shard.status().undecided if draw.random() < 0.5}
    if talk.next_offset and draw.random() < 0.3:
        named.add(draw.randrange(talk.next_offset))
    committed = {each for each in sorted(named) if draw.random() < 0.5}
    return driving.ended(sorted(committed), sorted(named - committed))


def _word(draw: Random, talk: Conversation) -> api.DecidePending:
    """About an open entry, mostly: of its sender, of another member, or of an operator."""
    group = draw.choice(GROUPS)
    row = talk.shard.groups.get(group)
    entries = [(key, entry) for key, _, entry in row.entries(PENDING)] if row else []
    of_delta = [each for each in entries if each[1].decided_by == DELTA]
    if not entries or draw.random() < 0.1:
        return driving.decide("ops", f"r0-{draw.randrange(talk.next_offset + 1)}", reason="?")
    key, entry = draw.choice(of_delta or entries)
    if draw.random() < 0.2:
        return driving.decide("ops", key, draw.choice(RESULTS), group=group, reason="?")
    client, member, generation = _sender(draw, talk, group)
    if draw.random() < 0.6:
        client, member, generation = entry.client, entry.member, entry.generation
    reason = draw.choice(("", "", "?"))
    result = draw.choice(RESULTS)
    who = {"member": member, "generation": generation, "reason": reason}
    return driving.decide(client, key, result, group=group, **who)
