"""Claims by arithmetic, and what their owners write: the bytes of Marshal's wire, with true epochs.

Signs of all claims in turn, with positions that move, and in ten messages an attempt of somebody
who waits. Pure; `claims_writer` puts it into a log.
"""

from typing import Final, NamedTuple

from coordlib.core.wire import claims as marshal
from coordlib.core.wire.claims import OUR_VERSION, ClaimingPartition, instance_of

CLIENTS: Final = 200
GROUPS: Final = 20
#: Of each claimed topic.
PARTITIONS: Final = 64
ATTEMPT_EVERY: Final = 10
assert CLIENTS % GROUPS == 0, "a client is in one group"


class Held(NamedTuple):
    """A partition, who holds it, and the coordination partition in which that stands."""

    client: str
    process: str
    group: str
    topic: str
    partition: int
    shard: int


def claims_of(count: int, shards: int) -> list[Held]:
    """So many claims of `CLIENTS` clients, over so many coordination partitions."""
    return [_held(number, shards) for number in range(count)]


def _held(number: int, shards: int) -> Held:
    client, topic = number % CLIENTS, f"topic-{number // PARTITIONS}"
    return Held(
        client=f"client-{client}",
        process=f"{client:08x}",
        group=f"group-{number % GROUPS}",
        topic=topic,
        partition=number % PARTITIONS,
        shard=marshal.partition_of(topic, shards),
    )


def topics_of_all(shards: int, prefix: str) -> list[str]:
    """The names of topics, one for each coordination partition: who claims them reads all."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        found.setdefault(marshal.partition_of(f"{prefix}-{number}", shards), f"{prefix}-{number}")
        number += 1
    return [found[shard] for shard in range(shards)]


class Owners:
    """The owners of all claims: what they write, message by message."""

    def __init__(self, claims: list[Held]) -> None:
        self.claims = claims
        #: Of each claim that is won, its signs without type, time and position.
        self._signs: list[bytes] = [b""] * len(claims)

    def attempt(self, number: int, now_s: int, by: int | None = None) -> bytes:
        """The attempt on a claim, of its owner or of the owner of another claim."""
        held = self.claims[number]
        who = held if by is None else self.claims[by]
        return marshal.encode(
            ClaimingPartition(
                OUR_VERSION, now_s, who.process, who.client, held.group, held.topic, held.partition
            )
        )

    def won(self, number: int, offset: int) -> None:
        """The attempt on a claim stands at this offset, and was the first one."""
        held = self.claims[number]
        instance = instance_of(held.process, offset)
        fields = (instance, held.client, held.group, held.topic, str(held.partition))
        self._signs[number] = "/".join(fields).encode()

    def sign(self, number: int, now_s: int, position: int) -> bytes:
        """A heartbeat of a claim that is won: `marshal.encode`, without what stays the same."""
        return b"Heartbeat/%d/%d/%b/%d" % (OUR_VERSION, now_s, self._signs[number], position)

    def message(self, number: int, now_s: int) -> tuple[int, bytes]:
        """The message of this number, counted over all turns, and its coordination partition."""
        turn, claim = divmod(number, len(self.claims))
        if (turn + claim) % ATTEMPT_EVERY:
            value = self.sign(claim, now_s, number)
        else:  # somebody of the same group who waits
            value = self.attempt(claim, now_s, by=(claim + GROUPS) % len(self.claims))
        return self.claims[claim].shard, value
