"""Requests about transactional ids, with what rarely matters left out; ids that have come so far.

    talk = Talk()
    talk.send(init())              # producer id 0, epoch 0
    talk.send(add(0, 0))           # its transaction has partition c/t/0
    talk.send(end(0, 0))

`Talk` is a conversation whose messages reach their entities by `settle`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordlib.core.transactions.transaction import Transaction
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools.driving import SETTINGS, Conversation

#: Longer than what these conversations take, unless one waits for it.
TIMEOUT_MS: Final = 60_000
ID: Final = "copier"
#: One partition, where none is named.
PLACES: Final = (api.TopicsOfCluster(cluster="c", topic="t", partitions=(0,)),)


class Talk(Conversation):
    """A conversation with a shard whose messages reach it."""

    def settle(self) -> list[str]:
        """The driver feeds what waits, and tells what was judged."""
        return [*self.feed(), *self.hear()]

    def producer(self, name: str = ID) -> Transaction:
        """The head of a transactional id. Raises KeyError when there is none."""
        value: Transaction = self.shard.row(name, TRANSACTION).value
        return value


def _fields(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {"v": 1, "client": "a", "group": ID, **defaults, **given}


def init(producer_id: int | None = None, epoch: int | None = None, **fields: Any) -> Any:
    """InitProducerId; of the process that had this producer, or of a new one."""
    named = {} if producer_id is None else {"producer_id": producer_id, "epoch": epoch}
    return api.InitProducerId(**_fields({"id": "i", "timeout_ms": TIMEOUT_MS, **named}, fields))


def add(producer_id: int, epoch: int, **fields: Any) -> api.AddPartitionsToTxn:
    """AddPartitionsToTxn."""
    named = {"id": "p", "producer_id": producer_id, "epoch": epoch, "partitions": PLACES}
    return api.AddPartitionsToTxn(**_fields(named, fields))


def add_group(producer_id: int, epoch: int, of_group: str = "g", **fields: Any) -> Any:
    """AddOffsetsToTxn."""
    named = {"id": "g", "producer_id": producer_id, "epoch": epoch, "of_group": of_group}
    return api.AddOffsetsToTxn(**_fields(named, fields))


def offsets(producer_id: int, epoch: int, number: int = 0, **fields: Any) -> api.TxnOffsetCommit:
    """TxnOffsetCommit of t/0, of a client that is no member."""
    named: dict[str, Any] = {"id": f"o{number}", "producer_id": producer_id, "epoch": epoch}
    named |= {"number": number, "of_group": "g", "offsets": (api.CommittedOffset("t", 0, 5),)}
    return api.TxnOffsetCommit(**_fields(named, fields))


def end(producer_id: int, epoch: int, result: str = "commit", **fields: Any) -> api.EndTxn:
    """EndTxn."""
    named = {"id": "e", "producer_id": producer_id, "epoch": epoch, "result": result}
    return api.EndTxn(**_fields(named, fields))


def written(producer_id: int, epoch: int, **fields: Any) -> api.TxnMarkersWritten:
    """TxnMarkersWritten."""
    named = {"id": "w", "producer_id": producer_id, "epoch": epoch, "partitions": PLACES}
    return api.TxnMarkersWritten(**_fields(named, fields))


def abort(**fields: Any) -> api.AbortTransaction:
    """AbortTransaction of an operator."""
    return api.AbortTransaction(**_fields({"id": "x", "client": "ops"}, fields))


def describe(**fields: Any) -> api.DescribeTransaction:
    """DescribeTransaction."""
    return api.DescribeTransaction(**_fields({"id": "d"}, fields))


# -- ids that have come so far: the producer of now is (0, 1), the one before had epoch 0 ---------


def empty(how: Any = SETTINGS) -> Talk:
    """A second process has taken over."""
    talk = Talk(how)
    talk.send_all(init(id="i0", client="z"), init())
    return talk


def ongoing(how: Any = SETTINGS) -> Talk:
    """Its transaction has a partition and a group."""
    talk = empty(how)
    talk.send_all(add(0, 1), add_group(0, 1))
    return talk


def _decided(result: str) -> Talk:
    talk = Talk()
    talk.send_all(init(), add(0, 0), add_group(0, 0), end(0, 0, result))
    return talk


def prepare_commit() -> Talk:
    """(0, 0) has committed; neither its partition nor its group has been told."""
    return _decided("commit")


def prepare_abort() -> Talk:
    """The same, aborted."""
    return _decided("abort")


def _over(talk: Talk) -> Talk:
    talk.send(written(0, 0))
    talk.settle()
    return talk


def complete_commit() -> Talk:
    """(0, 0) has committed, and all have been told."""
    return _over(prepare_commit())


def complete_abort() -> Talk:
    """The same, aborted."""
    return _over(prepare_abort())


def timed_out() -> Talk:
    """(0, 0) was aborted by its timeout, and all have been told."""
    talk = Talk()
    talk.send_all(init(timeout_ms=6_000), add(0, 0), add_group(0, 0))
    talk.wait(12_000)
    return _over(talk)


def fenced() -> Talk:
    """(0, 0) was aborted by a newer process, which has not asked again yet."""
    talk = Talk()
    talk.send_all(init(client="z"), add(0, 0), add_group(0, 0), init())
    return _over(talk)


#: How an id gets into each state. In all but Empty and Ongoing the producer before was (0, 0).
STATES: Final[dict[str, Callable[[], Talk]]] = {
    "absent": Talk,
    "Empty": empty,
    "Ongoing": ongoing,
    "PrepareCommit": prepare_commit,
    "PrepareAbort": prepare_abort,
    "CompleteCommit": complete_commit,
    "CompleteAbort": complete_abort,
    "TimedOut": timed_out,
    "Fenced": fenced,
}
