"""Where the command's output goes is not always a terminal or a pipe with a patient reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordlib.exit_codes import FAILED, OK, USAGE

RUN = "import sys; from coordlib.cli.main.main import main; sys.exit(main())"
TABLE = """
import sys
from coordlib.cli.main.main import main
from coordlib.cli.main.commands import empty
from coordlib.cli.kit.output import print_json, print_table

def tree():
    app = empty("coord", "")
    @app.command
    def show(*, format: str = "text"):
        if format == "json":
            print_json("show", name="billing")
        else:
            print_table(["NAME", "TÉ€"], [["müller", "5 €"]])
    return app

sys.exit(main(None, tree))
"""


def run(code: str, *words: str, **options: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, stderr=subprocess.PIPE, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("charset", "told"),
    [
        ("utf-8", "NAME    TÉ€\nmüller  5 €\n"),
        ("latin-1", "NAME    TÉ\\u20ac\nmüller  5 \\u20ac\n"),
        ("ascii", "NAME       T\\xc9\\u20ac\nm\\xfcller  5 \\u20ac\n"),
    ],
)
def test_what_a_terminal_has_no_letter_for_is_shown_as_an_escape(charset: str, told: str) -> None:
    """The locale of a server is de_DE.ISO-8859-1, and a group's name has a euro sign: the command
    ended with a stack trace."""
    environment = os.environ | {"PYTHONIOENCODING": charset}
    shown = run(TABLE, "show", stdout=subprocess.PIPE, env=environment)

    assert (shown.returncode, shown.stderr) == (OK, b"")
    assert shown.stdout.decode(charset) == told


@pytest.mark.parametrize("words", [(), ("--format", "json")])
def test_a_full_disk_is_told_in_words(words: tuple[str, ...]) -> None:
    """A nightly `coord status --format json > status.json`: no room for the error as JSON."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        shown = run(TABLE, "show", *words, stdout=full)
    finally:
        os.close(full)

    assert shown.returncode == FAILED
    assert b"No space left on device" in shown.stderr
    assert b"Traceback" not in shown.stderr


def test_stdout_may_be_closed() -> None:
    """`coord status >&-`, as in a script that wants the exit code alone."""
    shown = run(TABLE, "show", preexec_fn=lambda: os.close(1))

    assert (shown.returncode, shown.stderr) == (OK, b"")


def test_query_that_is_no_text_is_wrong_usage(tmp_path: Path) -> None:
    """Pasted from a file in another charset."""
    shown = run(RUN, "sql", os.fsdecode(b"select '\xfc'"), "--tables", str(tmp_path))

    assert shown.returncode == USAGE
    assert shown.stderr.startswith(b"This query is no text")
