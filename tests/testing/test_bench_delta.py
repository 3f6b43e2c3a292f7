"""The figures of batches that a Delta table decides: each batch is timed by its own commit."""

import json

from tests.tools.bench.delta_batches import Batches, added


def committed(batches: Batches, group: str, offset: int, now_s: float) -> None:
    value = {"offset": offset, "leader_epoch": -1, "metadata": "", "commit_ms": 1}
    batches.committed(json.dumps([group, "t", 0]).encode(), json.dumps(value).encode(), now_s)


def test_a_batch_is_claimed_by_the_position_behind_it() -> None:
    """Two words of one group may be judged in one batch of the job, and groups come mixed."""
    batches = Batches(records=100)
    for group in ("a", "b"):
        for number in range(2):
            assert batches.read(group, 1.0 + number) == number
            batches.written(group, number, 1.5 + number)
    committed(batches, "a", 200, 3.0)
    committed(batches, "a", 100, 3.0)
    committed(batches, "b", 100, 2.25)

    found = batches.written_between(0.0, 4.0)
    assert found["batches"] == 4
    assert found["commits_per_s"] == 1.0
    assert found["written_s"] == {"p50": 0.5, "p99": 0.5, "p100": 0.5}
    assert found["claimed_s"] == {"p50": 1.25, "p99": 2.0, "p100": 2.0}
    assert found["not_claimed"] == 1


def test_what_was_written_before_or_is_of_others_does_not_count() -> None:
    """The first batches are slow; other groups commit whatever they like."""
    batches = Batches(records=100)
    batches.written("a", batches.read("a", 1.0), 9.0)
    batches.written("a", batches.read("a", 9.0), 9.5)
    committed(batches, "other", 101, 9.5)
    batches.committed(b"not JSON", None, 9.5)

    found = batches.written_between(9.25, 10.25)
    assert (found["batches"], found["not_claimed"]) == (1, 1)


def test_what_the_unit_adds_is_of_medians() -> None:
    once, plain = {"written_s": {"p50": 0.9}}, {"written_s": {"p50": 0.4}}

    assert added(once, plain) == 0.5
    assert added(once, {"written_s": {"p50": None}}) is None
