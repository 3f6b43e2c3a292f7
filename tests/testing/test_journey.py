"""How far one request travels through the coordinator: the numbers are printed, and do not grow."""

import re

import pytest

from tests.tools import journey

#: Files and changes of file: a little above what they are.
CEILINGS = {"heartbeat": (25, 74), "join": (36, 148), "commit": (33, 142)}


@pytest.mark.parametrize("name", journey.JOURNEYS)
def test_a_journey_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader wants to know where a request goes, and whether that is too far."""
    journey.main([name])

    said = capsys.readouterr().out
    passed = re.findall(r"^ +\d+  (\S+\.py)$", said, re.MULTILINE)
    counts = dict(re.findall(r"^  (files|changes|calls) +(\d+)", said, re.MULTILINE))
    assert passed[0] == "streaming/operator.py"
    assert "coordinators/shard/shard.py" in passed
    assert int(counts["files"]) == len(passed) == len(set(passed))
    assert int(counts["files"]) <= int(counts["changes"]) < int(counts["calls"])
    aims = journey.JOURNEYS[name]
    assert re.findall(r"aim (\d+)$", said, re.MULTILINE) == [
        str(aims.files_aim),
        str(aims.changes_aim),
    ]


@pytest.mark.parametrize("name", journey.JOURNEYS)
def test_a_journey_does_not_grow(name: str) -> None:
    """Each small module is a good idea by itself; together they hide the way."""
    found = journey.trace(name)

    files, changes = CEILINGS[name]
    assert (len(found.files) <= files, found.changes <= changes) == (True, True), journey.report(
        name
    )


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("heartbeat", "coordinators/groups/classic/heartbeat.py"),
        ("join", "coordinators/groups/classic/rebalance.py"),
        ("commit", "coordinators/groups/offsets/offset_commit.py"),
    ],
)
def test_the_request_is_judged_and_not_refused_on_the_way(name: str, file: str) -> None:
    """A group in another state than meant would make the journey short, and the number a lie."""
    assert file in journey.trace(name).files


def test_a_journey_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error."""
    with pytest.raises(SystemExit):
        journey.main(["leave"])

    assert "leave: there is heartbeat, join, commit" in capsys.readouterr().err
