"""Thousands of members without a client each: what they say and hear, as a table. Pure.

A member of the crowd joins, rejoins and syncs as a client does, and its heartbeat is encoded once
per generation. It fences nothing and fetches nothing: it is there to be judged.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of

METADATA = bytes(40)
SHARE = bytes(30)


class Record(NamedTuple):
    """What is to be written."""

    value: bytes
    key: bytes
    shard: int


@dataclass(slots=True)
class Place:
    """One member: where it stands in the protocol."""

    client: str
    group: str
    shard: int
    reply: int
    member: str = ""
    generation: int = -1
    #: None: it is in no settled generation, and does not heartbeat.
    heartbeat: Record | None = None
    asked: int = 0


@dataclass(slots=True)
class Crowd:
    """All members: `groups` x `members`, numbered so that neighbours are of different groups."""

    groups: int
    members: int
    shards: int
    reply_partitions: int
    token: str
    #: Heartbeats that were refused, members that were removed, requests that were refused.
    refused: Counter[str] = field(default_factory=Counter)
    settled: int = 0
    _places: list[Place] = field(default_factory=list)
    _of_group: dict[str, list[Place]] = field(default_factory=dict)
    _number_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(self.groups * self.members):
            group = f"load-{self.token}-{number % self.groups}"
            place = Place(
                client=f"load-{number}",
                group=group,
                shard=shard_of(group, self.shards),
                # A group's members read one partition, so that what concerns them comes in order.
                reply=(number % self.groups) % self.reply_partitions,
            )
            self._places.append(place)
            self._of_group.setdefault(group, []).append(place)
            self._number_of[place.client] = number

    def __len__(self) -> int:
        return len(self._places)

    @property
    def is_settled(self) -> bool:
        return self.settled == len(self._places)

    def join_all(self) -> Iterator[Record]:
        for place in self._places:
            yield self._join(place)

    def heartbeat(self, number: int) -> Record | None:
        """The heartbeat of the member with this number, counted round and round."""
        return self._places[number % len(self._places)].heartbeat

    def commit(self, number: int, partitions: int) -> Record:
        """The first offsets of so many partitions, from the member with this number."""
        place = self._places[number]
        return self._record(
            place,
            api.OffsetCommit(
                **self._envelope(place),
                generation=place.generation,
                member=place.member,
                offsets=tuple(
                    api.CommittedOffset("load", partition, 100 + partition)
                    for partition in range(partitions)
                ),
            ),
        )

    def hear(self, message: api.AnyResponse) -> list[Record]:
        """What is to be written in reaction."""
        if isinstance(message, api.RebalanceInProgress):
            known = self._of_group.get(message.group, [])
            return [self._join(each) for each in known if self._must_rejoin(each, message)]
        if isinstance(message, api.MemberRemoved):
            known = self._of_group.get(message.group, [])
            return [self._join_anew(each) for each in known if each.member == message.member]
        if not isinstance(message, api.Response):
            return []
        number = self._number_of.get(message.client)
        if number is None or message.group not in self._of_group:
            return []
        return self._answered(self._places[number], message)

    def _answered(self, place: Place, message: api.Response) -> list[Record]:
        if isinstance(message, api.HeartbeatResponse):
            self.refused[message.error] += 1
            return []
        if message.id != f"{place.client}-{place.asked}":
            return []  # of a request that a rejoin has overtaken
        if message.error == "REBALANCE_IN_PROGRESS":
            return []  # a sync that was too late; the notice says so too
        if message.error != "NONE":
            self.refused[message.error] += 1
            return [self._join_anew(place)]
        if isinstance(message, api.JoinGroupResponse):
            return [self._sync(place, message)]
        if isinstance(message, api.SyncGroupResponse):
            self._settle(place)
        return []

    def _must_rejoin(self, place: Place, notice: api.RebalanceInProgress) -> bool:
        return place.generation == notice.generation

    def _join(self, place: Place) -> Record:
        self._unsettle(place)
        request = api.JoinGroup(
            **self._envelope(place),
            member=place.member,
            generation=place.generation,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=(api.Protocol(name="range", metadata=METADATA),),
        )
        place.generation = -1  # no notice of the old one concerns it any more
        return self._record(place, request)

    def _join_anew(self, place: Place) -> Record:
        """Of a member that is none any more, or was refused."""
        if place.member:
            self.refused["removed"] += 1
        place.member, place.generation = "", -1
        return self._join(place)

    def _sync(self, place: Place, answer: api.JoinGroupResponse) -> Record:
        assert isinstance(answer.generation, int)
        place.member, place.generation = answer.member, answer.generation
        known = answer.members or ()
        shares = tuple(api.MemberAssignment(each.member, SHARE) for each in known)
        return self._record(
            place,
            api.SyncGroup(
                **self._envelope(place),
                generation=place.generation,
                member=place.member,
                assignments=shares,
            ),
        )

    def _settle(self, place: Place) -> None:
        self.settled += place.heartbeat is None
        request = api.Heartbeat(
            **self._envelope(place), generation=place.generation, member=place.member
        )
        place.heartbeat = self._record(place, request)

    def _unsettle(self, place: Place) -> None:
        self.settled -= place.heartbeat is not None
        place.heartbeat = None

    def _envelope(self, place: Place) -> dict[str, Any]:
        place.asked += 1
        return {
            "v": 1,
            "id": f"{place.client}-{place.asked}",
            "client": place.client,
            "group": place.group,
            "reply": place.reply,
        }

    @staticmethod
    def _record(place: Place, request: api.Request) -> Record:
        return Record(codec.encode(request), place.group.encode(), place.shard)
