"""The replicated store over real sockets, with agents that read what the test says."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordlib.client import Following, TopicPartition
from examples.store import leader as store_leader
from examples.store import server
from examples.store.client import OutcomeUnknown, StoreClient, partition_of
from examples.store.replica import Entry, Log, Replica
from examples.store.wire import UNKNOWN, Connection, Refused
from tests.examples.fake_agents import PLACE, TOPIC, World

SHORT_S = 0.3
#: Bounds a wait, on however busy a machine.
PATIENCE_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def calls() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as calls:
        yield calls


def ask(world: World, broker: int, what: str, **fields: Any) -> dict[str, Any]:
    connection = Connection(world.stores[broker].address, 20)
    try:
        return connection.ask(what, topic=TOPIC, partition=0, **fields)
    finally:
        connection.close()


def until(world: World, is_so: Callable[[], object]) -> None:
    """Poll all stores until it is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        for store in world.stores.values():
            store.poll(0)
        time.sleep(0.01)


def waits(call: "Future[Any]") -> bool:
    time.sleep(SHORT_S)
    return not call.done()


def logs_of(world: World, broker: int) -> list[str]:
    """The logs in a store's folder."""
    return sorted(path.name for path in (world.folder / str(broker)).glob("*.jsonl"))


def told(world: World, what: str) -> list[tuple[int, Any]]:
    """Brokers that told of it, and epochs or offsets."""
    return [(b, f.get("offset", f.get("epoch"))) for b, kind, _, f in world.told if kind == what]


# ---- puts and gets ------------------------------------------------------------------------------


def test_a_put_is_acknowledged_when_all_that_must_have_it(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """Broker 3 is slow: while it is in the ISR, no put and no get of that value can be answered."""
    world.start(1, 2, 3)
    world.lead(1, unread=3)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: len(world.log(2)) == 1)
    get = calls.submit(ask, world, 1, "get", key="k")
    assert waits(put)
    assert waits(get)
    assert ask(world, 1, "get", key="other") == {"value": None, "offset": -1}

    world.stores[3]._follow(Following(TOPIC, 0, 0, 1, 7))
    until(world, put.done)
    assert put.result()["offset"] == 0
    assert get.result(PATIENCE_S) == {"value": "v", "offset": 0}
    assert world.log(1) == world.log(2) == world.log(3) == [(0, "k", "v")]
    assert told(world, "acknowledged") == [(1, 0)]


def test_a_leader_whose_lease_ends_while_a_put_waits_does_not_acknowledge_it(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """It was suspended for longer than its session; the answers of its followers lie in its socket
    when it goes on. All have the entry then, and still it may not say so."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2), unread=2)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: len(world.log(1)) == 1)
    assert waits(put)

    leader = world.stores[1]._leaders[PLACE]
    with world.stores[1]._replicas[PLACE].changed:  # at once, as for who was suspended
        world.agent(1).has_lease = False
        leader._has[2] = store_leader.Has(102, 1, time.monotonic())
    assert leader.acknowledged() == 1
    with pytest.raises(Refused, match=UNKNOWN):
        put.result(PATIENCE_S)
    assert told(world, "acknowledged") == []
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        ask(world, 1, "put", key="k", value="w")
    with pytest.raises(Refused, match=UNKNOWN):
        ask(world, 1, "get", key="k")


def test_who_resigns_acknowledges_nothing_that_waits(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """The agent writes the Release when `on_resign` has returned; `may_lead` holds until then."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2), unread=2)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    assert waits(put)

    world.resign(1)
    assert world.agent(1).may_lead(*PLACE, 0)
    with pytest.raises(Refused, match=UNKNOWN):
        put.result(PATIENCE_S)
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        ask(world, 1, "put", key="k", value="w")
    assert told(world, "acknowledged") == []


def test_a_leadership_whose_end_is_only_to_be_told_acknowledges_nothing(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """The agent has read that it is over, and names nobody any more; its callback has not come."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2), unread=2)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: len(world.log(1)) == 1)
    world.agent(1).counts_nobody = True
    assert waits(put)
    world.resign(1)
    with pytest.raises(Refused, match=UNKNOWN):
        put.result(PATIENCE_S)


def test_too_few_in_sync_take_no_put(world: World) -> None:
    """The topic wants two."""
    world.start(1)
    world.lead(1, isr=(1,))
    with pytest.raises(Refused, match="NOT_ENOUGH_REPLICAS"):
        ask(world, 1, "put", key="k", value="v")
    assert world.log(1) == []
    assert ask(world, 1, "get", key="k") == {"value": None, "offset": -1}


def test_who_is_fenced_answers_nobody(world: World) -> None:
    """Its door is closed: neither clients nor leaders, and nobody learns leaders from it."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2))
    world.agent(1).is_fenced = True
    for what, fields in [
        ("put", {"key": "k", "value": "v"}),
        ("get", {"key": "k"}),
        ("leaders", {}),
        ("replicate", {"epoch": 0, "begin": 0, "before": -1, "entries": []}),
    ]:
        with pytest.raises(Refused, match="BROKER_NOT_AVAILABLE"):
            ask(world, 1, what, **fields)


@pytest.mark.parametrize("fields", [{"what": "put"}, {"what": "put", "key": "k", "values": 1}])
def test_what_nobody_understands_is_refused(world: World, fields: dict[str, Any]) -> None:
    """And the connection, and the store, go on."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2))
    with pytest.raises(Refused, match="INVALID_REQUEST"):
        ask(world, 1, **fields)
    with pytest.raises(Refused, match="UNSUPPORTED_VERSION"):
        ask(world, 1, "sing")
    connection = Connection(world.stores[1].address)
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        connection.ask("get", topic="nothing", partition=0, key="k")
    connection.close()


# ---- logs of followers --------------------------------------------------------------------------


def test_a_follower_takes_the_newest_epoch_only(tmp_path: Path) -> None:
    """A leader that was replaced sends on; and a new one sends before the follower has read of it:
    then it must be asked again, and not believed."""
    replica = Replica(tmp_path / "log")
    replica.enter(4)
    with pytest.raises(Refused, match="FENCED_LEADER_EPOCH"):
        replica.accept(3, 0, -1, [[3, "k", "v"]])
    with pytest.raises(Refused, match="UNKNOWN_LEADER_EPOCH"):
        replica.accept(5, 0, -1, [[5, "k", "v"]])
    replica.enter(5, leader=object())
    with pytest.raises(Refused, match="FENCED_LEADER_EPOCH"):
        replica.accept(5, 0, -1, [[5, "k", "v"]])
    assert len(replica.log) == 0


def test_a_follower_is_cut_where_it_differs(tmp_path: Path) -> None:
    """It led under epoch 2, and was suspended with two entries that nobody else has."""
    replica = Replica(tmp_path / "log")
    for entry in (Entry(1, "a", 1), Entry(2, "b", 2), Entry(2, "c", 3)):
        replica.log.append(entry)
    replica.enter(3)
    leaders = [[1, "a", 1], [1, "d", 4], [3, "e", 5]]

    assert replica.accept(3, 3, 3, []) == {"differs": 2}
    assert replica.accept(3, 2, 1, leaders[2:]) == {"differs": 1}
    assert replica.accept(3, 1, 1, leaders[1:]) == {"end": 3}
    assert [list(each) for each in replica.log.entries] == leaders
    assert Log(tmp_path / "log").entries == replica.log.entries


def test_a_late_part_cuts_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A leader sends from an older place again; what follows it is acknowledged already."""
    replica = Replica(tmp_path / "log")
    replica.enter(1)
    entries = [[1, "a", 1], [1, "b", 2], [1, "c", 3]]
    assert replica.accept(1, 0, -1, entries) == {"end": 3}
    assert replica.accept(1, 0, -1, entries[:1]) == {"end": 1}
    assert len(replica.log) == 3


@pytest.mark.parametrize("torn", [b"", b'[1, "c", ', b'[1, "c", 3]'])
def test_a_log_survives_its_process(tmp_path: Path, torn: bytes) -> None:
    """SIGKILL in the middle of a line, which nobody was told of."""
    log = Log(tmp_path / "log")
    log.append(Entry(1, "a", 1))
    log.append(Entry(1, "b", 2))
    with (tmp_path / "log").open("ab") as file:
        file.write(torn)

    again = Log(tmp_path / "log")
    assert again.entries == log.entries
    again.cut(1)
    again.append(Entry(2, "d", 4))
    assert Log(tmp_path / "log").entries == [Entry(1, "a", 1), Entry(2, "d", 4)]
    assert again.newest("a") == 0
    assert again.newest("b") == -1


def test_a_new_leader_makes_its_log_everybodys(world: World, calls: ThreadPoolExecutor) -> None:
    """Broker 1 has an entry that it could not acknowledge; 2 leads after it without that entry."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2), unread=2)
    lost = calls.submit(ask, world, 1, "put", key="k", value="lost")
    until(world, lambda: len(world.log(1)) == 1)
    world.lead(2, isr=(1, 2))
    with pytest.raises(Refused, match=UNKNOWN):
        lost.result(PATIENCE_S)

    put = calls.submit(ask, world, 2, "put", key="k", value="kept")
    until(world, put.done)
    assert put.result()["offset"] == 0
    assert world.log(1) == world.log(2) == [(1, "k", "kept")]


def test_a_new_leader_waits_before_it_returns_what_it_found(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """The entry of the leader before it was perhaps acknowledged, perhaps not. If it were returned
    before others have it under this epoch, the next leader might not know it."""
    world.start(1, 2, 3)
    world.lead(1, isr=(1, 2))
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, put.done)
    world.lead(2, isr=(1, 2), unread=1)
    get = calls.submit(ask, world, 2, "get", key="k")
    until(world, lambda: world.stores[2]._leaders[PLACE]._followed)
    assert waits(get)

    world.stores[1]._follow(Following(TOPIC, 0, 1, 2, 7))
    assert get.result(PATIENCE_S) == {"value": "v", "offset": 0}


# ---- in-sync replicas ---------------------------------------------------------------------------


def test_a_silent_follower_leaves_the_isr_and_comes_back(
    world: World, calls: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put that waited for it is acknowledged when the controller has accepted."""
    monkeypatch.setattr(store_leader, "SILENT_S", 0.7)
    world.start(1, 2, 3)
    world.lead(1, unread=3)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: world.agent(1).asked)
    assert waits(put), "before the controller has answered, 3 may be elected"
    assert world.takes(1) == {1: 101, 2: 102}
    until(world, put.done)
    assert put.result()["offset"] == 0

    world.stores[3]._follow(Following(TOPIC, 0, 0, 1, 7))
    until(world, lambda: len(world.agent(1).asked) == 2)
    assert world.log(3) == world.log(1)
    assert world.takes(1) == {1: 101, 2: 102, 3: 103}
    until(world, lambda: True)
    assert len(world.agent(1).asked) == 2


def test_whom_it_has_asked_for_counts_before_the_answer(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """Rule 16: the controller may have accepted, and nobody here has read so."""
    world.start(1, 2, 3)
    world.lead(1, isr=(1, 2))
    until(world, lambda: world.agent(1).asked)
    world.agent(3).is_fenced = True
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: len(world.log(2)) == 1)
    assert waits(put)

    world.agent(3).is_fenced = False
    until(world, put.done)
    assert put.result()["offset"] == 0


def test_whom_it_has_asked_for_in_vain_is_got_rid_of(
    world: World, calls: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, and silent since: the ISR as it is is asked for, which makes another epoch."""
    monkeypatch.setattr(store_leader, "SILENT_S", 0.7)
    world.start(1, 2, 3)
    world.lead(1, isr=(1, 2))
    until(world, lambda: world.agent(1).asked)
    world.agent(3).is_fenced = True
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, lambda: world.refuses(1) or world.agent(1).asked[-1][0] == {1: 101, 2: 102})
    assert waits(put)
    world.takes(1)
    until(world, put.done)
    assert put.result()["offset"] == 0


def test_nobody_enters_without_what_the_leader_began_with(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """Of a new leader's log anything may have been acknowledged by the one before, also while a
    member of the ISR that has not spoken yet makes the leader count nothing as acknowledged."""
    world.start(1, 2, 3)
    world.lead(1, isr=(1, 2), unread=3)
    put = calls.submit(ask, world, 1, "put", key="k", value="v")
    until(world, put.done)
    world.lead(2, isr=(1, 2), unread=1)
    leader = world.stores[2]._leaders[PLACE]
    assert leader.acknowledged() == 0
    leader._has[3] = store_leader.Has(103, 0, time.monotonic())
    assert leader._in_sync(world.agent(2).metadata(), world.rows[PLACE]).keys() == {1, 2}
    leader._has[3] = store_leader.Has(103, 1, time.monotonic())
    assert leader._in_sync(world.agent(2).metadata(), world.rows[PLACE]).keys() == {1, 2, 3}


def test_what_an_older_process_had_counts_nothing_for_the_newer_one(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """KIP-903: broker 3 had everything, and came back with an empty disk."""
    world.start(1, 2, 3)
    world.lead(1, isr=(1, 2))
    leader = world.stores[1]._leaders[PLACE]
    leader._has[3] = store_leader.Has(99, 0, time.monotonic())
    assert leader._in_sync(world.agent(1).metadata(), world.rows[PLACE]).keys() == {1, 2}
    leader._has[3] = store_leader.Has(103, 0, time.monotonic())
    assert leader._in_sync(world.agent(1).metadata(), world.rows[PLACE])[3] == 103


def test_who_was_elected_out_of_sync_says_first_that_it_has_recovered(world: World) -> None:
    """With more than itself in the ISR the controller would refuse that."""
    world.start(1, 2)
    world.lead(1, isr=(1,))
    world.rows[PLACE] = replace(world.rows[PLACE], recovering=True)
    until(world, lambda: world.agent(1).asked)
    assert world.agent(1).has_recovered
    assert world.takes(1) == {1: 101}
    world.rows[PLACE] = replace(world.rows[PLACE], recovering=False)
    until(world, lambda: len(world.agent(1).asked) == 2)
    assert not world.agent(1).has_recovered
    assert world.takes(1) == {1: 101, 2: 102}


def test_a_deleted_replica_leaves_nothing(world: World) -> None:
    """A topic of the same name must not find its entries."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2))
    assert logs_of(world, 1) == [f"{TOPIC}-0@7.jsonl"]
    world.stop(1, delete=True)
    assert logs_of(world, 1) == []
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        ask(world, 1, "get", key="k")


def test_who_was_away_while_its_topic_was_made_anew_finds_nothing_of_it(world: World) -> None:
    """It was unregistered, so the deletion did not wait for it; then it comes back with its folder.

    The log of another topic there, whose name begins in the same way, stays.
    """
    world.start(1)
    world.lead(1, isr=(1,))
    world.stores[1]._replica(TopicPartition(f"{TOPIC}-0", 7), 8)
    world.stores.pop(1).close()
    world.rows[PLACE] = replace(world.rows[PLACE], topic_id=9)
    world.start(1)
    world.lead(1, isr=(1,))

    assert logs_of(world, 1) == [f"{TOPIC}-0-7@8.jsonl", f"{TOPIC}-0@9.jsonl"]
    assert world.log(1) == []


# ---- the client ---------------------------------------------------------------------------------


def client_of(world: World, patience_s: float = 5.0) -> StoreClient:
    return StoreClient(TOPIC, 1, [each.address for each in world.stores.values()], patience_s)


def polled(world: World) -> "threading.Event":
    """Poll all stores in the background until it is set."""
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(0.02):
            for store in list(world.stores.values()):
                store.poll(0)

    threading.Thread(target=poll, daemon=True).start()
    return is_over


def test_a_client_follows_the_leader(world: World) -> None:
    """It learns of the next one from any store that is there."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2))
    is_over, client = polled(world), client_of(world)
    client.put("k", 1)
    world.lead(2, isr=(1, 2))
    client.put("k", 2)
    assert client.get("k") == (2, 1)
    world.stores.pop(1).close()
    world.rows[PLACE] = replace(world.rows[PLACE], isr=(2,))
    assert client.get("k") == (2, 1)
    is_over.set()
    client.close()


def test_a_client_is_told_when_a_put_may_be_done_or_not(
    world: World, calls: ThreadPoolExecutor
) -> None:
    """It is not sent again: another client's put may have come in between."""
    world.start(1, 2)
    world.lead(1, isr=(1, 2), unread=2)
    put = calls.submit(client_of(world).put, "k", "v")
    until(world, lambda: len(world.log(1)) == 1)
    world.resign(1)
    with pytest.raises(OutcomeUnknown):
        put.result(PATIENCE_S)
    assert len(world.log(1)) == 1


def test_a_client_gives_up_with_the_last_reason(world: World) -> None:
    world.start(1)
    world.lead(1, isr=(1,))
    with pytest.raises(Refused, match="NOT_ENOUGH_REPLICAS"):
        client_of(world, 0.3).put("k", "v")
    world.stores[1].close()
    with pytest.raises(Refused, match=r"NETWORK_EXCEPTION|LEADER_NOT_AVAILABLE"):
        client_of(world, 0.3).get("k")
    world.stores.clear()


def test_keys_lie_in_the_same_partition_for_ever() -> None:
    """Another hash would lose what is there."""
    assert [partition_of(key, 6) for key in ("a", "b", "colour")] == [3, 5, 4]


def test_a_program_that_is_told_to_end_lets_others_lead_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM is what systemd and Kubernetes send; the agent's block is left, and so it stops in
    order, before the server goes."""
    handlers: dict[int, Any] = {}
    done: list[str] = []

    class Agent:
        def __enter__(self) -> "Agent":
            return self

        def __exit__(self, *_: object) -> None:
            done.append("others lead")

        def ready(self) -> None:
            done.append("ready")

    class Program:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.agent = Agent()

        def poll(self) -> bool:
            done.append("polled")
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            return True

        def close(self) -> None:
            done.append("closed")

    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(server, "Store", Program)
    server.main(["localhost:1", "1", "127.0.0.1:0", str(tmp_path)])

    assert done == ["ready", "polled", "others lead", "closed"]


def test_what_a_store_tells_is_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that is started by hand shows it; it once died of its first leadership."""
    world.start(1)
    world.lead(1, isr=(1,))
    world.resign(1)
    for _, what, at_ns, fields in world.told:
        server.show(what, at_ns, **fields)

    assert capsys.readouterr().out.splitlines() == [
        "led topic=entries partition=0 epoch=0 fence=1000",
        "resigned topic=entries partition=0 epoch=0 fence=1000",
    ]


@pytest.mark.parametrize("wrong", ["9000", ":9000", "localhost:http", "localhost:65536"])
def test_an_address_that_is_none_is_refused(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        server.main(["localhost:1", "1", wrong, str(tmp_path)])

    assert "argument address" in capsys.readouterr().err


@pytest.mark.parametrize("broker", ["-1", "1"])
def test_a_store_that_cannot_start_says_why(
    broker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In words and without a traceback: an id that is none, an address that another process has."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if broker == "1" else 0
        with pytest.raises(SystemExit) as ended:
            server.main(["localhost:1", broker, f"127.0.0.1:{port}", str(tmp_path)])

    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert ("A broker id" if broker == "-1" else "Address already in use") in said
