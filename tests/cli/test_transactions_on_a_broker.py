"""`coord transactions` against a real broker, without any job: it reads what was committed, finds
who holds up a partition, and fences that producer."""

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from coordlib.core.wire import codec, stored
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.offsets import TRANSACTIONAL_ID
from coordlib.exit_codes import OK, UNHEALTHY
from tests.cli.kit import Cli
from tests.cli.test_groups import SHARDS, Engine
from tests.kit.logs import delete_records
from tests.tools import producers as p
from tests.tools.driving import pending_commit

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack

GROUP = "billing"


@pytest.fixture(scope="module")
def engine(broker: "Broker") -> Engine:
    """An id and pending offsets as the job wrote them, and what an open transaction would make of
    the id."""
    engine = Engine(broker)
    talk = p.prepare_commit()
    talk.end_batch_raw()
    engine.producer.begin_transaction()
    for output in talk.outputs:
        if output.topic in ("transactions", "outbox"):
            engine.put(output.topic, output.key, output.value, p.ID)
    engine.put("transactions", codec.encode(["pending", GROUP, "r0-0"]), _waits(), GROUP)
    engine.put("groups", b"x", None, GROUP)
    engine.producer.commit_transaction()
    engine.producer.begin_transaction()
    engine.put("transactions", codec.encode(["id", p.ID]), None, p.ID)
    engine.producer.flush()
    return engine


def _waits() -> bytes:
    row = stored.PendingOffset(
        topic="t", partition=0, offset=5, leader_epoch=-1, metadata="", record=0
    )
    entry = stored.PendingValue(
        decided_by="kafka", client="c", id="i", member="", generation=-1,
        since_ms=int(time.time() * 1000), offsets=(row,),
    )  # fmt: skip
    return codec.encode(entry)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], engine: Engine) -> Cli:
    return Cli(capsys, "transactions", where=engine.where())


def test_what_is_committed_is_shown(cli: Cli) -> None:
    (listed,) = cli.json("list")["ids"]
    described = cli.json("describe", p.ID)
    (waiting,) = cli.json("pending", GROUP)["pending"]

    assert (listed["transactional-id"], listed["state"]) == (p.ID, "PrepareCommit")
    assert [row["marker"] for row in described["partitions"]] == ["missing"]
    assert (waiting["key"], waiting["decided-by"]) == ("r0-0", "kafka")


def test_a_decision_that_was_not_told_is_found(cli: Cli) -> None:
    time.sleep(0.01)
    found = cli.json("find-hanging --longer-than 1ms", code=UNHEALTHY)["hanging"]

    reasons = [row["reason"] for row in found if row["what"] == p.ID]
    assert reasons == ["1 partition without its marker", "groups in shard 0 have not been told"]


def hanging(cli: Cli, *given: str) -> list[Any]:
    """What Kafka decides and hangs."""
    code, printed = cli.run("find-hanging --format json", *given)
    assert code in (OK, UNHEALTHY)
    return [row for row in json.loads(printed.out)["hanging"] if row["decided-by"] == "kafka"]


def open_one(engine: Engine, name: str) -> "Producer":
    from confluent_kafka import Producer

    options = {"bootstrap.servers": engine.servers, "transactional.id": name, "log_level": 0}
    producer = Producer(options)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def test_who_holds_up_the_decisions_is_named_and_fenced(engine: Engine, cli: Cli) -> None:
    """Its process hangs between two calls: decisions of all others in this shard wait for it."""
    name = f"{engine.prefix}-copier"
    producer = open_one(engine, name)
    value = codec.encode(pending_commit("copier-7", group=GROUP))
    shard = shard_of(GROUP, SHARDS)
    requests = f"{engine.prefix}.requests"
    headers = [(TRANSACTIONAL_ID, name)]
    producer.produce(requests, value, GROUP.encode(), shard, headers=headers)
    producer.flush()
    time.sleep(0.05)

    assert hanging(cli) == []
    (one,) = hanging(cli, "--longer-than", "20ms")
    assert one["what"] == f"{requests}-{shard}"
    assert "it began with a PendingCommit of group billing of client copier-7" in one["reason"]
    assert one["hint"] == f"coord transactions abort {name} --of-kafka"

    words = one["hint"].split()[2:]
    cli(*words, "--yes")
    assert hanging(cli, "--longer-than", "1ms") == []
    with pytest.raises(Exception, match=r"(?i)fenced"):
        producer.commit_transaction(60)


def test_who_holds_up_another_topic_is_found(engine: Engine, cli: Cli) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"{engine.prefix}-out"
    admin = AdminClient({"bootstrap.servers": engine.servers})
    admin.create_topics([NewTopic(topic, 2, 1)], operation_timeout=60)[topic].result(60)
    producer = open_one(engine, f"{engine.prefix}-plain")
    producer.produce(topic, b"x", b"order-1", 1)
    producer.flush()
    time.sleep(0.05)

    (one,) = hanging(cli, "--topic", topic, "--longer-than", "20ms")
    assert one["what"] == f"{topic}-1"
    assert one["reason"].endswith("its first record has the key b'order-1'")
    assert f"describe-producers --topic {topic} --partition 1" in one["hint"]
    producer.abort_transaction(60)
    assert hanging(cli, "--topic", topic, "--longer-than", "1ms") == []


def test_offsets_whose_record_is_gone_are_found(engine: Engine, cli: Cli) -> None:
    """The job was down for longer than the requests are kept."""
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

    place = TopicPartition(f"{engine.prefix}.requests", shard_of(GROUP, SHARDS), 1)
    producer = Producer({"bootstrap.servers": engine.servers})
    producer.produce(place.topic, b"{}", GROUP.encode(), place.partition)
    producer.flush()
    admin = AdminClient({"bootstrap.servers": engine.servers})
    delete_records(admin, place)

    (one,) = hanging(cli)
    assert one["what"] == f"group {GROUP}, key r0-0"
    assert one["reason"] == "its record was deleted before the job could look how it ended"
