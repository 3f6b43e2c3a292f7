"""What reaches a terminal or a program."""

import json
from datetime import UTC, datetime

import pytest

from coordlib.cli.output import duration_text, print_json, print_table, visible


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("", "-"),
        (0, "0"),
        (True, "true"),
        ("größe", "größe"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202etxt", "\\u202etxt"),
        ("a\u200bb", "a\\u200bb"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00.000Z"),
    ],
)
def test_nothing_from_the_log_acts_on_a_terminal(value: object, shown: str) -> None:
    """A group may be named to clear the screen, or to read backwards."""
    assert visible(value) == shown


def test_columns_are_aligned_and_nothing_trails(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "LAG"), [("payments", 7), ("a", None)])

    assert capsys.readouterr().out == "GROUP     LAG\npayments  7\na         -\n"


def test_json_is_one_object_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("x", datetime(2026, 3, 1, tzinfo=UTC), group="\x9bé", at=[datetime.now(UTC).date()])

    out = capsys.readouterr().out
    assert out.isascii()
    assert out.count("\n") == 1
    assert json.loads(out)["group"] == "\x9bé"
    assert json.loads(out)["as_of_time"] == "2026-03-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("ms", "shown"), [(None, None), (0, "0.0s"), (2900, "2.9s"), (190_000, "3m10s")]
)
def test_durations_read_at_a_glance(ms: int | None, shown: str | None) -> None:
    assert duration_text(ms) == shown
