"""Random groups, divided here and by Kafka's own classes: the shares must be the same.

Ties too: where Kafka's answer follows from the order of its hash maps, so does the one here.
"""

import base64
import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coordlib.core.groups.assignors.model import Member
from coordlib.core.groups.assignors.ownership import encode_cooperative, encode_sticky
from tests import java_peer
from tests.tools.assignor_group import ASSIGNORS, Cluster, Held, pairs

CASES = 1_500
ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")

pytestmark = pytest.mark.stack  # the jars of the local broker


class Peer:
    """Kafka's assignors in a Java process."""

    def __init__(self, folder: Path) -> None:
        source = Path(__file__).with_name("KafkaPeer.java")
        self.process = subprocess.Popen(
            java_peer.command_of(source, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def assign(self, assignor: str, members: dict[str, Member], cluster: Cluster) -> Held:
        case = {
            "assignor": assignor,
            "partitions": cluster.partitions,
            "racks": cluster.racks,
            "members": [_row(name, members[name]) for name in sorted(members)],
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return {name: frozenset(map(tuple, some)) for name, some in answer.items()}


def _row(name: str, member: Member) -> dict[str, Any]:
    data = member.user_data
    return {
        "id": name,
        "topics": member.topics,
        "owned": [(topic, each) for topic, some in member.owned.items() for each in some],
        "generation": member.generation,
        "instance": member.instance,
        "rack": member.rack,
        "user_data": None if data is None else base64.b64encode(data).decode(),
    }


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    java_peer.skip_without_compiler()
    peer = Peer(tmp_path_factory.mktemp("peer"))
    yield peer
    peer.process.kill()
    peer.process.wait()


@dataclass
class Lot:
    """Groups drawn by lot, of all the kinds that take another way through the code."""

    random: random.Random

    def cluster(self) -> Cluster:
        lot, large = self.random, self.random.random() < 0.15
        names = ("t", "topic", "orders.", "Z_")
        topics = [lot.choice(names) + str(n) for n in range(lot.randrange(1, 40 if large else 7))]
        co_partitioned = lot.random() < 0.3
        counts = {
            topic: lot.choice([3, 6]) if co_partitioned else lot.randrange(1, 30 if large else 9)
            for topic in topics
        }
        if lot.random() < 0.6:
            return Cluster(counts)
        some, replicas = "abcd"[: lot.randrange(1, 5)], lot.randrange(4)
        racks = {t: [lot.choices(some, k=replicas) for _ in range(n)] for t, n in counts.items()}
        return Cluster(counts, racks)

    def members(self, cluster: Cluster) -> dict[str, Member]:
        lot, topics = self.random, sorted(cluster.partitions)
        equal = lot.sample(topics, lot.randrange(1, len(topics) + 1))
        is_equal = lot.random() < 0.5
        members = {}
        for _ in range(lot.choice([1, 2, 3, 5, 8, 13, 60])):
            wanted = equal if is_equal else lot.choices(topics, k=lot.randrange(1, len(topics) + 1))
            name = lot.choice(["consumer", "c-", "Kunde-ü-"]) + str(lot.randrange(10**6))
            members[name] = Member(
                # Without its twins: a topic that is named twice is another way again.
                topics=tuple(wanted if lot.random() < 0.2 else dict.fromkeys(wanted)),
                instance=f"i{len(members)}" if lot.random() < 0.2 else None,
                rack=lot.choice([*"abz", None]) if cluster.racks else None,
            )
        return members

    def owners(self, members: dict[str, Member], cluster: Cluster) -> dict[str, Member]:
        """The same with what they say to own: some lag behind, some claim what is another's."""
        lot, newest = self.random, self.random.randrange(5)
        owned: dict[str, dict[str, list[int]]] = {name: {} for name in members}
        few = sorted(members)[: lot.randrange(1, len(members) + 1)]
        for topic in sorted(cluster.partitions):
            wanting = [name for name in few if topic in members[name].topics]
            for each in range(cluster.partitions[topic]):
                claims = lot.choices([0, 1, 2], [2, 20, 1])[0]
                for name in dict.fromkeys(lot.choices(wanting, k=claims) if wanting else ()):
                    owned[name].setdefault(topic, []).append(each)
        late = lot.random() < 0.4
        return {
            name: replace(
                member,
                owned=owned[name],
                generation=max(-1, newest - (lot.randrange(4) if late else 0)),
            )
            for name, member in members.items()
        }

    def said(self, assignor: str, member: Member) -> Member:
        """What a client with this assignor makes of it, in one of the versions that there were."""
        lot, generation = self.random, member.generation
        if assignor == "sticky":
            data = encode_sticky(member.owned, None if lot.random() < 0.05 else generation)
        elif assignor == "cooperative-sticky":
            data = encode_cooperative(generation)
        else:
            data = None
        is_old = lot.random() < 0.1
        return replace(member, user_data=data, generation=-1 if is_old else generation)


@pytest.mark.parametrize("assignor", ASSIGNOR_NAMES)
def test_kafka_itself_comes_to_the_same_shares(assignor: str, peer: Peer) -> None:
    lot = Lot(random.Random(assignor))
    for number in range(CASES // len(ASSIGNOR_NAMES)):
        cluster = lot.cluster()
        members = lot.members(cluster)
        if lot.random.random() < 0.8:
            members = lot.owners(members, cluster)
        members = {name: lot.said(assignor, member) for name, member in members.items()}
        known = {topic for member in members.values() for topic in member.topics}
        partitions = {t: count for t, count in cluster.partitions.items() if t in known}
        cluster = replace(cluster, partitions=partitions)

        expected = peer.assign(assignor, members, cluster)

        assert expected == pairs(ASSIGNORS[assignor](members, cluster)), number
