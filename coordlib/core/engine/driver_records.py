"""Records of the job's driver in one shard: listings, messages of shards, what became of messages.

Which of them count is judged before (`control.py`).
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from coordlib.core.engine import effect as fx
from coordlib.core.engine import rejection
from coordlib.core.engine.kind import Kind
from coordlib.core.engine.rows import Rows
from coordlib.core.engine.step import Decide
from coordlib.core.engine.transition import At, Key
from coordlib.core.wire import codec
from coordlib.core.wire import requests as rq
from coordlib.core.wire.envelope import Message
from coordlib.errors import ErrorCode


class DriverRecords(Rows):
    """What follows from them, in the entities of this shard."""

    @abstractmethod
    def _reject(self, at: At, refused: codec.Refusal, value: bytes | None) -> None:
        """A line of history about a record that changes nothing."""

    def _obey(self, at: At, record: rq.Control) -> None:
        """One that counts."""
        if isinstance(record, rq.Tick):
            self._cover(min(record.published, at.offset - 1))
            self._confirm(at, record.heard or {})
        elif isinstance(record, rq.FromShard):
            self._hear(at, record)
        else:
            self._learn(at, record)

    def _learn(self, at: At, record: rq.Control) -> None:
        """A job record: the families that judge such records say which steps follow."""
        for space in self.registry.families_of(type(record)):
            try:
                follows = self._asked(space, partial(self.families[space].judge, record))
            except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
                self._complain(at, record, _not_judged(record, problem))
                continue
            for name, decide in follows:
                if isinstance(record, rq.TxnDecided) and self._answered.is_overfull:
                    return  # the shard's status still names the others: the driver says it again
                if isinstance(decide, Exception):
                    self._quarantine(at, (space, name), decide)
                else:
                    self._let(at, (space, name), decide, type(record) in self.families[space].NOTED)

    def _let(self, at: At, key: Key, decide: Decide, is_noted: bool = False) -> None:
        """A step that no request asked for; `is_noted`: also of an entity that is set aside."""
        row = self.rows.get(key)
        if row is None or row.value is None or (row.is_quarantined and not is_noted):
            return
        try:
            self._step(at, key, decide, row.kind)
        except Exception as problem:  # noqa: BLE001  INV-42
            self._quarantine(at, key, problem)

    def _complain(self, at: At, record: rq.Control, why: str) -> None:
        refused = rejection.refuse(record, ErrorCode.UNKNOWN_SERVER_ERROR, why)
        self._reject(at, refused, None)

    # -- messages of shards ----------------------------------------------------------------

    def _hear(self, at: At, record: rq.FromShard) -> None:
        """The next message of a shard is judged; one that was judged before does nothing.  # INV-95

        None is judged while too much cannot be read that the shard has said (answered.py), and none
        behind a gap: those before it were dropped so, or a log did not take one. One that cannot be
        read is not judged either: it was sent by newer code, and so are those behind it. They wait
        in the outbox until such code reads them.
        """
        missing = self.channels.gap_before(record.source, record.seq)
        if missing or self._answered.is_overfull:
            return  # it was judged, or it waits in the outbox: the driver feeds it again
        try:
            message: Message = self.registry.read_message(record.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            self._complain(at, record, _not_judged(record, problem))
            return
        self.channels.hear(record.source, record.seq)
        self._deliver(at, record, message)

    def _deliver(self, at: At, record: rq.FromShard, message: Message) -> None:
        """An entity judges a message. If that breaks, the entity is set aside, and then the message
        is judged once more: it does not come again."""
        key, what = message.entity, type(message)
        row = self.rows.get(key)
        kind = self.registry.first_to_hear(key[0], what) if row is None else row.kind
        handler = None if kind is None else kind.MESSAGES.get(what)
        if kind is None or handler is None:
            self._complain(at, record, f"Nothing in the space {key[0]} judges {what.__name__}.")
            return
        try:
            self._judge_message(at, key, kind, partial(_judged, handler, message))
        except Exception as problem:  # noqa: BLE001  INV-42
            self._complain(at, record, _not_judged(record, problem))

    def _judge_message(self, at: At, key: Key, kind: Kind, decide: Decide) -> None:
        """Raises what the handler raises for an entity that is set aside, or for none."""
        try:
            self._step(at, key, decide, kind)
        except Exception as problem:
            row = self.rows.get(key)
            if row is None or row.is_quarantined:
                raise
            self._quarantine(at, key, problem)
            self._step(at, key, decide, kind)

    def _confirm(self, at: At, heard: Mapping[int, int]) -> None:
        """Shards have judged messages: they are withdrawn, and what waited for that goes on."""
        for shard, number in sorted(heard.items()):
            news = self.channels.confirm(shard, number)
            if not news:
                continue
            self._put(at, *(fx.ToShard(shard, each, None) for each in news))
            for space in self.registry.families:
                for name, decide in self._waited(at, space, shard, news[-1]):
                    self._let(at, (space, name), decide)

    def _waited(self, at: At, space: str, shard: int, number: int) -> list[tuple[str, Decide]]:
        try:
            return self._asked(space, partial(self.families[space].heard, shard, number))
        except Exception as problem:  # noqa: BLE001  INV-42: a defect, and the log must go on
            why = f"Messages to {shard} could not be confirmed: {type(problem).__name__}."
            self._reject(at, codec.Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=why), None)
            return []


def _judged(handler: Any, message: Message, step: Any) -> None:
    handler(step, message)


def _not_judged(record: rq.Control, problem: Exception) -> str:
    return f"{type(record).__name__} could not be judged: {type(problem).__name__}."
