"""What is tried of thousands of small changes, and how what became of them is counted."""

from tests.tools.mutation import module_of, report, sample

AGENDA = "coordlib.core.engine.rows.xǁAgendaǁnote__mutmut_"
COMMIT = "coordlib.core.groups.offsets.commit.x_judge__mutmut_"


def test_every_nth_change_is_tried_always_the_same() -> None:
    names = [f"{AGENDA}{n}" for n in range(10)] + [f"{COMMIT}{n}" for n in range(10)]

    assert sample(reversed(names), "*", 6) == [names[0], names[6], names[12], names[18]]
    assert sample(names, "*.offsets.*", 5) == [names[10], names[15]]


def test_a_module_is_named_as_people_name_it() -> None:
    assert module_of(f"{AGENDA}1") == "engine.rows"
    assert module_of(f"{COMMIT}1") == "groups.offsets.commit"


def test_what_was_not_tried_counts_neither_way_and_is_told() -> None:
    """An interrupted run must not look like a better one."""
    codes: dict[str, int | None] = {
        f"{AGENDA}1": 1,
        f"{AGENDA}2": 0,
        f"{AGENDA}3": None,
        f"{COMMIT}1": 36,
        f"{COMMIT}2": -9,
    }
    tried = [*codes, f"{COMMIT}9"]

    assert report(tried, codes).splitlines() == [
        "   1 of    2  engine.rows",
        "   1 of    1  groups.offsets.commit",
        "   2 of    3  all",
        "",
        f"survived: {AGENDA}2",
        f"not tried: {AGENDA}3",
        f"not tried: {COMMIT}2",
        f"not tried: {COMMIT}9",
    ]
