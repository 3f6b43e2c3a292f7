"""Claims: messages of a coordination topic."""

from typing import Any

import msgspec

from coordlib.core.engine.effects import Output
from coordlib.core.wire import claims as marshal
from tests.tools.bytes_out.measure import CLAIMED, NAME, TOPIC, Made, case
from tests.tools.claims import driving as claims


class _Claims:
    """A coordination partition, as a Conversation."""

    def __init__(self) -> None:
        self.talk = claims.Talk(msgspec.structs.replace(claims.settings(), checks_invariants=False))

    @property
    def shard(self) -> Any:
        return self.talk.claims

    def send_raw(self, value: bytes, after_ms: int, _topic: str) -> list[Output]:
        self.talk.send(value, after_ms)
        return self.talk.news()

    def end_batch_raw(self) -> list[Output]:
        return self.talk.end_batch()

    end_batch = end_batch_raw

    def text(self, kind: str, **fields: Any) -> bytes:
        words = {"client": NAME, "group": NAME, "topic": TOPIC}
        if kind == "ReleaseGroup":
            words["topic"] = ""
        message = claims.message(kind, self.talk.now_ms, {**words, **fields})
        return marshal.encode(message)


@case("claims: ClaimingPartition", "of a new partition", topic=CLAIMED)
def _() -> Made:
    talk = _Claims()
    return talk, [talk.text("ClaimingPartition")]


def _claimed() -> _Claims:
    talk = _Claims()
    talk.talk.send(talk.text("ClaimingPartition"))
    talk.talk.send(talk.text("Heartbeat", offset=5), after_ms=1_000)
    return talk


@case("claims: Heartbeat", "the first of a new owner", topic=CLAIMED)
def _() -> Made:
    talk = _Claims()
    talk.talk.send(talk.text("ClaimingPartition"))
    return talk, [talk.text("Heartbeat", offset=5)]


@case("claims: ReleasingPartition", "of the owner", topic=CLAIMED)
def _() -> Made:
    talk = _claimed()
    return talk, [talk.text("ReleasingPartition", offset=7)]


@case("claims: ClaimingMessages", "of the owner", topic=CLAIMED)
def _() -> Made:
    talk = _claimed()
    return talk, [talk.text("ClaimingMessages", offset=7)]


@case("claims: ReleaseGroup", "a pause", topic=CLAIMED)
def _() -> Made:
    talk = _claimed()
    return talk, [talk.text("ReleaseGroup", expire_s=talk.talk.now_ms // 1_000 + 60)]
