"""The light clients of the load bench: what their libraries tell, as rates."""

import json
from typing import Any

from tests.tools.bench.clients import Statistics, json_name


def told(name: str, at_s: float, received: int, **requests: int) -> str:
    return json.dumps(
        {"name": name, "ts": at_s * 1e6, "rx_bytes": received, "brokers": {"b": {"req": requests}}}
    )


def test_what_was_before_the_measurement_does_not_count() -> None:
    """A client that starts asks for metadata and reads a backlog."""
    statistics = Statistics()
    lines = [told("c1", 5, 900, Fetch=9), told("c1", 10, 1_000, Fetch=10)]
    lines += [told("c1", 20, 3_000, Fetch=60, ListOffsets=20)]
    statistics.take(lines[0], json_name(lines[0]))
    statistics.begin()
    for line in lines[1:]:
        statistics.take(line, json_name(line))
    assert statistics.per_second() == {"bytes": 200.0, "Fetch": 5.0, "ListOffsets": 2.0}


def test_all_handles_of_all_clients_are_added() -> None:
    statistics, names = Statistics(), ("c1", "a1", "c2")
    statistics.begin()
    for at_s in (0, 10):
        for name in names:
            line: Any = told(name, at_s, at_s * 100, Fetch=at_s)
            statistics.take(line, json_name(line))
    assert statistics.per_second() == {"bytes": 300.0, "Fetch": 3.0}
