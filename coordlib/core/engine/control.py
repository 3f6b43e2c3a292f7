"""Which control records a shard obeys: its own job's, each once, in order.  # INV-69

Whoever may ask may write to the log of requests, and what the driver tells shards stands there,
too. A forged tick would start deadlines of questions that nobody can hear, a forged listing would
take all topics away. TIME-AND-FENCING.md, rule 17.
"""

from typing import TypeVar

from msgspec import UNSET

from coordlib.core.engine import rejection
from coordlib.core.engine.blob import InputRecord, ShardSettings
from coordlib.core.wire import codec, stored
from coordlib.core.wire import requests as rq
from coordlib.core.wire.control import signed_bytes, without_signature
from coordlib.errors import ErrorCode

_Control = TypeVar("_Control", bound=rq.Control)


class ControlRecords:
    """The control records of a shard, judged in the order of the log.

    Args:
        newest: number of the newest that counted, from the shard's state.
    """

    __slots__ = ("_settings", "newest")

    def __init__(self, newest: tuple[int, int], settings: ShardSettings) -> None:
        self.newest, self._settings = newest, settings

    def judge(self, request: _Control, record: InputRecord) -> _Control | codec.Refusal | None:
        """The record if it counts; a refusal if somebody else wrote it; None: it does nothing.

        One whose number is not higher than the newest is the driver's own, and came late or was
        copied: it needs no line of history.
        """
        settings = self._settings
        keys = [key for key in settings.keys if key.counts_at(settings.shard, record.offset)]
        if not keys:
            return request
        if request.n is UNSET or request.key is UNSET or request.sig is UNSET:
            return _refused(request, "it is not signed")
        key = next((each for each in keys if each.key == request.key), None)
        if key is None:
            return _refused(request, "its key is none of the job's")
        if not self._is_signed(key, record.value or b"", request.sig):
            return _refused(request, "its signature is not that of this record in this shard")
        if request.n <= self.newest:
            return None
        self.newest = request.n
        return request

    def _is_signed(self, key: stored.ControlKey, value: bytes, signature: bytes) -> bool:
        settings, unsigned = self._settings, without_signature(value, signature)
        if unsigned is None or settings.verify is None:
            return False
        signed = signed_bytes(settings.incarnation, settings.shard, unsigned)
        return settings.verify(key.public, signed, signature)


def _refused(request: rq.Control, why: str) -> codec.Refusal:
    message = f"{type(request).__name__} is written by the job's driver alone: {why}."
    return rejection.refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
