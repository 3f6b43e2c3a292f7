"""`coord cluster create-topic|…|delete`: what operators tell the controller, over the real core."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.controller import admin
from coordlib.cli.controller.view import NOT_DELETABLE, read_cluster
from coordlib.cli.main.main import main
from coordlib.core.controller.states import Partition
from coordlib.core.wire import api
from coordlib.exit_codes import FAILED, OK, USAGE
from tests.cli.shop import REACHED, WHERE, Shop, ask, open_shop


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Brokers 1, 2 and 3 are Active; `orders` has a partition on 1 and 2."""
    with open_shop(monkeypatch) as made:
        made.start(1, 2, 3)
        assert run("create-topic", "shop", "orders", "--replica-assignment", "1:2") == OK
        yield made


def run(*command: str) -> int:
    return main(["cluster", *command, *WHERE])


def row(topic: str = "orders", partition: int = 0) -> Partition:
    """A partition as its topic has it now."""
    return read_cluster({}, REACHED, "coord", "shop").seen.partitions[topic, partition]


def rows() -> list[str]:
    found = read_cluster({}, REACHED, "coord", "shop").seen.partitions
    return [f"{topic}:{number}" for topic, number in found]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What an error says."""
    return capsys.readouterr().err.splitlines()


# -- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_made_and_extended(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    counts = ["--partitions", "2", "--replication-factor", "3"]
    assert run("create-topic", "shop", "big", *counts, "--min-isr", "2", "--unclean") == OK
    assert run("create-partitions", "shop", "big", "--count", "3") == OK
    assert (
        run("create-partitions", "shop", "big", "--count", "4", "--replica-assignment", "3:1:2")
        == OK
    )

    assert lines(capsys)[-3:] == [
        "big is created",
        "big has 3 partitions now",
        "big has 4 partitions now",
    ]
    assert rows() == ["big:0", "big:1", "big:2", "big:3", "orders:0"]
    assert row("big", 3).replicas == (3, 1, 2)
    topic = read_cluster({}, REACHED, "coord", "shop").seen.topics["big"]
    assert (topic.partitions, topic.min_isr, topic.unclean) == (4, 2, True)


def test_a_topic_is_only_judged(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("create-topic", "shop", "t", "--replica-assignment", "1", "--validate-only") == OK

    assert lines(capsys)[-1] == "t may be created"
    assert rows() == ["orders:0"]


def test_a_refused_topic_has_its_error(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    counts = ["--partitions", "1", "--replication-factor", "4"]
    assert run("create-topic", "shop", "t", *counts) == FAILED
    printed = capsys.readouterr()
    assert printed.out.split()[:6] == [
        *("TOPIC", "ERROR", "MESSAGE"), "t", "INVALID_REPLICATION_FACTOR", printed.out.split()[5],
    ]  # fmt: skip
    assert printed.err == ""

    assert run("create-topic", "shop", "orders", *counts, "--format", "json") == FAILED
    told = json.loads(capsys.readouterr().out)
    assert (told["_command"], told["cluster"]) == ("cluster create-topic", "shop")
    assert [(r["topic"], r["error"]) for r in told["results"]] == [
        ("orders", "TOPIC_ALREADY_EXISTS")
    ]


def test_a_topic_is_deleted_when_its_replicas_are(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    topic_id = row().topic_id
    assert run("delete-topic", "shop", "orders", "--yes") == OK
    assert lines(capsys)[-1] == "Deletion of orders has begun"
    assert run("describe", "shop") == OK
    assert capsys.readouterr().out.count("has not deleted its replicas") == 2

    for broker in (1, 2):
        gone = api.DeletedReplica(topic="orders", topic_id=topic_id, partition=0)
        known = shop.known[broker].incarnation
        ask(shop.clients[broker], api.ReplicasDeleted,
            broker=broker, incarnation=known, results=(gone,))  # fmt: skip
    assert rows() == []
    assert run("delete-topic", "shop", "orders", "--yes") == FAILED
    assert "UNKNOWN_TOPIC_OR_PARTITION" in capsys.readouterr().out


@pytest.mark.parametrize(
    "replicas",
    [["--partitions", "2", "--replication-factor", "2"], ["--replica-assignment", "1:2,2:3"]],
    ids=["counts", "assignment"],
)
def test_a_topic_of_which_no_write_can_be_acknowledged_is_refused(
    shop: Shop, capsys: pytest.CaptureFixture[str], replicas: list[str]
) -> None:
    """A 3 that was meant as a 2: all its puts would wait, and then fail."""
    assert run("create-topic", "shop", "big", *replicas, "--min-isr", "3") == USAGE
    assert "--min-isr 3, of 2 replicas" in capsys.readouterr().err
    assert run("create-topic", "shop", "big", *replicas, "--min-isr", "2") == OK


def test_a_deletion_that_failed_is_told_from_one_that_is_waited_for(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three, one has deleted, one cannot, and one is away: an operator must know which is which,
    since the second is told again by the operator alone. Who has deleted is named no more."""
    assert run("create-topic", "shop", "big", "--replica-assignment", "1:2:3") == OK
    topic_id = row("big").topic_id
    shop.wants(3, "Inactive")
    assert run("delete-topic", "shop", "big", "--yes") == OK
    for broker, error in ((1, "NONE"), (2, "KAFKA_STORAGE_ERROR")):
        told = api.DeletedReplica(topic="big", topic_id=topic_id, partition=0, error=error)
        known = shop.known[broker].incarnation
        ask(shop.clients[broker], api.ReplicasDeleted,
            broker=broker, incarnation=known, results=(told,))  # fmt: skip

    capsys.readouterr()
    assert run("describe", "shop", "--format", "json") == OK
    awaited = json.loads(capsys.readouterr().out)["waits-for"]
    reasons = {each["waits-for"]: each["reason"] for each in awaited}
    assert reasons == {2: NOT_DELETABLE, 3: api.NOT_DELETED}
    assert run("partitions", "shop", "--topic", "big") == OK
    assert "to be deleted on 2,3" in capsys.readouterr().out
    assert run("delete-topic", "shop", "big", "--yes") == OK
    assert run("describe", "shop") == OK
    assert NOT_DELETABLE not in capsys.readouterr().out


# -- leaders and moves ----------------------------------------------------------------------------


def let_go(shop: Shop, broker: int) -> None:
    """It lets go of what it is asked for."""
    head = read_cluster({}, REACHED, "coord", "shop").seen.brokers[broker]
    assert head.demand is not None
    ask(
        *(shop.clients[broker], api.Release),
        generation=0, member=head.member, cause=head.demand.timer.cause, space="cluster",
    )  # fmt: skip


def test_the_preferred_leader_leads_again(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
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

    assert run("elect", "shop", "--preferred") == OK
    assert lines(capsys)[-1] == "1 partition of shop accepted"
    let_go(shop, 2)
    assert row().leader == 1
    assert run("elect", "shop", "--preferred", "--partition", "orders:0") == FAILED
    assert "ELECTION_NOT_NEEDED" in capsys.readouterr().out


def test_an_unclean_election_is_meant(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Broker 1 was in sync last, and broker 2 lacks what was committed."""
    shop.wants(2, "Inactive")
    shop.wants(1, "Inactive")
    shop.wants(2, "Active")
    assert row().leader == -1

    assert run("elect", "shop", "--unclean") == USAGE
    assert lines(capsys)[-3:] == [
        "An unclean election cannot be undone, and there is no terminal to ask on.",
        "cluster shop, all partitions that nobody in sync can lead",
        "Nothing was done. Say --yes if it is meant.",
    ]
    assert row().leader == -1
    assert run("elect", "shop", "--unclean", "--partition", "orders:0", "--yes") == OK
    assert (row().leader, row().isr, row().recovering) == (2, (2,), True)


def plan(folder: Path, *moves: tuple[str, int, list[int]]) -> str:
    file = folder / "plan.json"
    named = [{"topic": t, "partition": p, "replicas": r, "log_dirs": ["any"]} for t, p, r in moves]
    file.write_text(json.dumps({"version": 1, "partitions": named}))
    return str(file)


def test_partitions_move_by_a_plan_and_stay_after_all(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that Kafka's own tool takes; of two rows one is refused."""
    file = plan(tmp_path, ("orders", 0, [2, 3]), ("nothing", 0, [1]))
    assert run("reassign", "shop", "--plan", file) == FAILED
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split()[:3] == ["nothing", "0", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert printed.err.splitlines()[-1] == "1 partition of shop accepted"
    assert (row().adding, row().removing) == ((3,), (1,))
    assert run("partitions", "shop") == OK
    assert "moves +3 -1" in capsys.readouterr().out

    assert run("reassign", "shop", "--cancel") == OK
    assert (row().replicas, row().adding) == ((2, 1), ())
    assert run("reassign", "shop", "--cancel") == OK
    assert lines(capsys)[-1] == "0 partitions of shop accepted"
    assert run("reassign", "shop", "--cancel", "--partition", "orders:0") == FAILED
    assert "NO_REASSIGNMENT_IN_PROGRESS" in capsys.readouterr().out


def test_a_long_plan_goes_in_several_requests(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request may have 1 MiB; rows are told in the order of the plan."""
    monkeypatch.setattr(admin, "ROWS_PER_REQUEST", 2)
    file = plan(tmp_path, *(("no", number, [1]) for number in range(5)))

    assert run("reassign", "shop", "--plan", file, "--format", "json") == FAILED
    told = json.loads(capsys.readouterr().out)
    assert [each["partition"] for each in told["results"]] == [0, 1, 2, 3, 4]


# -- brokers and clusters -------------------------------------------------------------------------


def test_a_broker_that_hangs_is_removed(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """What it led has no leader until it must have stopped: describe says for whom that is."""
    assert run("remove-broker", "shop", "1", "--yes", "--reason", "it hangs") == OK

    assert "Broker 1 of shop is removed" in lines(capsys)[-1]
    assert (row().leader, row().guard) == (-1, shop.known[1].incarnation)
    assert run("describe", "shop") == OK
    assert "has not stopped" in capsys.readouterr().out
    assert run("remove-broker", "shop", "9", "--yes") == FAILED
    assert lines(capsys) == [
        "BROKER_ID_NOT_REGISTERED",
        "cluster shop, broker 9",
        "Check its id: coord cluster brokers shop",
    ]


def test_a_broker_is_forgotten(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("unregister", "shop", "3", "--yes") == FAILED
    assert lines(capsys)[-3] == "NON_EMPTY_GROUP"
    shop.wants(3, "Inactive")
    assert run("remove-broker", "shop", "3", "--yes") == OK

    assert run("unregister", "shop", "3", "--yes", "--format", "json") == OK
    told = json.loads(capsys.readouterr().out)
    assert (told["_command"], told["cluster"], told["broker"]) == ("cluster unregister", "shop", 3)
    assert [*read_cluster({}, REACHED, "coord", "shop").seen.brokers] == [1, 2]


def test_a_cluster_is_deleted_when_nothing_is_left(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("delete", "shop", "--yes") == FAILED
    assert lines(capsys)[-3] == "NON_EMPTY_GROUP"
    assert run("release", "shop") == FAILED
    assert lines(capsys)[0] == "INVALID_REQUEST"
    assert run("delete", "shpo", "--yes") == FAILED
    assert lines(capsys)[0] == "GROUP_ID_NOT_FOUND"


# -- what asks first, and wrong usage -------------------------------------------------------------

ASKS: list[list[str]] = [
    ["delete-topic", "shop", "orders"],
    ["elect", "shop", "--unclean"],
    ["remove-broker", "shop", "1"],
    ["unregister", "shop", "1"],
    ["delete", "shop"],
]


@pytest.mark.parametrize("command", ASKS, ids=lambda each: each[0])
def test_in_a_pipe_nothing_is_done_without_a_word(
    shop: Shop, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that hangs at a question is as bad as one that deletes unasked."""
    before = len(shop.log.outputs)
    assert run(*command) == USAGE

    assert lines(capsys)[-1].endswith("Say --yes if it is meant.")
    assert len(shop.log.outputs) == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_deleting"), [("y\n", True), ("n\n", False), ("", False)])
def test_on_a_terminal_it_asks(
    shop: Shop, typed: str, is_deleting: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    assert run("delete-topic", "shop", "orders") == (OK if is_deleting else FAILED)
    assert "Deleting topic orders: cluster shop. This cannot" in capsys.readouterr().err
    assert bool(row().deleting) is is_deleting


WRONG: list[list[str]] = [
    ["create-topic", "shop", "t"],
    ["create-topic", "shop", "t", "--partitions", "1"],
    ["create-topic", "shop", "t", "--partitions", "0", "--replication-factor", "1"],
    ["create-topic", "shop", "t", "--replica-assignment", "1:2", "--partitions", "1"],
    ["create-topic", "shop", "t", "--replica-assignment", "1,,2"],
    ["create-topic", "shop", "t", "--replica-assignment", "2147483648"],
    ["create-topic", "shop", "", "--replica-assignment", "1"],
    ["create-topic", "shop", "a b", "--replica-assignment", "1"],
    ["create-topic", "", "t", "--replica-assignment", "1"],
    ["create-partitions", "shop", "t"],
    ["create-partitions", "shop", "t", "--count", "two"],
    ["create-partitions", "shop", "t", "--count", "2", "--replica-assignment", "1:"],
    ["create-partitions", "shop", "t", "--count", "3", "--replica-assignment", "1,2,3,1"],
    ["create-partitions", "shop", "t", "--count", "3", "--replica-assignment", "1,2,3"],
    ["delete-topic", "shop"],
    ["delete-topic", "shop", "..", "--yes"],
    ["elect", "shop"],
    ["elect", "shop", "--preferred", "--unclean", "--yes"],
    ["elect", "shop", "--preferred", "--partition", "orders"],
    ["elect", "shop", "--preferred", "--partition", "orders:-1"],
    ["elect", "shop", "--preferred", "--partition", "orders:2147483648"],
    ["reassign", "shop"],
    ["reassign", "shop", "--plan", "no-such-file.json"],
    ["reassign", "shop", "--plan", "/dev/null"],
    ["reassign", "shop", "--plan", "/"],
    ["reassign", "shop", "--plan", "a\0b"],
    ["reassign", "shop", "--plan", "p", "--cancel"],
    ["reassign", "shop", "--plan", "p", "--partition", "orders:0"],
    ["unregister", "shop"],
    ["unregister", "shop", "-1", "--yes"],
    ["remove-broker", "shop", "one", "--yes"],
    ["release"],
    ["delete", "", "--yes"],
]


@pytest.mark.parametrize("command", WRONG, ids=" ".join)
def test_wrong_usage_is_three_lines_and_nothing_is_asked(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("Kafka was asked")

    monkeypatch.setattr("coordlib.client.admin.KafkaTransport", never)

    assert run(*command) == USAGE
    assert len(lines(capsys)) == 3


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"partitions":[]}', '{"partitions":[{"topic":"t","partition":-1}]}',
     '{"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "\udcff",
     '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
     '{"topic":"t","partition":0,"replicas":[2]}]}'],
)  # fmt: skip
def test_a_file_that_is_no_plan_is_told(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    assert run("reassign", "shop", "--plan", str(file)) == USAGE
    assert len(lines(capsys)) == 3
