"""Probes: single members that join a group of their own and leave it, and time the answer. Pure.

produce() of the JoinGroup ── log ── batch ── transaction ──▶ answer seen
"""

from dataclasses import dataclass, field

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.tools.bench.crowd import METADATA, Record

#: Groups that take turns: when one's turn comes again, its last member has long left.
GROUPS = 64


@dataclass(slots=True)
class Probes:
    """Joins that wait for their answer, and how long the answered ones took, seconds."""

    shards: int
    reply_partitions: int
    token: str
    took_s: list[float] = field(default_factory=list)
    refused: int = 0
    _asked: int = 0
    _since: dict[str, float] = field(default_factory=dict)
    #: Under way when a measurement began: they are not timed, but their members leave, too.
    _forgotten: set[str] = field(default_factory=set)

    @property
    def unanswered(self) -> int:
        return len(self._since)

    def next(self, now_s: float) -> Record:
        """The next probe's JoinGroup, to be produced now."""
        group = f"probe-{self.token}-{self._asked % GROUPS}"
        client, id_ = f"probe-{self._asked % GROUPS}", f"probe-{self._asked}"
        self._asked += 1
        self._since[id_] = now_s
        request = api.JoinGroup(
            v=1,
            id=id_,
            client=client,
            group=group,
            reply=self._asked % self.reply_partitions,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=(api.Protocol(name="range", metadata=METADATA),),
        )
        return self._record(request)

    def hear(self, message: api.AnyResponse, now_s: float) -> list[Record]:
        """Time an answer, and let its member leave."""
        if not isinstance(message, api.JoinGroupResponse):
            return []
        since_s, is_forgotten = self._since.pop(message.id, None), message.id in self._forgotten
        if since_s is None and not is_forgotten:
            return []
        self._forgotten.discard(message.id)
        if message.error != "NONE":
            self.refused += not is_forgotten
            return []
        if since_s is not None:
            self.took_s.append(now_s - since_s)
        leave = api.LeaveGroup(
            v=1,
            id=f"{message.id}-leave",
            client=message.client,
            group=message.group,
            reply=0,
            members=(api.Leaver(message.member),),
        )
        return [self._record(leave)]

    def forget(self) -> None:
        """Begin a new measurement; what is under way is not counted."""
        self.took_s, self.refused = [], 0
        self._forgotten |= self._since.keys()
        self._since.clear()

    def _record(self, request: api.Request) -> Record:
        return Record(
            codec.encode(request), request.group.encode(), shard_of(request.group, self.shards)
        )
