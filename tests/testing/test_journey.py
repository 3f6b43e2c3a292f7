"""How far a request travels through coordinator and client: printed, and never further."""

import re
from collections.abc import Callable

import pytest

from tests.tools import journey
from tests.tools.journey import Cost

#: Whole, and inside one record: a little above what they are.
CEILINGS = {
    "heartbeat": (Cost(11, 26), Cost(7, 10)),
    "commit": (Cost(15, 58), Cost(11, 42)),
    "join": (Cost(17, 70), Cost(12, 51)),
    "client": (Cost(9, 200), None),
}


def test_journeys_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader wants to know where a request goes, and whether that is too far."""
    journey.main([])

    said = capsys.readouterr().out
    ways = {part.split(":")[0]: part for part in said.split("\n\n")}
    for name, each in journey.JOURNEYS.items():
        passed = re.findall(r"^ +\d+  [ *] (\S+\.py)$", ways[name], re.MULTILINE)
        row = re.search(rf"^{name} +(\d+) / (\d+) +(\d+) / (\d+)$", said, re.MULTILINE)
        assert row is not None
        files, changes, *aim = map(int, row.groups())
        assert files == len(passed) == len(set(passed)) <= changes
        assert Cost(*aim) == each.aim
        if each.record_aim is not None:
            assert passed[0] == "job/batch.py"
            assert f"{name}, inside one record" in said
            assert "   *" not in ways[name].split("\n")[1], "a batch begins outside of records"


@pytest.mark.parametrize("name", journey.JOURNEYS)
def test_a_journey_does_not_grow(name: str) -> None:
    """Each small module is a good idea by itself; together they hide the way."""
    found = journey.trace(name)

    for what, ceiling in zip((found.whole, found.record), CEILINGS[name], strict=True):
        cost = None if what is None else what.cost
        assert (cost is None) == (ceiling is None)
        if cost is not None and ceiling is not None:
            is_short = cost.files <= ceiling.files and cost.changes <= ceiling.changes
            assert is_short, journey.report({name: found})


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("heartbeat", "core/groups/classic/members.py"),
        ("commit", "core/groups/offsets/commit.py"),
        ("join", "core/groups/classic/rebalance.py"),
    ],
)
def test_the_request_is_judged_and_not_refused_on_the_way(name: str, file: str) -> None:
    """A group in another state than meant would make the journey short, and the number a lie."""
    found = journey.trace(name)

    assert found.record is not None
    assert file in found.record.files
    assert "job/batch.py" in {*found.whole.files} - {*found.record.files}


def test_the_way_of_the_client_is_gone_to_its_end() -> None:
    """It divides the partitions as leader, so both sides of a join are in it."""
    assert "client/groups/assignors.py" in journey.trace("client").whole.files


def test_comprehensions_are_no_calls() -> None:
    """Python 3.12 inlines them: the number must not depend on who counts."""
    code = "def numbers():\n    return [n for n in range(3)], {*(n for n in range(3))}\n"
    names: dict[str, Callable[[], object]] = {}
    exec(compile(code, journey._ROOT / "numbers.py", "exec"), names)

    assert journey._traced(names["numbers"]).whole.calls == ["numbers.py"]


def test_a_journey_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error."""
    with pytest.raises(SystemExit):
        journey.main(["leave"])

    assert "leave: there is heartbeat, commit, join, client" in capsys.readouterr().err
