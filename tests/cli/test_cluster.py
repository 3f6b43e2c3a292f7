"""`coord cluster list|describe|brokers|partitions`: what the topics tell, job up or down."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from coordlib.cli.controller import view
from coordlib.cli.controller.app import CLUSTERS, PARTITIONS, brokers_among
from coordlib.cli.controller.view import NOT_BACK, NOT_IN_SYNC, SeenCluster, seen_clusters
from coordlib.cli.kit import where
from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.core.wire import api
from coordlib.exit_codes import FAILED, OK
from tests.cli.kit import Cli, Printed
from tests.cli.shop import REACHED, WHERE, Shop, newest, open_shop
from tests.tools import clusters as c
from tests.tools.driving import Conversation, describe


def seen(talk: Conversation) -> SeenCluster:
    """A cluster as its topics have it at the end of a batch."""
    talk.end_batch_raw()
    (found,) = seen_clusters(newest(talk.outputs, "clusters"), newest(talk.outputs, "metadata"))
    return found


STATES = [name for name in c.STATES if name != "absent"]


@pytest.mark.parametrize("name", STATES)
def test_the_topics_tell_what_the_coordinator_answers(name: str) -> None:
    """The job may be down just when an operator wants to know what holds a cluster up."""
    talk = c.STATES[name]()
    talk.send(msgspec.structs.replace(describe("ops"), space="cluster"))
    answer = msgspec.json.decode(talk.outputs[-1].value or b"", type=api.DescribeGroupResponse)
    found = seen(talk)

    told = {} if answer.waits_for is msgspec.UNSET else answer.waits_for
    own = {NOT_IN_SYNC, NOT_BACK}
    awaited = [(w.member, w.client, w.reason) for w in found.waits_for if w.reason not in own]
    assert awaited == [(each.member, each.client, each.reason) for each in told]
    assert found.state == answer.state
    assert found.is_reconciling == bool(awaited)
    assert found.value == c.cluster_of(talk.shard)
    assert dict(found.partitions) == c.partitions_of(talk.shard)
    assert dict(found.topics) == c.topics_of(talk.shard)


WAITS: dict[str, list[tuple[int, str, int]]] = {
    "Registered": [],
    "Active": [],
    "Stopping": [(1, api.NOT_RELEASED, 1)],
    "Guarded": [(1, api.NOT_STOPPED, 1)],
    "Leaderless": [(3, NOT_BACK, 1)],
    "Deleting": [(1, api.NOT_DELETED, 1), (2, api.NOT_DELETED, 1), (3, api.NOT_DELETED, 1)],
    "Moving": [(3, NOT_IN_SYNC, 1)],
}


@pytest.mark.parametrize("name", STATES)
def test_whom_somebody_waits_for_and_for_how_many_partitions(name: str) -> None:
    """INV-80: whatever does not end by itself names the broker."""
    found = seen(c.STATES[name]())

    assert [(w.broker, w.reason, len(w.places)) for w in found.waits_for] == WAITS[name]


def test_of_a_partition_that_lost_its_last_replica_nobody_is_awaited() -> None:
    """Its disk was replaced: whoever waits for it waits for ever."""
    talk = c.leaderless()
    talk.send(c.register(3, storage="new-disk", id="r2"))
    found = seen(talk)

    assert [row.isr for row in found.partitions.values()] == [()]
    assert (found.waits_for, found.lost, found.leaderless) == ((), 1, 1)


# -- commands -------------------------------------------------------------------------------------


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Three brokers; the third is Inactive, and `lone` is on it alone. `orders` is on all."""
    monkeypatch.setattr(where, "now", lambda: datetime(2026, 3, 2, tzinfo=UTC))
    with open_shop(monkeypatch) as made:
        made.start(1, 2, 3)
        assert main(create("orders", "1:2:3,2:3:1")) == OK
        assert main(create("lone", "3")) == OK
        made.wants(3, "Inactive")
        yield made


def create(topic: str, assignment: str) -> list[str]:
    given = ["--replica-assignment", assignment]
    return ["cluster", "create-topic", "shop", topic, *given, *WHERE]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "cluster", where=WHERE)


def test_list_shows_how_each_cluster_stands(shop: Shop, cli: Cli) -> None:
    assert cli("list").shown == snapshot("""\
CLUSTER  STATE   BROKERS  ACTIVE  TOPICS  PARTITIONS  LEADERLESS  UNDER-REPLICATED  GENERATION
shop     Stable  3        2       2       3           1           2                 7
2> 1 cluster as of 2026-03-02T00:00:00.000Z
""")
    (row,) = cli.json("list")["clusters"]
    assert list(row) == [name.lower() for name in CLUSTERS.headers]
    assert (row["cluster"], row["leaderless"], row["under-replicated"]) == ("shop", 1, 2)


def test_describe_names_whom_somebody_waits_for(shop: Shop, cli: Cli) -> None:
    """A cluster whose only replica's broker is away is Stable: nothing is asked of anybody, and a
    partition waits. Then broker 1 is to let go, too."""
    assert without_ids(shop, cli("describe shop")) == snapshot("""\
CLUSTER           shop
STATE             Stable
BROKERS           3
ACTIVE            2
TOPICS            2
PARTITIONS        3
LEADERLESS        1
UNDER-REPLICATED  2
GENERATION        7
SHARD             0
AS-OF             r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet

WAITS-FOR  MEMBER-ID  CLIENT-ID  PARTITIONS  REASON
3          MEMBER-3  b3         lone:0      is not active, and no other broker may lead
2> Stable: no broker has to let go, to stop or to delete replicas; those above are to catch up, or to come back.
""")
    shop.wants(1, "Stopping")
    assert without_ids(shop, cli("describe shop")) == snapshot("""\
CLUSTER           shop
STATE             Reconciling
BROKERS           3
ACTIVE            1
TOPICS            2
PARTITIONS        3
LEADERLESS        1
UNDER-REPLICATED  2
GENERATION        8
SHARD             0
AS-OF             r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet

WAITS-FOR  MEMBER-ID  CLIENT-ID  PARTITIONS  REASON
1          MEMBER-1  b1         orders:0    has not let go of what others are to have
3          MEMBER-3  b3         lone:0      is not active, and no other broker may lead
""")
    found = cli.json("describe shop")
    assert (found["cluster"], found["as_of_offset"], found["waiting"]) == ("shop", 41, 2)
    assert found["waits-for"][0] == {
        "waits-for": 1,
        "member-id": shop.known[1].member,
        "client-id": "b1",
        "partitions": ["orders:0"],
        "reason": api.NOT_RELEASED,
    }


def without_ids(shop: Shop, printed: Printed) -> str:
    """The text without what differs in each log: member ids and the spaces behind them."""
    text = printed.shown
    for number, known in shop.known.items():
        text = re.sub(rf"{re.escape(known.member)} +", f"MEMBER-{number}  ", text)
    return re.sub(r"MEMBER-ID +", "MEMBER-ID  ", text)


def test_brokers_are_shown_with_what_they_lead(shop: Shop, cli: Cli) -> None:
    lines, said = cli("brokers shop")

    headers = brokers_among({}).headers
    assert lines[0].split() == [*headers]
    of_3 = dict(zip(headers, lines[3].split(), strict=True))
    assert of_3 | {"SINCE": ""} == {
        "BROKER": "3", "STATE": "Inactive", "SINCE": "", "LEADS": "0", "REPLICAS": "3",
        "CLIENT-ID": "b3", "RACK": "-", "ENDPOINTS": "in://host-3:9092",
        "INCARNATION": str(shop.known[3].incarnation), "SESSION": "10.0s",
    }  # fmt: skip
    assert said == "3 brokers as of r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet\n"
    first = cli.json("brokers shop")["brokers"][0]
    assert {name.lower() for name in headers} <= first.keys()
    assert first["endpoints"] == [{"name": "in", "host": "host-1", "port": 9092}]
    assert (first["session"], first["storage"], first["is-legacy"]) == (10_000, "disk-1", False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ["lone:0", "orders:0", "orders:1"]),
        (" --topic orders", ["orders:0", "orders:1"]),
        (" --broker 1", ["orders:0", "orders:1"]),
        (" --leaderless", ["lone:0"]),
        (" --under-replicated --topic orders", ["orders:0", "orders:1"]),
        (" --broker 9", []),
    ],
)
def test_partitions_are_chosen(shop: Shop, options: str, expected: list[str], cli: Cli) -> None:
    lines, said = cli(f"partitions shop{options}")

    assert [":".join(line.split()[:2]) for line in lines[1:]] == expected
    assert said.startswith(f"{len(expected)} partition")


def test_a_partition_has_its_epochs_and_replicas(shop: Shop, cli: Cli) -> None:
    lines, _ = cli("partitions shop --topic orders")

    row = dict(zip(PARTITIONS.headers, lines[1].split(), strict=True))
    fence = row.pop("FENCE")
    assert row == {
        "TOPIC": "orders", "PARTITION": "0", "LEADER": "1", "LEADER-EPOCH": "0",
        "PARTITION-EPOCH": "1", "REPLICAS": "1,2,3", "ISR": "1,2", "NOTE": "-",
    }  # fmt: skip
    first, _ = cli.json("partitions shop --topic orders")["partitions"]
    assert {name.lower() for name in PARTITIONS.headers} <= first.keys()
    assert (first["replicas"], first["isr"], first["fence"]) == ([1, 2, 3], [1, 2], int(fence))


@pytest.mark.parametrize("command", ["describe", "brokers", "partitions"])
def test_a_cluster_that_is_not_there_is_told_in_three_lines(
    shop: Shop, command: str, cli: Cli
) -> None:
    assert cli.error(command, "shpo", code=FAILED) == [
        "GROUP_ID_NOT_FOUND",
        "cluster shpo, prefix coord, shard 0",
        "Check its name: coord cluster list",
    ]


NEWER = {
    "a newer version": b'{"kind":"brokers","v":2,"group":"shop","brokers":7}',
    "another kind": b'{"kind":"fleet","v":1}',
    "no JSON": b"\xff",
}


@pytest.mark.parametrize("name", NEWER)
def test_what_newer_code_wrote_is_listed_as_unreadable(
    name: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """To guess at leaders from fields of another meaning would mislead an operator."""
    topics = {"coord.clusters": {b'["shop"]': NEWER[name], b"not ours": b"{}"}}
    monkeypatch.setattr(view, "newest_by_key", lambda _, topic, __: topics.get(topic, {}))
    monkeypatch.setattr(view, "read_as_of", lambda *_: None)
    monkeypatch.setattr(Where, "reach", lambda _: REACHED)

    lines, said = cli("list")
    assert lines[1].split() == ["shop", "Unreadable", "-", "-", "0", "0", "0", "0", "-"]
    assert "shop cannot be read by this version of coord" in said
    lines, said = cli("describe shop")
    assert "Install the version that the job has." in said
    assert "before the first batch of the job" in "\n".join(lines)


def test_a_quarantined_cluster_is_marked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """What an operator must see first stands first."""
    live = view.newest_by_key

    def ill(client: Any, topic: str, shard: int) -> dict[bytes, bytes]:
        return {
            key: value.replace(b'"is_quarantined":false', b'"is_quarantined":true')
            for key, value in live(client, topic, shard).items()
        }

    monkeypatch.setattr(view, "newest_by_key", ill)

    lines, _ = cli("list")
    assert lines[1].split()[1] == "Quarantined(Stable)"


@pytest.mark.parametrize(
    "command",
    [
        "groups describe NAME",
        "groups release NAME",
        "groups delete NAME --yes",
        "groups remove-members NAME --all --yes",
        "groups remove-members NAME --yes --member MEMBER",
        "offsets delete NAME --topics t --yes",
    ],
)
def test_a_clusters_name_points_to_its_commands(
    shop: Shop, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clusters have names of their own: a group of this name might be there as well."""
    cli = Cli(capsys, where=WHERE)
    line = command.replace("MEMBER", shop.known[1].member)
    hint = "This is a cluster of brokers. See: coord cluster describe shop"
    assert cli(line.replace("NAME", "shop"), code=FAILED).said[-1] == hint
    assert "cluster of brokers" not in cli(line.replace("NAME", "nothing"), code=FAILED).err


def test_groups_are_listed_without_clusters(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert "shop" not in Cli(capsys, where=WHERE)("groups list").out
