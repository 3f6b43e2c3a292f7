"""The strategies' figures: what is timed is the work that it says."""

import json

import pytest

from coordlib.core.groups.assignors.registry import BUILT_IN
from tests.tools.bench import strategies
from tests.tools.bench.expressions import run_expression, run_group
from tests.tools.bench.strategies import Size, run, run_joins


@pytest.mark.parametrize("strategy", sorted(BUILT_IN))
def test_a_size_is_measured_from_the_first_division_to_one_that_left(
    strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each division is checked to be total, so that no figure is of less work than it says."""
    run(Size("small", 5, 4, 3, is_mixed=True, capacity_max=3), strategy, repeats=2)

    told = json.loads(capsys.readouterr().out)
    assert (told["what"], told["strategy"], told["partitions"]) == ("small", strategy, 12)
    assert told["one_joined_ms"]["best"] <= told["one_joined_ms"]["worst"]
    assert told["one_left_ms"].keys() == {"best", "median", "worst", "median_wall"}


def test_a_batch_of_joins_is_one_division_each(capsys: pytest.CaptureFixture[str]) -> None:
    run_joins(Size("small", 5, 2, 4), "sticky", joins=3)

    told = json.loads(capsys.readouterr().out)
    assert (told["what"], told["joins"]) == ("small-joins", 3)
    assert told["each_ms"]["worst"] >= told["each_ms"]["median"] > 0
    assert told["all_ms"] >= told["each_ms"]["best"] + told["each_ms"]["worst"] - 0.1


def test_an_expression_says_what_it_matched(capsys: pytest.CaptureFixture[str]) -> None:
    run_expression("strategies", r"team-7\..*", names=100, repeats=2)

    told = json.loads(capsys.readouterr().out)
    assert (told["topics"], told["matched"]) == (100, 2)


def test_a_group_of_expressions_is_measured_while_it_divides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half of 40 topics are wanted, one wanted topic more is made, and one that nobody wants."""
    run_group("strategies", members=5, known=40, repeats=2)

    told = json.loads(capsys.readouterr().out)
    assert (told["expressions"], told["topics"], told["divided"]) == (6, 40, 25)
    for step in ("first_division", "next_join", "topic_created", "unwanted_topic_created"):
        assert told[f"{step}_ms"]["worst"] >= told[f"{step}_ms"]["best"] > 0


def test_a_size_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error must not measure everything for minutes."""
    assert strategies.main(["huge"]) == 2
    assert "'huge' is no size; there are one-topic, " in capsys.readouterr().err
