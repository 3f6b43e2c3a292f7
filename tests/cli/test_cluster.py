"""`coord cluster list|describe|brokers|partitions`: what the topics tell, job up or down."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from coordlib.cli.controller import view
from coordlib.cli.controller.app import CLUSTERS, PARTITIONS, brokers_among
from coordlib.cli.controller.view import NOT_BACK, NOT_IN_SYNC, SeenCluster, seen_clusters
from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.core.wire import api
from coordlib.exit_codes import FAILED, OK, USAGE
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
    with open_shop(monkeypatch) as made:
        made.start(1, 2, 3)
        assert main(create("orders", "1:2:3,2:3:1")) == OK
        assert main(create("lone", "3")) == OK
        made.wants(3, "Inactive")
        yield made


def create(topic: str, assignment: str) -> list[str]:
    given = ["--replica-assignment", assignment]
    return ["cluster", "create-topic", "shop", topic, *given, *WHERE]


def told(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[list[str], str]:
    """Lines of the result, and what was said."""
    capsys.readouterr()
    assert main(["cluster", *command, *WHERE]) == OK
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err


def objects(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    (line,), _ = told(capsys, *command, "--format", "json")
    found: dict[str, Any] = json.loads(line)
    return found


def test_list_shows_how_each_cluster_stands(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    lines, said = told(capsys, "list")

    assert [line.split() for line in lines] == [
        [*CLUSTERS.headers],
        ["shop", "Stable", "3", "2", "2", "3", "1", "2", "7"],
    ]
    assert said.startswith("1 cluster as of ")
    (row,) = objects(capsys, "list")["clusters"]
    assert list(row) == [name.lower() for name in CLUSTERS.headers]
    assert (row["cluster"], row["leaderless"], row["under-replicated"]) == ("shop", 1, 2)


def test_describe_names_whom_somebody_waits_for(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.wants(1, "Stopping")
    lines, _ = told(capsys, "describe", "shop")

    head = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert head["STATE"] == "Reconciling"
    assert head["AS-OF"] == "r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet"
    member = shop.known[1].member
    awaited = [line.split(maxsplit=4) for line in lines[lines.index("") + 1 :]]
    assert awaited == [
        ["WAITS-FOR", "MEMBER-ID", "CLIENT-ID", "PARTITIONS", "REASON"],
        ["1", member, "b1", "orders:0", api.NOT_RELEASED],
        ["3", shop.known[3].member, "b3", "lone:0", NOT_BACK],
    ]
    found = objects(capsys, "describe", "shop")
    assert (found["cluster"], found["as_of_offset"], found["waiting"]) == ("shop", 41, 2)
    assert found["waits-for"][0] == {
        "waits-for": 1,
        "member-id": member,
        "client-id": "b1",
        "partitions": ["orders:0"],
        "reason": api.NOT_RELEASED,
    }


def test_describe_says_why_a_cluster_with_a_broker_to_come_back_is_stable(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only replica's broker is away: nothing is asked of anybody, and a partition waits."""
    lines, said = told(capsys, "describe", "shop")

    assert ["STATE", "Stable"] in [line.split() for line in lines]
    assert lines[-1].split(maxsplit=4)[3:] == ["lone:0", NOT_BACK]
    why = (
        "Stable: no broker has to let go, to stop or to delete replicas; "
        "those above are to catch up, or to come back."
    )
    assert said.splitlines() == [why]
    shop.wants(1, "Stopping")
    _, said = told(capsys, "describe", "shop")
    assert said == ""


def test_brokers_are_shown_with_what_they_lead(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = told(capsys, "brokers", "shop")

    shown = [line.split() for line in lines]
    assert shown[0] == [*brokers_among({}).headers]
    of_3 = dict(zip(brokers_among({}).headers, shown[3], strict=True))
    assert of_3 | {"SINCE": ""} == {
        "BROKER": "3", "STATE": "Inactive", "SINCE": "", "LEADS": "0", "REPLICAS": "3",
        "CLIENT-ID": "b3", "RACK": "-", "ENDPOINTS": "in://host-3:9092",
        "INCARNATION": str(shop.known[3].incarnation), "SESSION": "10.0s",
    }  # fmt: skip
    assert said == ("3 brokers as of r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet\n")
    first = objects(capsys, "brokers", "shop")["brokers"][0]
    assert {name.lower() for name in brokers_among({}).headers} <= first.keys()
    assert first["endpoints"] == [{"name": "in", "host": "host-1", "port": 9092}]
    assert (first["session"], first["storage"], first["is-legacy"]) == (10_000, "disk-1", False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["lone:0", "orders:0", "orders:1"]),
        (["--topic", "orders"], ["orders:0", "orders:1"]),
        (["--broker", "1"], ["orders:0", "orders:1"]),
        (["--leaderless"], ["lone:0"]),
        (["--under-replicated", "--topic", "orders"], ["orders:0", "orders:1"]),
        (["--broker", "9"], []),
    ],
)
def test_partitions_are_chosen(
    shop: Shop, options: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = told(capsys, "partitions", "shop", *options)

    assert [":".join(line.split()[:2]) for line in lines[1:]] == expected
    assert said.startswith(f"{len(expected)} partition")


def test_a_partition_has_its_epochs_and_replicas(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = told(capsys, "partitions", "shop", "--topic", "orders")

    row = dict(zip(PARTITIONS.headers, lines[1].split(), strict=True))
    fence = row.pop("FENCE")
    assert row == {
        "TOPIC": "orders", "PARTITION": "0", "LEADER": "1", "LEADER-EPOCH": "0",
        "PARTITION-EPOCH": "1", "REPLICAS": "1,2,3", "ISR": "1,2", "NOTE": "-",
    }  # fmt: skip
    first, _ = objects(capsys, "partitions", "shop", "--topic", "orders")["partitions"]
    assert {name.lower() for name in PARTITIONS.headers} <= first.keys()
    assert (first["replicas"], first["isr"], first["fence"]) == ([1, 2, 3], [1, 2], int(fence))


@pytest.mark.parametrize("command", ["describe", "brokers", "partitions"])
def test_a_cluster_that_is_not_there_is_told_in_three_lines(
    shop: Shop, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", command, "shpo", *WHERE]) == FAILED

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "GROUP_ID_NOT_FOUND",
        "cluster shpo, prefix coord, shard 0",
        "Check its name: coord cluster list",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["brokers", ""],
        ["partitions", "shop", "--broker", "-1"],
        ["partitions", "shop", "--broker", "2147483648"],
        ["partitions", "shop", "--topic", "a b"],
        ["describe"],
        ["history", "shop", "--partition", "1"],
        ["history", "shop", "--topic", "t", "--partition", "x"],
    ],
)
def test_wrong_usage_is_told_before_anything_is_read(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *command, *WHERE]) == USAGE

    assert len(capsys.readouterr().err.splitlines()) == 3


NEWER = {
    "a newer version": b'{"kind":"brokers","v":2,"group":"shop","brokers":7}',
    "another kind": b'{"kind":"fleet","v":1}',
    "no JSON": b"\xff",
}


@pytest.mark.parametrize("name", NEWER)
def test_what_newer_code_wrote_is_listed_as_unreadable(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To guess at leaders from fields of another meaning would mislead an operator."""
    topics = {"coord.clusters": {b'["shop"]': NEWER[name], b"not ours": b"{}"}}
    monkeypatch.setattr(view, "newest_by_key", lambda _, topic, __: topics.get(topic, {}))
    monkeypatch.setattr(view, "read_as_of", lambda *_: None)
    monkeypatch.setattr(Where, "reach", lambda _: REACHED)

    lines, said = told(capsys, "list")
    assert lines[1].split() == ["shop", "Unreadable", "-", "-", "0", "0", "0", "0", "-"]
    assert "shop cannot be read by this version of coord" in said
    lines, said = told(capsys, "describe", "shop")
    assert "Install the version that the job has." in said
    assert "before the first batch of the job" in "\n".join(lines)


def test_a_quarantined_cluster_is_marked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an operator must see first stands first."""
    live = view.newest_by_key

    def ill(client: Any, topic: str, shard: int) -> dict[bytes, bytes]:
        return {
            key: value.replace(b'"is_quarantined":false', b'"is_quarantined":true')
            for key, value in live(client, topic, shard).items()
        }

    monkeypatch.setattr(view, "newest_by_key", ill)

    lines, _ = told(capsys, "list")
    assert lines[1].split()[1] == "Quarantined(Stable)"


@pytest.mark.parametrize(
    "command",
    [
        ["groups", "describe", "shop"],
        ["groups", "release", "shop"],
        ["groups", "delete", "shop", "--yes"],
        ["groups", "remove-members", "shop", "--all", "--yes"],
        ["offsets", "delete", "shop", "--topics", "t", "--yes"],
    ],
)
def test_a_clusters_name_points_to_its_commands(
    shop: Shop, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Clusters have names of their own: a group of this name might be there as well."""
    assert main([*command, *WHERE]) == FAILED
    assert capsys.readouterr().err.splitlines()[-1] == (
        "This is a cluster of brokers. See: coord cluster describe shop"
    )
    assert main([*(word.replace("shop", "nothing") for word in command), *WHERE]) == FAILED
    assert "cluster of brokers" not in capsys.readouterr().err


def test_groups_are_listed_without_clusters(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["groups", "list", *WHERE]) == OK

    assert "shop" not in capsys.readouterr().out


def test_a_member_of_a_cluster_is_no_groups(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    member = shop.known[1].member
    assert main(["groups", "remove-members", "shop", "--member", member, "--yes", *WHERE]) == FAILED

    assert "See: coord cluster describe shop" in capsys.readouterr().err
