"""`coord cluster create-topic|…|delete`: what operators tell the controller, over the real core."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.cli.controller import admin
from coordlib.cli.controller.view import NOT_DELETABLE, read_cluster
from coordlib.cli.main.main import main
from coordlib.core.controller.states import Partition
from coordlib.core.wire import api
from coordlib.exit_codes import FAILED, OK, USAGE
from tests.cli.kit import Cli
from tests.cli.shop import REACHED, WHERE, Shop, ask, open_shop

ORDERS = ["create-topic", "shop", "orders", "--replica-assignment", "1:2"]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Brokers 1, 2 and 3 are Active; `orders` has a partition on 1 and 2."""
    with open_shop(monkeypatch) as made:
        made.start(1, 2, 3)
        assert main(["cluster", *ORDERS, *WHERE]) == OK
        yield made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "cluster", where=WHERE)


def row(topic: str = "orders", partition: int = 0) -> Partition:
    """A partition as its topic has it now."""
    return read_cluster({}, REACHED, "coord", "shop").seen.partitions[topic, partition]


def rows() -> list[str]:
    found = read_cluster({}, REACHED, "coord", "shop").seen.partitions
    return [f"{topic}:{number}" for topic, number in found]


# -- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_made_and_extended(shop: Shop, cli: Cli) -> None:
    counts = ["--partitions", "2", "--replication-factor", "3"]
    told = [
        *cli("create-topic shop big", *counts, "--min-isr", "3", "--unclean").said,
        *cli("create-partitions shop big --count 3").said,
        *cli("create-partitions shop big --count 4 --replica-assignment 3:1:2").said,
    ]
    assert told == ["big is created", "big has 3 partitions now", "big has 4 partitions now"]
    assert rows() == ["big:0", "big:1", "big:2", "big:3", "orders:0"]
    assert row("big", 3).replicas == (3, 1, 2)
    topic = read_cluster({}, REACHED, "coord", "shop").seen.topics["big"]
    assert (topic.partitions, topic.min_isr, topic.unclean) == (4, 3, True)


def test_a_topic_is_only_judged(shop: Shop, cli: Cli) -> None:
    judged = cli("create-topic shop t --replica-assignment 1 --validate-only")
    assert judged.said == ["t may be created"]
    assert rows() == ["orders:0"]


def test_a_refused_topic_has_its_error(shop: Shop, cli: Cli) -> None:
    counts = ["--partitions", "1", "--replication-factor", "4"]
    printed = cli("create-topic shop t", *counts, code=FAILED)
    assert printed.out.split()[:6] == [
        *("TOPIC", "ERROR", "MESSAGE"), "t", "INVALID_REPLICATION_FACTOR", printed.out.split()[5],
    ]  # fmt: skip
    assert printed.err == ""

    told = cli.json("create-topic shop orders", *counts, code=FAILED)
    assert (told["_command"], told["cluster"]) == ("cluster create-topic", "shop")
    assert [(r["topic"], r["error"]) for r in told["results"]] == [
        ("orders", "TOPIC_ALREADY_EXISTS")
    ]


def test_a_topic_is_deleted_when_its_replicas_are(shop: Shop, cli: Cli) -> None:
    topic_id = row().topic_id
    assert cli("delete-topic shop orders --yes").said[-1] == "Deletion of orders has begun"
    assert cli("describe shop").out.count("has not deleted its replicas") == 2

    for broker in (1, 2):
        gone = api.DeletedReplica(topic="orders", topic_id=topic_id, partition=0)
        known = shop.known[broker].incarnation
        ask(shop.clients[broker], api.ReplicasDeleted,
            broker=broker, incarnation=known, results=(gone,))  # fmt: skip
    assert rows() == []
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli("delete-topic shop orders --yes", code=FAILED).out


def test_a_deletion_that_failed_is_told_from_one_that_is_waited_for(shop: Shop, cli: Cli) -> None:
    """Of three, one has deleted, one cannot, and one is away: an operator must know which is which,
    since the second is told again by the operator alone. Who has deleted is named no more."""
    cli("create-topic shop big --replica-assignment 1:2:3")
    topic_id = row("big").topic_id
    shop.wants(3, "Inactive")
    cli("delete-topic shop big --yes")
    for broker, error in ((1, "NONE"), (2, "KAFKA_STORAGE_ERROR")):
        told = api.DeletedReplica(topic="big", topic_id=topic_id, partition=0, error=error)
        known = shop.known[broker].incarnation
        ask(shop.clients[broker], api.ReplicasDeleted,
            broker=broker, incarnation=known, results=(told,))  # fmt: skip

    awaited = cli.json("describe shop")["waits-for"]
    reasons = {each["waits-for"]: each["reason"] for each in awaited}
    assert reasons == {2: NOT_DELETABLE, 3: api.NOT_DELETED}
    assert "to be deleted on 2,3" in cli("partitions shop --topic big").out
    cli("delete-topic shop big --yes")
    assert NOT_DELETABLE not in cli("describe shop").out


# -- leaders and moves ----------------------------------------------------------------------------


def let_go(shop: Shop, broker: int) -> None:
    """It lets go of what it is asked for."""
    head = read_cluster({}, REACHED, "coord", "shop").seen.brokers[broker]
    assert head.demand is not None
    ask(
        *(shop.clients[broker], api.Release),
        generation=0, member=head.member, cause=head.demand.timer.cause, space="cluster",
    )  # fmt: skip


def test_the_preferred_leader_leads_again(shop: Shop, cli: Cli) -> None:
    """The one that leads is asked first: the command does not wait for it."""
    shop.wants(1, "Inactive")
    shop.wants(1, "Active")
    isr = tuple(api.InSyncReplica(each, shop.known[each].incarnation) for each in (1, 2))
    wanted = api.AlteredPartition(
        partition=0, leader_epoch=row().leader_epoch, partition_epoch=row().partition_epoch, isr=isr
    )
    ask(shop.clients[2], api.AlterPartition, broker=2,
        incarnation=shop.known[2].incarnation,
        topics=(api.AlteredTopic("orders", (wanted,)),))  # fmt: skip

    assert cli("elect shop --preferred").said[-1] == "1 partition of shop accepted"
    let_go(shop, 2)
    assert row().leader == 1
    assert (
        "ELECTION_NOT_NEEDED" in cli("elect shop --preferred --partition orders:0", code=FAILED).out
    )


def test_an_unclean_election_is_meant(shop: Shop, cli: Cli) -> None:
    """Broker 1 was in sync last, and broker 2 lacks what was committed."""
    shop.wants(2, "Inactive")
    shop.wants(1, "Inactive")
    shop.wants(2, "Active")
    assert row().leader == -1

    assert cli("elect shop --unclean", code=USAGE).said[-3:] == [
        "An unclean election cannot be undone, and there is no terminal to ask on.",
        "cluster shop, all partitions that nobody in sync can lead",
        "Nothing was done. Say --yes if it is meant.",
    ]
    assert row().leader == -1
    cli("elect shop --unclean --partition orders:0 --yes")
    assert (row().leader, row().isr, row().recovering) == (2, (2,), True)


def plan(folder: Path, *moves: tuple[str, int, list[int]]) -> str:
    file = folder / "plan.json"
    named = [{"topic": t, "partition": p, "replicas": r, "log_dirs": ["any"]} for t, p, r in moves]
    file.write_text(json.dumps({"version": 1, "partitions": named}))
    return str(file)


def test_partitions_move_by_a_plan_and_stay_after_all(shop: Shop, tmp_path: Path, cli: Cli) -> None:
    """The file that Kafka's own tool takes; of two rows one is refused."""
    file = plan(tmp_path, ("orders", 0, [2, 3]), ("nothing", 0, [1]))
    printed = cli("reassign shop --plan", file, code=FAILED)
    assert printed.out.splitlines()[1].split()[:3] == ["nothing", "0", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert printed.err.splitlines()[-1] == "1 partition of shop accepted"
    assert (row().adding, row().removing) == ((3,), (1,))
    assert "moves +3 -1" in cli("partitions shop").out

    cli("reassign shop --cancel")
    assert (row().replicas, row().adding) == ((2, 1), ())
    assert cli("reassign shop --cancel").said[-1] == "0 partitions of shop accepted"
    assert (
        "NO_REASSIGNMENT_IN_PROGRESS"
        in cli("reassign shop --cancel --partition orders:0", code=FAILED).out
    )


def test_a_long_plan_goes_in_several_requests(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """A request may have 1 MiB; rows are told in the order of the plan."""
    monkeypatch.setattr(admin, "ROWS_PER_REQUEST", 2)
    file = plan(tmp_path, *(("no", number, [1]) for number in range(5)))

    told = cli.json("reassign shop --plan", file, code=FAILED)
    assert [each["partition"] for each in told["results"]] == [0, 1, 2, 3, 4]


# -- brokers and clusters -------------------------------------------------------------------------


def test_a_broker_that_hangs_is_removed(shop: Shop, cli: Cli) -> None:
    """What it led has no leader until it must have stopped: describe says for whom that is."""
    assert (
        "Broker 1 of shop is removed"
        in cli("remove-broker shop 1 --yes --reason", "it hangs").said[-1]
    )
    assert (row().leader, row().guard) == (-1, shop.known[1].incarnation)
    assert "has not stopped" in cli("describe shop").out
    assert cli("remove-broker shop 9 --yes", code=FAILED).said == [
        "BROKER_ID_NOT_REGISTERED",
        "cluster shop, broker 9",
        "Check its id: coord cluster brokers shop",
    ]


def test_a_broker_is_forgotten(shop: Shop, cli: Cli) -> None:
    assert cli("unregister shop 3 --yes", code=FAILED).said[-3] == "NON_EMPTY_GROUP"
    shop.wants(3, "Inactive")
    cli("remove-broker shop 3 --yes")

    told = cli.json("unregister shop 3 --yes")
    assert (told["_command"], told["cluster"], told["broker"]) == ("cluster unregister", "shop", 3)
    assert [*read_cluster({}, REACHED, "coord", "shop").seen.brokers] == [1, 2]


def test_a_cluster_is_deleted_when_nothing_is_left(shop: Shop, cli: Cli) -> None:
    assert cli("delete shop --yes", code=FAILED).said[-3] == "NON_EMPTY_GROUP"
    assert cli("release shop", code=FAILED).said[0] == "INVALID_REQUEST"
    assert cli("delete shpo --yes", code=FAILED).said[0] == "GROUP_ID_NOT_FOUND"


# -- what asks first, and wrong usage -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"partitions":[]}', '{"partitions":[{"topic":"t","partition":-1}]}',
     '{"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "\udcff",
     '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
     '{"topic":"t","partition":0,"replicas":[2]}]}'],
)  # fmt: skip
def test_a_file_that_is_no_plan_is_told(text: str, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    assert len(cli("reassign shop --plan", str(file), code=USAGE).said) == 3
