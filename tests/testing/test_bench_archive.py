"""The archive benchmark: the second half of the turns counts, and each way is what it says."""

import pytest

from coordlib.history import archive, delta_table
from tests.tools.bench.archive import WAYS, Plan, summary
from tests.tools.bench.archive_job import by_writer, way_of


def test_a_way_is_told_by_the_second_half_of_its_turns() -> None:
    """The first ones compile the JVM's way, for whoever comes first."""
    took = {"now": (9.0, 1.0, 0.5, 0.7), "lookup": (8.0, 3.0, 2.0, 4.0)}
    found = [
        {"way": way, "turn": number, "took_s": seconds, "jvm_s": 2 * seconds}
        for way, its in took.items()
        for number, seconds in enumerate(its, 1)
    ]

    assert summary(found, turns=4) == [
        {"way": "now", "first_s": 9.0, "took_s": 0.6, "worst_s": 0.7, "jvm_s": 1.2, "turns": 2},
        {"way": "lookup", "first_s": 8.0, "took_s": 3.0, "worst_s": 4.0, "jvm_s": 6.0, "turns": 2},
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_in_force_for_its_turn_alone(way: str) -> None:
    before = delta_table.append, archive.INTERPRETED_MAX
    with way_of(way):
        assert (delta_table.append is by_writer) == (way == "lookup")
        assert (archive.INTERPRETED_MAX == 0) == (way == "codegen")
    assert (delta_table.append, archive.INTERPRETED_MAX) == before


def test_the_job_is_told_its_plan_as_text() -> None:
    import msgspec

    from tests.tools.bench.archive import read

    plan = Plan(ways=["now"], turns=2, events=79, commits=27, told="file")
    assert read(msgspec.json.encode(plan).decode()) == plan
