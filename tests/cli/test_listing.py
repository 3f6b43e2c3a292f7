"""What all lists of commands share: tables and JSON from one list of columns, marks before states,
and how far the job had come. Tests of the nouns show their columns alone."""

from datetime import UTC, datetime
from typing import Any

import pytest

from coordlib.cli.kit.listing import (
    QUARANTINED,
    UNREADABLE,
    AsOf,
    Column,
    Listing,
    as_of_fields,
    as_of_text,
    mark_of,
    of_rows,
    say_unreadable,
    state_text,
)
from coordlib.cli.kit.options import states_named
from coordlib.cli.kit.output import duration_text
from coordlib.errors import SetupError

PEOPLE: Listing[dict[str, Any]] = Listing(
    Column("NAME", lambda each: each["name"]),
    Column("OPEN-FOR", lambda each: each["ms"], duration_text),
    Column("SIGN-AGE", lambda each: each["ms"], duration_text, is_in_json=False),
    Column("SHARE", lambda each: each["share"]),
    fields=lambda each: {"started": 7, "name": each["name"].upper()},
)
ROWS = [
    {"name": "billing", "ms": 190_000, "share": float("nan")},
    {"name": "\x1b[2J", "ms": None, "share": [1, 2]},
]


def test_people_get_texts_and_programs_get_values(capsys: pytest.CaptureFixture[str]) -> None:
    """A duration is in milliseconds for programs, whose keys are the headers in small letters; a
    column may be for people alone, and a field for programs, which may replace a column's value."""
    PEOPLE.print(ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "NAME     OPEN-FOR  SIGN-AGE  SHARE",
        "billing  3m10s     3m10s     nan",
        "\\x1b[2J  -         -         [1, 2]",
    ]
    first, second = PEOPLE.objects(ROWS)
    assert first == {"name": "BILLING", "open-for": 190_000, "share": "nan", "started": 7}
    assert second == {"name": "\x1b[2J", "open-for": None, "share": [1, 2], "started": 7}
    assert PEOPLE.head(ROWS[0]) | {"SHARE": 0} == {
        "NAME": "billing", "OPEN-FOR": "3m10s", "SIGN-AGE": "3m10s", "SHARE": 0,
    }  # fmt: skip


def test_an_empty_list_has_its_headers(capsys: pytest.CaptureFixture[str]) -> None:
    PEOPLE.print([])
    assert capsys.readouterr().out == "NAME  OPEN-FOR  SIGN-AGE  SHARE\n"
    assert PEOPLE.objects([]) == []


def test_rows_of_an_answer_need_no_columns_of_their_own() -> None:
    listing = of_rows("TIME", "OPEN-FOR", OPEN_FOR=duration_text)

    assert listing.row((1, 2_900)) == (1, "2.9s")
    assert listing.fields((1, 2_900)) == {"time": 1, "open-for": 2_900}


@pytest.mark.parametrize(
    ("state", "is_quarantined", "unreadable", "mark", "text"),
    [
        ("Stable", False, None, None, "Stable"),
        ("Stable", True, None, QUARANTINED, "Quarantined(Stable)"),
        ("Stable", False, "version 2", UNREADABLE, "Unreadable(Stable)"),
        ("Stable", True, "version 2", UNREADABLE, "Unreadable(Stable)"),
        (None, True, None, QUARANTINED, "Quarantined"),
        (None, False, "version 2", UNREADABLE, "Unreadable"),
        (None, False, None, None, None),
    ],
)
def test_what_an_operator_must_see_first_stands_first(
    state: str | None, is_quarantined: bool, unreadable: str | None, mark: str, text: str
) -> None:
    """`--state` takes the mark like a state."""
    assert mark_of(is_quarantined, unreadable) == mark
    assert state_text(state, is_quarantined, unreadable) == text


def test_what_newer_code_wrote_is_named_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    say_unreadable("readable", None)
    say_unreadable("a\x1b", "kind sh\x1b, version 2")
    assert capsys.readouterr().err == (
        "a\\x1b cannot be read by this version of coord: kind sh\\x1b, version 2. Install the "
        "version that the job has.\n"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], set()),
        (["stable"], {"Stable"}),
        (["EMPTY,stable"], {"Empty", "Stable"}),
        (["Empty", "quarantined"], {"Empty", "Quarantined"}),
    ],
)
def test_states_are_taken_in_whatever_letters(given: list[str], expected: set[str]) -> None:
    assert states_named(given, ("Stable", "Empty", "Quarantined"), "a group") == expected


@pytest.mark.parametrize("given", ["Idle", "Stable,", "Stable,Idle", ""])
def test_a_state_that_is_none_is_refused_with_those_that_are(given: str) -> None:
    """An empty list would read as: none is in it."""
    with pytest.raises(SetupError, match="is no state of a group") as refused:
        states_named([given], ("Stable", "Empty"), "a group")
    assert refused.value.hint == "One of: Stable, Empty"


@pytest.mark.parametrize(
    ("as_of", "text"),
    [
        (None, "2026-03-01T12:00:00.000Z, before the first batch of the job"),
        (AsOf(41, 1_772_409_590_000, 0), "r3-41 at 2026-03-01T23:59:50.000Z"),
        (
            AsOf(41, 1_772_409_590_000, 1),
            "r3-41 at 2026-03-01T23:59:50.000Z, 1 record not read yet",
        ),
        (
            AsOf(41, 1_772_409_590_000, 2),
            "r3-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet",
        ),
    ],
)
def test_a_view_is_one_of_the_log_up_to_a_request(as_of: AsOf | None, text: str) -> None:
    assert as_of_text(as_of, 3, datetime(2026, 3, 1, 12, tzinfo=UTC)) == text
    fields = as_of_fields(as_of)
    assert [*fields] == ["as_of_offset", "as_of_log_time", "waiting"]
    assert (fields["as_of_offset"] is None) == (as_of is None)
