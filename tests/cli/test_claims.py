"""`coord claims` against a real broker, without any job."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from coordlib.cli.claims.app import Compared, agreed, differences
from coordlib.core.claims.slots import Slot
from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims
from coordlib.exit_codes import FAILED, INTERRUPTED, UNHEALTHY, USAGE
from tests.cli.kit import Cli
from tests.client.claims.place import Place, until

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


@pytest.fixture
def place(broker: "Broker") -> Iterator[Place]:
    made = Place(broker.bootstrap_servers)
    yield made
    for each in made.open:
        each.close(release=True)


def claims_of(place: Place, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`coord claims` on one coordination topic."""
    where = ["--bootstrap-servers", place.options["bootstrap.servers"], "--prefix", place.prefix]
    return Cli(capsys, "claims", where=[*where, "--claims-topic", place.coordination])


@pytest.fixture
def cli(place: Place, capsys: pytest.CaptureFixture[str]) -> Cli:
    return claims_of(place, capsys)


TOPIC_THAT_IS_NOT_THERE = "set-position g --to-earliest --topic there-is-none --apply --yes"


def claimed(place: Place, count: int = 20) -> None:
    """A consumer that has read everything and still holds its claims."""
    place.put(count)
    consumer = place.consumer("worker")
    read = 0

    def step() -> bool:
        nonlocal read
        message = consumer.poll(0.02)
        if message is not None:
            consumer.commit(message)
            read += 1
        return read == count

    until(step)
    consumer.flush()


def test_an_empty_topic_has_no_claims(cli: Cli) -> None:
    lines, said = cli("list")
    assert (len(lines), said) == (1, "As of an empty log\n")


def test_claims_are_listed_and_described(place: Place, cli: Cli) -> None:
    claimed(place)
    place.put(2)
    answer = cli.json("list g --topic", place.topic)
    rows = {row["partition"]: row for row in answer["claims"]}
    assert set(rows) == {0, 1}
    assert rows[0]["client-id"] == "worker"
    assert (rows[0]["state"], rows[0]["current-offset"]) == ("live", 10)
    assert answer["as_of"].startswith("m0-")

    shown = cli.json("describe g")
    assert [(row["log-end-offset"], row["lag"]) for row in shown["claims"]] == [(11, 1), (11, 1)]
    assert shown["total-lag"] == 2
    assert all(row["since"] for row in shown["claims"])
    lines, said = cli("describe g")
    assert len(lines) == 3
    assert "2 records behind" in said
    assert cli.json("list --state free")["claims"] == []


def test_positions_of_a_topic_that_was_made_anew_are_told(place: Place, cli: Cli) -> None:
    """Whoever claims next begins by its configuration: there is no lag by the former position."""
    from confluent_kafka import Producer

    claimed(place)
    shown = cli.json("describe g")
    (topic_id,) = {row["topic-id"] for row in shown["claims"]}
    assert (len(topic_id), shown["replaced-topics"]) == (22, [])
    slot = place.world().slots["g", place.topic, 0]
    instance = claims.instance_of(slot.instance[:8], slot.epoch, "A" * 21 + "Q")
    sign = claims.Heartbeat(2, 5, instance, slot.client, "g", place.topic, 0, 10)
    for each in place.open:
        each.close(release=False)  # else its next sign has the id of the topic that is there
    producer = Producer(place.options)
    producer.produce(place.coordination, claims.encode(sign), partition=0)
    assert producer.flush(60) == 0

    rows = {row["partition"]: row for row in cli.json("describe g")["claims"]}
    assert (rows[0]["topic-id"], rows[0]["lag"]) == ("A" * 21 + "Q", None)
    assert f"{place.topic} has another id than positions of it" in cli("describe g").err


def test_a_group_that_claims_nothing_is_named(cli: Cli) -> None:
    assert cli.error("describe nobody", code=FAILED)[0] == "GROUP_ID_NOT_FOUND"


def test_messages_are_decoded_whatever_they_are(place: Place, cli: Cli) -> None:
    """Terminal escapes reach no terminal."""
    from confluent_kafka import Producer

    producer = Producer(place.options)
    good = claims.ClaimingPartition(1, 5, "inst", "go", "g", place.topic, 0)
    evil = claims.ClaimingPartition(1, 5, "inst", "\x1b[2J", "g", place.topic, 1)
    for value in (b"banana", claims.encode(good), claims.encode(evil), None, b"\xff"):
        producer.produce(place.coordination, value, partition=0)
    assert producer.flush(60) == 0
    rows = cli.json("decode")["messages"]

    assert [(row["verdict"], row["error"]) for row in rows] == [
        ("rejected", "UNKNOWN_TYPE"),
        ("won", None),
        ("rejected", "NAME"),
        ("rejected", "NO_VALUE"),
        ("rejected", "NOT_UTF8"),
    ]
    printed = cli("decode --limit 4")
    assert len(printed.lines) == 5
    assert "\x1b" not in printed.out
    findings = cli.json("check")["findings"]
    rejected = [row["is"] for row in findings if "rejected" in row["is"]]
    faults = [each.split(": ")[1].split(",")[0] for each in rejected]
    assert faults == ["NAME", "NOT_UTF8", "NO_VALUE", "UNKNOWN_TYPE"]
    assert any("clock" in row["is"] for row in findings)


def test_twins_are_found(place: Place, cli: Cli) -> None:
    from confluent_kafka import Producer

    producer = Producer(place.options)
    for instance in ("0000000a", "0000000b", "0000000a"):
        value = claims.encode(claims.Heartbeat(2, 5, instance, "twin", "g", place.topic, 0, 0))
        producer.produce(place.coordination, value, partition=0)
    assert producer.flush(60) == 0

    findings = cli.json("check")["findings"]
    assert any("several processes at once" in row["is"] for row in findings)


def test_pause_and_resume(place: Place, cli: Cli) -> None:
    cli("pause g --for 10m")
    assert list(cli.json("list")["paused"]) == ["g"]
    cli("resume g")
    assert cli.json("list")["paused"] == {}


@pytest.mark.parametrize("line", ["pause g --for 0s", "pause g --for 8d", TOPIC_THAT_IS_NOT_THERE])
def test_what_the_broker_alone_can_refuse_changes_nothing(
    place: Place, cli: Cli, line: str
) -> None:
    """What no broker need be asked for is in test_wrong_usage.py."""
    cli.error(line)
    assert place.world().offset == -1


def test_positions_are_shown_and_set_only_when_told_to(
    place: Place, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(place)
    for marshaler in place.open:
        marshaler.close(release=True)
    before = place.world().offset
    printed = cli("set-position g --shift-by -3")
    assert len(printed.lines) == 3
    assert printed.rows[1] == ["g", place.topic, "0", "10", "7", "-3"]
    assert printed.said[-1] == "Nothing was changed: say --apply to do it."
    assert place.world().offset == before

    # Without a terminal, and without --yes.
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    cli.error("set-position g --to-earliest --apply")
    assert place.world().offset == before

    to = f"{place.topic}:0=4,{place.topic}:1=10"
    done = cli.json("set-position g --to", to, "--apply", "--yes")
    rows = [(row["prior-offset"], row["new-offset"], row["delta"]) for row in done["positions"]]
    assert rows == [(10, 4, -6), (10, 10, 0)]
    assert done["applied"] is True
    after = cli.json("list g")["claims"]
    assert [row["current-offset"] for row in after] == [4, 10]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 128 + signal.SIGTERM)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_change_of_positions_that_is_interrupted_resumes_the_group(
    place: Place, cli: Cli, number: signal.Signals, code: int
) -> None:
    """Somebody does not let go, and whoever waits for it gives up: the group was paused for a
    quarter of an hour."""
    claimed(place)  # and does not poll any more, so nothing is released
    words = ("set-position", "g", "--to-earliest", "--apply", "--yes")
    running = subprocess.Popen(
        [sys.executable, "-m", "coordlib.cli.main.main", "claims", *words, *cli.where],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    told = [running.stderr.readline()]
    assert told[0].startswith("Waiting for worker to let go")
    assert list(cli.json("list")["paused"]) == ["g"]
    running.send_signal(number)
    told += running.stderr.readlines()

    assert running.wait(60) == code
    assert told[-1] == "0 of 2 positions are set, the others are as before. The group continues.\n"
    after = cli.json("list")
    assert after["paused"] == {}
    assert [row["client-id"] for row in after["claims"]] == ["worker", "worker"]
    assert [row["current-offset"] for row in after["claims"]] == [10, 10]


def test_offsets_that_the_log_does_not_have_are_refused(place: Place, cli: Cli) -> None:
    place.put(4)
    said = cli("set-position g --to", f"{place.topic}:0=3", code=USAGE).said
    assert said[1] == f"{place.topic}:0=3 of 0 to 2"


def test_times_are_offsets(place: Place, cli: Cli) -> None:
    place.put(4)
    early = cli.json("set-position g --topic", place.topic, "--to-datetime", "2020-01-01")
    late = cli.json("set-position g --topic", place.topic, "--to-datetime", "2999-01-01")

    assert [row["new-offset"] for row in early["positions"]] == [0, 0]
    assert [row["new-offset"] for row in late["positions"]] == [2, 2]


def test_snapshots_are_verified(place: Place, cli: Cli) -> None:
    assert cli("verify", code=FAILED).said[0] == "There is no snapshot to compare with."
    claimed(place)
    world = place.world()
    place.save(world, place.topic_id())
    answer = cli.json("verify")
    assert answer["ok"] is True
    (row,) = answer["partitions"]
    assert (row["ok"], row["slots"], row["differences"]) == (True, 2, 0)

    key, slot = next(iter(world.slots.items()))
    world.slots[key] = type(slot)(
        slot.client, slot.instance, slot.epoch + 1, slot.heard_ms, slot.position
    )
    place.save(world, place.topic_id())
    answer = cli.json("verify", code=UNHEALTHY)
    assert answer["ok"] is False
    (row,) = answer["partitions"]
    assert (row["ok"], row["differences"]) == (False, 1)


def test_a_partition_that_cannot_be_compared_is_not_ok(
    broker: "Broker", capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention has cut one log behind its snapshot; a job has followed the other one alone."""
    place = Place(broker.bootstrap_servers, 3)
    cli = claims_of(place, capsys)
    empty, cut, followed = range(3)
    place.write_bytes(cut, 3)
    place.write_bytes(followed, 3)
    for number in (cut, followed):
        place.save(place.world(number), place.topic_id(), 3, number)
    place.write_bytes(cut, 1)
    place.cut(cut, 3)
    answer = cli.json("verify", code=FAILED)

    assert answer["ok"] is None
    rows = {row["partition"]: row for row in answer["partitions"]}
    assert rows[followed]["ok"] is True
    assert (rows[cut]["ok"], rows[cut]["differences"]) == (None, None)
    assert rows[cut]["note"] == "the log ends before it, or begins behind it"
    assert (rows[empty]["ok"], rows[empty]["note"]) == (None, "no snapshot is due yet")


def fold_of(number: int, seconds: int) -> World:
    """A log of foreign bytes, one a second."""
    world = World("claims.6s", number, 3)
    for second in range(seconds):
        world.judge(InputRecord("m", second, 1_000_000 + 1_000 * second, b"banana"))
    return world


@pytest.mark.parametrize(
    ("oks", "expected"),
    [
        ([True, True], True),
        ([True, None], None),
        ([False, None], False),
        ([], None),
    ],
)
def test_a_topic_agrees_if_all_of_it_was_compared(
    oks: list[bool | None], expected: bool | None
) -> None:
    """A partition without a message for which a snapshot is due changes nothing."""
    idle = Compared(9, None, None, is_due=False)
    rows = [Compared(number, 5, ok) for number, ok in enumerate(oks)]

    assert agreed([*rows, idle]) is expected


def test_a_late_reader_is_compared_where_both_are_sure() -> None:
    """It knows neither positions of before it began, nor who released what; owners it must know."""
    whole, late = fold_of(0, 60), fold_of(0, 60)
    key = ("g", "t", 0)
    whole.slots[key] = Slot("a", "00000001-3", 3, whole.clock_ms, 7)
    whole.slots["g", "t", 1] = Slot("a", "00000001-4", 4, 0, 7, is_released=True)
    late.slots[key] = Slot("a", "00000001-3", 3, late.clock_ms, None)
    assert differences(late, whole, is_late=True) == (1, [])
    assert differences(late, whole, is_late=False)[0] == 2

    del late.slots[key]
    assert len(differences(late, whole, is_late=True)[1]) == 1
    late.slots[key] = Slot("b", "00000002-5", 5, late.clock_ms, None, is_tentative=True)
    assert differences(late, whole, is_late=True) == (0, [])


def test_every_coordination_partition_is_verified(
    broker: "Broker", capsys: pytest.CaptureFixture[str]
) -> None:
    """They are read one after the other, by one reader."""
    place = Place(broker.bootstrap_servers, 3)
    cli = claims_of(place, capsys)
    claimed(place)
    for each in place.open:
        each.close(release=True)
    shard = claims.partition_of(place.topic, 3)
    worlds = [World(place.coordination, number, 3) for number in range(3)]
    worlds[shard] = place.world(shard)
    for number, world in enumerate(worlds):
        place.save(world, place.topic_id(), 3, number)
    answer = cli.json("verify")

    assert answer["ok"] is True
    slots = [row["slots"] for row in answer["partitions"]]
    assert slots == [2 if number == shard else 0 for number in range(3)]


def test_topics_are_created_once_and_checked(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """With as many replicas as the cluster has brokers, which is one."""
    name = f"{place.coordination}-2"
    cli = Cli(capsys, "claims", where=["--bootstrap-servers", place.options["bootstrap.servers"]])
    assert cli("create", name).err == f"{name} was created.\n"
    assert "left as it is" in cli("create", name).err
    cli("check --claims-topic", name)
    cli("check --claims-topic", f"{name}-none", code=UNHEALTHY)
