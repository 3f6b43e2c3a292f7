"""Streams of pending offsets, and of transactional ids, amid mutations of all that is written.

Decisions, words of members and messages of shards are among the mutations: nobody is believed who
should not be, and what is believed must still break no group and no id. Channels are fed, their
shards told, and batches end, as a driver does it.
"""

from random import Random
from typing import Any, Final

from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools import driving, pending_logs
from tests.tools import producers as p
from tests.tools.core import ShardSettings
from tests.tools.fuzz.shards import STREAM_LENGTH, Folded, HostileConversation, judged

IDS: Final = (p.ID, "other")
#: Of groups that commit in the transactions.
GROUPS: Final = ("g", "h")
_VERBS: Final = (
    *["init", "add", "group", "offsets", "offsets", "commit", "abort"],
    *["written", "operator", "describe", "feed", "hear", "wait"],
)


def fold(seed: int, count: int) -> Folded:
    """Streams until `count` records are judged."""
    outcome = Folded()
    while outcome.records < count:
        outcome.add(_of_ids(seed) if seed % 2 else _of_pending(seed))
        seed += 1
    return outcome


def _settings(rnd: Random) -> ShardSettings:
    return driving.settings(
        initial_rebalance_delay_ms=0,
        offsets_retention_ms=rnd.choice((15_000, 7 * 24 * 3_600_000)),
        offsets_per_group_max=rnd.choice((5, 100_000)),
        offsets_bytes_per_group_max=rnd.choice((300, 16_777_216)),
        bytes_max=rnd.choice((9_000, 67_108_864)),
    )


def _of_pending(seed: int) -> Folded:
    rnd = Random(seed)
    settings = _settings(rnd)
    talk = HostileConversation(settings, rnd)
    return judged(
        seed,
        talk,
        lambda: pending_logs.draw_log(seed, STREAM_LENGTH, settings, positions=True, talk=talk),
    )


def _of_ids(seed: int) -> Folded:
    rnd = Random(seed)
    talk = HostileConversation(_settings(rnd), rnd)
    return judged(seed, talk, lambda: use_ids(rnd, talk))


def use_ids(rnd: Random, talk: HostileConversation) -> None:
    """What producers of two ids say, and everybody else, to a stream's length."""
    while len(talk.log) < STREAM_LENGTH:
        _say(rnd, talk, rnd.choice(_VERBS), rnd.choice(IDS))


def _say(rnd: Random, talk: HostileConversation, verb: str, name: str) -> None:
    match verb:
        case "feed":
            talk.feed()
        case "hear":
            talk.hear()
        case "wait":
            talk.wait(rnd.choice((1_000, p.TIMEOUT_MS)))
        case _:
            talk.send(_asked(rnd, talk, verb, name), rnd.choice((0, 10, 3_000)))


def _asked(rnd: Random, talk: HostileConversation, verb: str, name: str) -> api.AnyRequest:
    """A request of the producer that there is, mostly."""
    row = talk.shard.rows.get((TRANSACTION, name))
    value: Transaction | None = row.value if row is not None else None
    ended = None if value is None else value.ended
    who = (rnd.randrange(9), rnd.randrange(4))
    if value is not None and rnd.random() < 0.8:
        who = value.next_producer
    elif ended is not None:
        who = ended.producer_id, ended.epoch
    commits = 0 if value is None else value.commits
    fields: dict[str, Any] = {"group": name, "id": f"q{talk.next_offset}"}
    match verb:
        case "init":
            named: tuple[int, ...] = who if rnd.random() < 0.4 else ()
            asked: api.AnyRequest = p.init(*named, **fields, timeout_ms=rnd.choice((6_000, 60_000)))
        case "add":
            asked = p.add(*who, **fields)
        case "group":
            asked = p.add_group(*who, rnd.choice(GROUPS), **fields)
        case "offsets":
            asked = p.offsets(*who, commits, **{**fields, "of_group": rnd.choice(GROUPS)})
        case "commit" | "abort":
            asked = p.end(*who, verb, **fields, accepted=commits)
        case "written":
            asked = p.written(*((ended.producer_id, ended.epoch) if ended else who), **fields)
        case "operator":
            asked = p.abort(**fields)
        case _:
            asked = p.describe(**fields)
    return asked
