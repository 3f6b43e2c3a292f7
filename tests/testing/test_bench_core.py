"""The core's figures: what is timed is the work that it says, and percentiles are seen values."""

import pytest

from coordlib.exit_codes import OK, USAGE
from tests.tools import commands
from tests.tools.bench import commands as bench
from tests.tools.bench.core import (
    SETTINGS,
    Group,
    commit_time,
    heartbeat_rate,
    rebalance_time,
    refusal_rate,
    settled,
)
from tests.tools.bench.figures import percentile, spread
from tests.tools.core import Shard


def test_each_number_of_a_list_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one was rounded."""
    ran: list[dict[str, object]] = []
    monkeypatch.setattr(bench, "run", lambda _, **options: ran.append(options) or OK)
    assert commands.main(["bench", "core", "--batch", "10", "--batch", "20"]) == OK
    assert commands.main(["bench", "core", "--batch", "10", "--batch", "1.5"]) == USAGE
    assert [each["batches"] for each in ran] == [(10, 20)]


def test_a_percentile_is_a_value_that_was_seen() -> None:
    """An interpolated p99 of 20 joins would be a time that no join took."""
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.8, 0.9, 1.0)] == [1, 3, 4, 5, 5]


def test_one_value_is_every_percentile() -> None:
    assert spread([0.25], 0.5, 0.9, 0.99) == {"p50": 0.25, "p90": 0.25, "p99": 0.25}


def test_no_values_are_told_as_such() -> None:
    """A side whose every join timed out must not look like a fast one."""
    assert spread([], 0.5) == {"p50": None}
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_joins_of_a_flood_are_refused_one_by_one() -> None:
    """Otherwise the figure would be of joins that fill the group; history has but the first."""
    found = refusal_rate(batch=300, repeats=2)

    assert found["refused_per_s"] > 0
    assert 300 < found["outputs"] < 2 * 300
    assert found["bytes_each"] > 100


def test_the_shard_under_heartbeats_is_stable() -> None:
    """Otherwise the figure would be of refusals."""
    groups, _, blob = settled(groups=3, members=2)
    shard = Shard(blob, SETTINGS)
    assert len(groups) == 3
    for cell in shard.groups.values():
        assert cell.value is not None
        assert (cell.value.state, len(cell.value.members)) == ("Stable", 2)
        assert cell.facts.fast_path_generation == 2


def test_heartbeats_are_counted_also_in_batches_larger_than_the_groups() -> None:
    found = heartbeat_rate(groups=2, members=2, batch=10, repeats=2)
    assert found["heartbeats_per_s"] > 0
    assert found["best_per_s"] >= found["heartbeats_per_s"]


@pytest.mark.parametrize("members", [2, 3, 7])
def test_a_rebalance_gives_everybody_a_share(members: int) -> None:
    """The timing itself asserts it: as many assignments as members."""
    assert rebalance_time(members, repeats=1)["median_ms"] > 0


def test_member_ids_follow_from_where_the_joins_stand() -> None:
    """The generator of the load knows them before any answer."""
    groups, _, blob = settled(groups=2, members=3)
    cells = Shard(blob, SETTINGS).groups
    for group in groups:
        cell = cells[group.name].value
        assert isinstance(group, Group)
        assert cell is not None
        assert sorted(cell.members) == sorted(group.ids)


def test_the_commits_that_are_timed_are_taken() -> None:
    """Otherwise the figure would be of refusals."""
    assert commit_time(members=2, partitions=10, repeats=1).keys() == {
        "round_ms",
        "one_commit_ms",
        "heartbeats_of_all_ms",
    }
