"""`coord groups list` and `describe` against a real broker, without any job."""

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot
from msgspec import UNSET

from coordlib.core.engine.time import Timer
from coordlib.core.groups.assigned import group as assigned
from coordlib.core.groups.classic import group as classic
from coordlib.core.wire import codec, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.topics import OWN
from coordlib.exit_codes import FAILED, UNHEALTHY, USAGE
from coordlib.kafka import topics
from tests.cli.kit import Cli

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack

SHARDS = 2


class Engine:
    """Writes what the job would write."""

    def __init__(self, broker: "Broker") -> None:
        from confluent_kafka import Producer

        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self.servers = broker.bootstrap_servers
        topics.create({"bootstrap.servers": self.servers}, self.prefix, SHARDS, 1, 1)
        self.producer: Producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": self.prefix, "log_level": 0}
        )
        self.producer.init_transactions()

    def put(self, topic: str, key: bytes, value: bytes | None, group: str = "payments") -> None:
        partition = 0 if topic == "progress" else shard_of(group, SHARDS)
        self.producer.produce(f"{self.prefix}.{topic}", value, key, partition)

    def group(self, name: str, of: Any = classic, **fields: Any) -> None:
        value = of.Group(group=name, **({"state": of.State.STABLE, "generation": 3} | fields))
        self.put("groups", name.encode(), codec.encode(value), name)

    def committed(
        self,
        topic: str,
        partition: int,
        offset: int | None,
        group: str = "payments",
        topic_id: Any = UNSET,
    ) -> None:
        value = stored.CommittedValue(
            offset=offset or 0,
            leader_epoch=-1,
            metadata="",
            commit_ms=0,
            commit_clock_ms=0,
            generation=3,
            member="m1",
            topic_id=topic_id,
        )
        key = codec.encode([group, topic, partition])
        self.put("committed", key, None if offset is None else codec.encode(value), group)

    def where(self) -> list[str]:
        return ["--bootstrap-servers", self.servers, "--prefix", self.prefix]


@pytest.fixture(scope="module")
def engine(broker: "Broker") -> Engine:
    """Two members share `orders`; one partition was never committed, one topic is deleted; what an
    open and an aborted transaction wrote must not be seen."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    engine = Engine(broker)
    data = f"{engine.prefix}-orders"
    admin = AdminClient({"bootstrap.servers": engine.servers})
    admin.create_topics([NewTopic(data, 4, 1)], operation_timeout=60)[data].result(60)
    producer = engine.producer
    producer.begin_transaction()
    members = {
        "m1": _member("m1", "app-1", assignment=_assignment({data: (0, 1)})),
        "m2": _member("m2", "app\x1b[2J", assignment=_assignment({data: (2,)})),
        "m3": _member("m3", "idle", assignment=b""),
    }
    for _ in range(10):
        producer.produce(data, b"x", partition=0)
    engine.group("payments", state=classic.State.PREPARING_REBALANCE, generation=2)
    fields = {"protocol_type": "consumer", "protocol": "range", "leader": "m1", "members": members}
    engine.group("payments", **fields)
    engine.group("empty", state=classic.State.EMPTY, generation=9)
    _add_awaited(engine)
    engine.group("ill", is_quarantined=True)
    engine.group("before", state=classic.State.EMPTY)
    engine.committed(data, 0, 2, "before", "A" * 21 + "Q")
    engine.committed("gone", 0, 5, "before", "A" * 21 + "Q")
    _add_readers(engine, data)
    engine.put("groups", b"deleted", None)
    engine.put("groups", b"\xff", b"not ours")
    engine.committed(data, 0, 4)
    engine.committed(data, 2, 0)
    engine.committed("gone", 0, 5)
    engine.committed("reset", 0, None)
    engine.put("committed", b"not ours", b"{}")
    engine.committed(data, 3, 9)
    long_ago = stored.LagLine(topic=data, partition=0, committed=4, log_start=0, log_end=8, lag=4)
    sample = stored.LagSample(time_ms=0, interval_ms=9, group="payments", lines=(long_ago,))
    engine.put("lag", b"payments", codec.encode(sample))
    engine.put("lag", b"payments", b"not ours")
    engine.put("lag", b"others", b"{}")
    shard = str(shard_of("payments", SHARDS))
    position = stored.ShardPosition(
        clock_ms=1_772_409_590_000, previous_ms=0, offsets={"r": -1}, published=-1
    )
    marker = stored.Marker(
        checkpoint="c0ffee", batch=41, ranges={}, digest="", shards={shard: position},
        next_offsets={},
    )  # fmt: skip
    engine.put("progress", b"marker", codec.encode(marker))
    engine.put("requests", b"payments", b"{}")
    producer.commit_transaction()
    admin.delete_records([TopicPartition(data, 0, 6)])[TopicPartition(data, 0)].result(60)
    producer.begin_transaction()
    engine.group("payments", state=classic.State.EMPTY, generation=99)
    producer.flush()
    producer.abort_transaction()
    return engine


def _add_awaited(engine: Engine) -> None:
    """A group that waits for a former owner and for an announced id."""
    timer = Timer(duration_ms=1_000, cause=0)
    guard = classic.Guard(
        member="m0", client="old", first_id="j0", session_timeout_ms=1_000, due_ms=5, notice=timer
    )
    announced = classic.Announced(timer=timer, client="new", first_id="j8")
    engine.group("held", guards={"m0": guard}, pending={"m8": announced})


def _add_readers(engine: Engine, topic: str) -> None:
    """A classic group that names the topic, and a server-assigned one that matches it."""
    subscribed = cp.encode_subscription(cp.Subscription(topics=(topic,)))
    offered = (classic.OfferedProtocol("range", subscribed),)
    by_list = {"m1": _member("m1", "a", protocols=offered)}
    engine.group("reads-by-list", protocol_type="consumer", members=by_list)
    wishes = {"topics": ("else",), "pattern": f".*-orders|{engine.prefix}.*"}
    by_match = {"m1": _member("m1", "a", assigned, subscribed_generation=1, **wishes)}
    engine.group("reads-by-match", assigned, members=by_match)


def _member(name: str, client: str, of: Any = classic, **fields: Any) -> Any:
    times = {"session_timeout_ms": 1_000, "rebalance_timeout_ms": 1_000, "joined_ms": 0}
    usual = {"reply": 0, "first_id": "j1"} | ({"protocols": ()} if of is classic else {})
    return of.Member(member=name, client=client, **(times | usual | fields))


def _assignment(partitions: dict[str, tuple[int, ...]]) -> bytes:
    return cp.encode_assignment(cp.Assignment(partitions=partitions))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], engine: Engine) -> Cli:
    return Cli(capsys, where=engine.where())


def test_list_tells_every_live_group(cli: Cli) -> None:
    assert cli("groups list").out == snapshot("""\
GROUP           STATE                MEMBERS  GENERATION  PROTOCOL
before          Empty                0        3           -
empty           Empty                0        9           -
held            Stable               0        3           -
ill             Quarantined(Stable)  0        3           -
payments        Stable               3        3           range
reads-by-list   Stable               1        3           -
reads-by-match  Stable               1        3           -
""")


def test_list_tells_the_groups_that_read_a_topic(engine: Engine, cli: Cli) -> None:
    """Before somebody deletes or renames a topic: whose consumers would notice?"""
    data = f"{engine.prefix}-orders"
    printed = cli("groups list --topic", data)
    assert [row[0] for row in printed.rows[1:]] == ["reads-by-list", "reads-by-match"]
    assert printed.err.startswith(f"2 groups of topic {data} as of ")

    answer = cli.json("groups list --topic else --state stable")
    assert answer["topic"] == "else"
    assert answer["groups"] == [
        {
            "group": "reads-by-match", "state": "Stable", "members": 1, "generation": 3,
            "protocol": None,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["nobody-reads-it", "{prefix}.requests"])
def test_a_topic_that_nobody_reads_has_no_groups(engine: Engine, name: str, cli: Cli) -> None:
    """Expressions match none of the coordinator's own topics."""
    lines, said = cli("groups list --topic", name.format(prefix=engine.prefix))
    assert len(lines) == 1
    assert said.startswith("0 groups of topic ")


def test_describe_has_kafkas_columns(engine: Engine, cli: Cli) -> None:
    told = cli("groups describe payments")
    head, _, table = told.out.partition("\n\n")
    data = f"{engine.prefix}-orders"
    facts = dict(line.split(maxsplit=1) for line in head.splitlines())
    expected = {"KIND": "classic", "STATE": "Stable", "GENERATION": "3", "LEADER": "m1"}
    assert facts.items() >= (expected | {"MEMBERS": "3", "TOPICS-NOT-FOUND": "gone"}).items()
    assert facts["AS-OF"].endswith("at 2026-03-01T23:59:50.000Z, 2 records not read yet")
    rows = [line.split() for line in table.splitlines()]
    end = rows[2][4]  # a transaction's marker takes an offset of its own
    assert int(end) >= 10
    seconds = rows[2][6]  # since 1970
    assert seconds.startswith(">")
    assert float(seconds[1:]) > 1e9
    assert rows == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
         "LAG-SECONDS", "LOST", "CONSUMER-ID", "CLIENT-ID"],
        ["payments", "gone", "0", "5", "-", "-", "-", "-", "-", "-"],
        ["payments", data, "0", "4", end, str(int(end) - 6), seconds, "2", "m1", "app-1"],
        ["payments", data, "1", "-", "0", "-", "-", "-", "m1", "app-1"],
        ["payments", data, "2", "0", "0", "0", "0.0", "0", "m2", "app\\x1b[2J"],
        ["payments", data, "3", "9", "0", "0", "0.0", "0", "-", "-"],
        ["payments", "-", "-", "-", "-", "-", "-", "-", "m3", "idle"],
    ]  # fmt: skip
    assert f"{data}-3 ends at 0, and 9 was committed" in told.err


def test_describe_tells_offsets_of_a_topic_that_was_made_anew(engine: Engine, cli: Cli) -> None:
    """They count as none for who reads, and a lag by them would be one of two topics."""
    data = f"{engine.prefix}-orders"
    told = cli("groups describe before")
    assert f"{data} has another id than its committed offsets" in told.err
    assert "gone has another id" not in told.err
    assert ["TOPICS-NOT-FOUND", "gone"] in told.rows

    shown = cli.json("groups describe before")
    assert (shown["missing-topics"], shown["replaced-topics"]) == (["gone"], [data])
    line = next(each for each in shown["offsets"] if each["topic"] == data)
    assert (line["current-offset"], line["lag"], line["topic-id"]) == (2, None, "A" * 21 + "Q")


def test_describe_tells_whom_a_group_waits_for(cli: Cli) -> None:
    assert cli("groups describe held").lines[-3:] == [
        "WAITS-FOR  CLIENT-ID  REASON",
        "m0         old        has not stopped",
        "m8         new        was told its id and has not joined",
    ]
    assert cli.json("groups describe held")["waits-for"] == [
        {"consumer-id": "m0", "client-id": "old", "reason": "has not stopped"},
        {"consumer-id": "m8", "client-id": "new", "reason": "was told its id and has not joined"},
    ]


def test_describe_as_json(cli: Cli) -> None:
    told = cli.json("groups describe payments")
    assert (told["state"], told["as_of_offset"], told["kind"]) == ("Stable", -1, "classic")
    lines = told["offsets"]
    assert lines[3]["consumer-id"] == "m2"
    keys = ("lag", "lag-seconds", "is-at-least", "lost", "log-start-offset", "is-beyond-end")
    assert [lines[1][key] for key in keys[2:]] == [True, 2, 6, False]
    assert lines[1]["lag-seconds"] > 1e9
    assert [lines[0][key] for key in keys] == [None, None, False, None, None, False]
    assert [lines[4][key] for key in keys] == [0, 0.0, False, 0, 0, True]
    assert told["total-lag"] == lines[1]["lag"]
    assert {member["client-id"] for member in told["members"]} >= {"app-1", "idle"}


@pytest.mark.parametrize("name", ["nobody", "deleted", "\u202ex", "ü" * 124])
def test_an_unknown_group_is_an_error(name: str, cli: Cli) -> None:
    said = cli.error("groups describe", name, code=FAILED)
    assert said[0] == "GROUP_ID_NOT_FOUND"
    assert "\u202e" not in "".join(said)


def test_topics_are_created_once_and_checked(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = ["--bootstrap-servers", engine.servers]
    nothing = Cli(capsys, where=[*servers, "--prefix", "nothing-here"])
    assert "nothing-here.groups" in nothing("groups list", code=USAGE).err

    cli = Cli(capsys, "topics", where=[*servers, "--prefix", f"{engine.prefix}b"])
    assert "does not exist" in cli("check", code=UNHEALTHY).out
    assert len(cli.json("create --replication 1")["created"]) == len(OWN)
    assert cli("create --replication 1").out == ""
    told = cli.json("check")
    assert (told["ok"], told["shards"], told["responses"]) == (True, 2, 32)


def test_status_of_a_cluster_tells_batch_and_lag(cli: Cli) -> None:
    told = cli.json("status")
    assert told["errors"] == []
    assert 0 <= told["job"].pop("marker_age_ms") < 120_000
    assert told["job"] == {"state": "unknown", "pid": None, "batch_id": 41, "last_batch_ms": None}
    assert (told["checkpoint"], told["checkpoint_id"]) == (None, "c0ffee")
    assert told["shards"] == SHARDS
    assert told["lag"]["records"] >= 1
    assert 0 <= told["lag"]["ms"] < 120_000
