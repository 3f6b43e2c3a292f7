"""`coord cluster` against a real broker, without any job: it reads what was committed."""

from typing import TYPE_CHECKING

import pytest

from coordlib.core.wire import codec, stored
from coordlib.core.wire.envelope import shard_of
from coordlib.exit_codes import FAILED
from tests.cli.kit import Cli
from tests.cli.test_groups import SHARDS, Engine
from tests.history.cluster_life import CLUSTER, a_life_of_a_cluster
from tests.tools import clusters as c

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def engine(broker: "Broker") -> Engine:
    """A cluster as the job wrote it, and what an open transaction would make of it."""
    engine = Engine(broker)
    life = a_life_of_a_cluster()
    life.talk.end_batch_raw()
    engine.producer.begin_transaction()
    for output in life.talk.outputs:
        if output.topic in ("clusters", "metadata"):
            engine.put(output.topic, output.key, output.value, CLUSTER)
    position = stored.ShardPosition(
        clock_ms=1_772_409_590_000, previous_ms=0, offsets={"r": 169}, published=-1
    )
    marker = stored.Marker(
        checkpoint="c0ffee", batch=41, ranges={}, digest="",
        shards={str(shard_of(CLUSTER, SHARDS)): position}, next_offsets={},
    )  # fmt: skip
    engine.put("progress", b"marker", codec.encode(marker))
    engine.producer.commit_transaction()
    engine.producer.begin_transaction()
    engine.put("clusters", codec.encode([CLUSTER]), None, CLUSTER)
    engine.put("clusters", codec.encode(["open"]), b"{}", "open")
    engine.producer.flush()
    return engine


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], engine: Engine) -> Cli:
    return Cli(capsys, where=engine.where())


def test_what_is_committed_is_shown(cli: Cli) -> None:
    """And as of which request that is so: the job may be down."""
    (listed,) = cli.json("cluster list")["clusters"]
    described = cli.json("cluster describe", CLUSTER)
    shown = cli.json("cluster partitions", CLUSTER)["partitions"]

    assert (listed["cluster"], listed["brokers"], listed["topics"]) == (CLUSTER, 3, 2)
    assert (described["as_of_offset"], described["waiting"]) == (169, 0)
    assert described["as_of_log_time"] == "2026-03-01T23:59:50.000Z"
    rows = c.partitions_of(a_life_of_a_cluster().talk.shard, CLUSTER)
    assert [(row["topic"], row["partition"], row["leader-epoch"], row["isr"]) for row in shown] == [
        (*place, row.leader_epoch, [*row.isr]) for place, row in rows.items()
    ]
    brokers = cli.json("cluster brokers", CLUSTER)["brokers"]
    assert [row["state"] for row in brokers] == ["Active", "Active", "Active"]


def test_a_groups_command_points_to_the_cluster(cli: Cli) -> None:
    said = cli("groups describe", CLUSTER, code=FAILED).err
    assert "See: coord cluster describe shop" in said
