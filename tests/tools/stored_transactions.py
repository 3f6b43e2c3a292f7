"""Transactions for the fixtures of stored states (`tests.tools.stored_state`).

Transactional ids in every state, and one that is set aside; pending offsets of each decider, and a
decision that waits for the release of its group; messages that no shard is known to have judged.
"""

from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire import api
from coordlib.core.wire.stored import GROUP_SPACE
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools import driving
from tests.tools import producers as p
from tests.tools.assigned_groups import topic_id
from tests.tools.driving import Conversation

#: Groups that commit; the second one is set aside.
GROUPS: Final = ("g", "h")
LAST_EPOCH: Final = 32_766


def have_everything(talk: Conversation) -> None:
    """All of it. What was told comes first: what is fed is all that waits."""
    _begin(talk, "timed-out", timeout_ms=6_000)
    _begin(talk, "timed-out-last", timeout_ms=6_000, epoch=LAST_EPOCH)
    talk.wait(12_000)
    for name in ("complete-commit", "complete-abort", "last", "replaced"):
        _begin(talk, name, epoch=LAST_EPOCH if name in ("last", "replaced") else 0)
        _end(talk, name, "abort" if name == "complete-abort" else "commit")
    _begin(talk, "ongoing")
    talk.feed()
    talk.hear()
    for name in ("complete-commit", "complete-abort", "last", "replaced", "timed-out"):
        _written(talk, name)
    _begin(talk, "replaced", id="again")  # with the producer id behind the one that was used up
    _pend(talk)
    talk.send(p.init(group="empty", id="i"))
    for name, result in (("prepare-commit", "commit"), ("prepare-abort", "abort")):
        _begin(talk, name)
        _end(talk, name, result)
    _begin(talk, "prepare-last", epoch=LAST_EPOCH)
    _end(talk, "prepare-last", "commit")
    for reply in (0, 1):  # of other processes, which wait for the end
        talk.send(p.init(group="prepare-commit", id=f"again-{reply}", client="c", reply=reply))
    _begin(talk, "set-aside")
    set_aside(talk, TRANSACTION, "set-aside")


def _begin(talk: Conversation, name: str, *, epoch: int = 0, **fields: Any) -> None:
    """A transaction with a partition, and with offsets of both groups."""
    talk.send(p.init(group=name, **fields))
    if epoch:
        row = talk.shard.row(name, TRANSACTION)
        talk.shard._settle(row, replace(_value(talk, name), epoch=epoch), [])
    who = _value(talk, name).next_producer
    talk.send(p.add(*who, group=name))
    for number, group in enumerate(GROUPS):
        rows = (api.CommittedOffset("t", 0, 5 + number, 1, "where \u4e2d"),)
        talk.send(p.offsets(*who, number, group=name, of_group=group, offsets=rows))


def _value(talk: Conversation, name: str) -> Transaction:
    found: Transaction = talk.shard.row(name, TRANSACTION).value
    return found


def _end(talk: Conversation, name: str, result: str) -> None:
    value = _value(talk, name)
    talk.send(p.end(*value.next_producer, result, group=name, accepted=value.commits))


def _written(talk: Conversation, name: str) -> None:
    ended = _value(talk, name).ended
    assert ended is not None
    talk.send(p.written(ended.producer_id, ended.epoch, group=name))


def _pend(talk: Conversation) -> None:
    """Of Kafka and of a table, in both groups; one of the second group is decided already."""
    for group in GROUPS:
        ids = {"t": topic_id(1)}
        rows = tuple(
            api.CommittedOffset(topic, 0, 7, 2, "m", topic_id=ids.get(topic, UNSET))
            for topic in ("t", "\u00e9")
        )
        talk.send(driving.pending_commit("a", group=group, offsets=rows))
        talk.send(driving.with_writes("a", group=group, table="s3://lake/orders"))
    set_aside(talk, GROUP_SPACE, GROUPS[1])
    talk.send(driving.ended(committed=[talk.next_offset - 2]))


def set_aside(talk: Conversation, space: str, name: str) -> None:
    """As a defect in a step of it does."""
    talk.shard._quarantine(talk.shard._here(), (space, name), ZeroDivisionError("a defect"))


def go_on(talk: Conversation) -> None:
    """A log in which everything that was stored matters once more."""
    first, *others = sorted(talk.shard.status().undecided)
    for group in GROUPS:
        talk.send(driving.fetch("b", group=group, require_stable=True), after_ms=200)
        talk.send(driving.describe("ops", group=group))
    for name in ("empty", "ongoing", "prepare-commit", "complete-abort", "last", "set-aside"):
        talk.send(p.describe(group=name))
    talk.send(driving.ended(committed=[first], aborted=others))
    talk.send(driving.decide("a", f"r0-{first + 1}", "commit"))
    _begin(talk, "empty")
    _end(talk, "ongoing", "commit")
    _begin(talk, "last", id="again")
    talk.send(p.init(group="timed-out-last", id="another", client="c"))
    for name in ("prepare-commit", "prepare-abort", "prepare-last", "ongoing"):
        _written(talk, name)
    talk.feed()
    talk.hear()
    talk.send(driving.release("ops", group=GROUPS[1]))
    talk.send(driving.release("ops", group="set-aside", space=TRANSACTION))
    _end(talk, "set-aside", "abort")
    talk.feed()
    talk.hear()
    talk.tick()
    talk.wait(90_000, 3_000)
    talk.feed()
    talk.hear()
    for group in GROUPS:
        talk.send(driving.fetch("b", group=group, require_stable=True))
