"""What reaches a terminal or a program."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coordlib.cli.kit.output import (
    complain,
    duration_text,
    hide,
    json_text,
    print_json,
    print_line,
    print_table,
    say,
    visible,
)


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


def test_names_in_sentences_act_on_no_terminal_either(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables showed them as escapes; `Group … has no members.` did not."""
    name = "billing\u202egnillib\ufeff\x9b"

    say(f"Group {name} has no members.")
    print_line(f"größe {name}")

    shown = capsys.readouterr()
    assert shown.err == "Group billing\\u202egnillib\\ufeff\\x9b has no members.\n"
    assert shown.out == "größe billing\\u202egnillib\\ufeff\\x9b\n"


def test_columns_are_aligned_and_nothing_trails(capsys: pytest.CaptureFixture[str]) -> None:
    """`cut` and `awk` read them, and trailing blanks make noise in a diff."""
    print_table(("GROUP", "LAG"), [("payments", 7), ("a", None)])

    assert capsys.readouterr().out == "GROUP     LAG\npayments  7\na         -\n"


def test_json_is_one_object_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads one line, and a terminal acts on nothing in it."""
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
    """Nobody divides milliseconds in the head at night."""
    assert duration_text(ms) == shown


@pytest.fixture
def hidden() -> Iterator[None]:
    """Secrets of one command line, of which the short ones are words that results have, too."""
    secrets = ["1", "coord", "true", "0000", 'hunter"2é-and-more']
    hide(in_errors=secrets, in_results=secrets)
    yield
    hide(in_errors=(), in_results=())


@pytest.mark.usefixtures("hidden")
def test_a_short_secret_changes_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    """`-X sasl.password=1` printed `"_version": ***`, which no program can read."""
    fields = {"ok": True, "lag": 1, "prefix": "coord", "t": "1", "nested": [{"a": "true"}]}
    print_json("x", datetime(2026, 3, 1, tzinfo=UTC), **fields)
    print_table(("A", "B"), [("coord", 1)])
    say("1 group of coord")

    told = capsys.readouterr()
    first, _, table = told.out.partition("\n")
    envelope = {"_command": "x", "_version": 1, "as_of_time": "2026-03-01T00:00:00.000Z"}
    assert json.loads(first) == envelope | fields
    assert table.splitlines()[1] == "coord  1"
    assert told.err == "1 group of coord\n"


@pytest.mark.usefixtures("hidden")
def test_a_long_secret_stands_in_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    """A member may send its password as its name; quotes and umlauts are escaped in JSON."""
    secret = 'hunter"2é-and-more'
    print_json("x", None, found=[{"a": f"as {secret}.", "b": (secret, Path(secret))}])
    print(json_text({"line": secret}))
    print_table(("A",), [(secret,)])

    first, second, *table = capsys.readouterr().out.splitlines()
    assert json.loads(first)["found"] == [{"a": "as ***.", "b": ["***", "***"]}]
    assert json.loads(second) == {"line": "***"}
    assert table == ["A", "***"]


@pytest.mark.usefixtures("hidden")
def test_a_short_secret_stands_in_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """An error may repeat what was typed, and goes into logs of others."""
    complain("No 0000", "at 0000", "Give another than 0000.")

    assert "0000" not in capsys.readouterr().err
