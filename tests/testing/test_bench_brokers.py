"""The figures of clusters: what is timed is the work that it says."""

import json
import threading
from collections.abc import Iterator

import pytest

from coordlib.testing.fake_log import FakeLog
from tests.tools.bench import brokers_light
from tests.tools.bench.brokers import Bench, chosen, topics_of
from tests.tools.bench.brokers_core import Fleet
from tests.tools.bench.brokers_terms import Terms
from tests.tools.bench.stand import Stand
from tests.tools.commands import main

T0, T1 = ("t", 0), ("t", 1)


def test_the_cluster_is_at_rest_when_it_is_measured() -> None:
    """Otherwise the figure would be of partitions without leaders, or of refusals."""
    fleet = Fleet(brokers=4, partitions=1_200, replicas=3)
    rows = fleet.rows()

    assert len(rows) == 1_200
    assert {row.leader for row in rows.values()} == set(range(4))
    assert {len(row.isr) for row in rows.values()} == {3}
    assert fleet.fold([fleet.heartbeat(1)]).outputs[0].topic == "responses"


def test_without_a_second_replica_nobody_can_be_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A death would leave partitions without a leader for good; no stack is started for it."""
    assert main(["bench", "brokers", "--replicas", "1"]) != 0
    assert "Say --replicas 2" in capsys.readouterr().err


def test_figures_of_a_small_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON lines: the machine, the blob, an idle batch, deaths, changes of ISRs, heartbeats."""
    options = ["--brokers", "6", "--partitions", "60", "--replicas", "3", "--repeats", "1"]

    assert main(["bench", "brokers", "--core", *options]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {(line["what"], line.get("dead")): line for line in lines}
    assert found["deaths", 1]["rows"] == 30
    assert found["deaths", 2]["rows"] > 30
    assert found["alter partition", None]["rows"] == 6
    assert found["heartbeats per s", None]["share"] > 0


# -- on a stack ---------------------------------------------------------------------------------


def test_a_partition_pauses_from_letting_go_until_the_next_leader_was_told() -> None:
    """Both are told in other threads; what was told late, of an older epoch, is no news."""
    now = iter([1.0, 2.0, 5.0, 5.25, 9.0])
    terms = Terms(now_s=lambda: next(now))
    terms.leads(1, T0, 0)
    terms.leads(1, T1, 0)
    terms.resigned([T0])
    terms.leads(2, T0, 1)
    terms.leads(1, T0, 0)

    assert terms.pauses_s == [0.25]
    assert (terms.leader(T0), terms.led_by(1)) == (2, [T1])
    assert terms.left([T0, T1], 1) == [T1]
    assert terms.took_s([T0], 5.0) == [0.25]


def test_topics_have_all_partitions_and_other_brokers_stop_than_are_killed() -> None:
    made = list(topics_of(2_500, 3))

    assert [each.partitions for each in made] == [1_000, 1_000, 500]
    assert chosen(20, 3) == ([0, 1, 2], [3, 4, 5])
    assert chosen(4, 3) == ([0, 1, 2], [3, 0, 1])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Four brokers over the real core in memory, whose time goes ten times as fast."""
    monkeypatch.setattr(brokers_light, "SLICES_OF_ALL", 3)
    log, is_over = FakeLog({}), threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.01):
            log.advance(100, step_ms=100)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    stand = Stand({}, "coord", None)
    made = Bench(stand, [log.transport()], {"brokers": 4, "partitions": 12, "replicas": 3})
    try:
        made.begin()
        yield made
    finally:
        made.close()
        is_over.set()
        thread.join()


def test_all_partitions_of_the_dead_and_of_who_stops_are_led_by_others(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is timed is the work: a partition that nobody has lost would be quick to lead again."""
    bench.kills([0])
    bench.shutdowns([1])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {line["what"]: line for line in lines}

    assert found["kill"]["partitions_moved"] == 3
    assert found["kill"]["led_again_s"]["p100"] > 0
    assert found["isr"]["rows"] == 9
    assert found["shutdown"]["partitions_moved"] >= 3
    assert found["shutdown"]["pause_s"]["p50"] < found["shutdown"]["shutdown_s"]["p50"]
