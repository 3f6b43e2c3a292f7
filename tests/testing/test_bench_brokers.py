"""The figures of clusters: what is timed is the work that it says."""

import json

import pytest

from tests.tools.bench.brokers_core import Fleet
from tests.tools.commands import main


def test_the_cluster_is_at_rest_when_it_is_measured() -> None:
    """Otherwise the figure would be of partitions without leaders, or of refusals."""
    fleet = Fleet(brokers=4, partitions=1_200, replicas=3)
    rows = fleet.rows()

    assert len(rows) == 1_200
    assert {row.leader for row in rows.values()} == set(range(4))
    assert {len(row.isr) for row in rows.values()} == {3}
    assert fleet.fold([fleet.heartbeat(1)]).outputs[0].topic == "responses"


def test_what_is_not_measured_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --core there is nothing yet; no figure is better than a wrong one."""
    assert main(["bench", "brokers"]) != 0
    assert "Say --core" in capsys.readouterr().err


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
