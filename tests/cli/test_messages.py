"""What people read when they have mistyped something: words for what is wrong, and what to give."""

import re
from pathlib import Path

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import OK, USAGE
from coordlib.history.engines import VIEWS
from coordlib.history.tables import TABLES


@pytest.fixture(autouse=True)
def _no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path / ".coord"))
    monkeypatch.delenv("COORD_STACK_NAME", raising=False)


def test_an_option_that_is_missing_is_called_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """`--topics requires an argument`, said of a line that has no --topics."""
    assert main(["offsets", "delete", "g", "-b", "nowhere:1"]) == USAGE

    assert capsys.readouterr().err.splitlines()[0] == "The option --topics is missing."

    assert main(["offsets", "delete", "-b", "nowhere:1", "--topics", "t"]) == USAGE
    assert capsys.readouterr().err.splitlines()[0] == "GROUP is missing."

    assert main(["offsets", "delete", "g", "-b", "nowhere:1", "--topics"]) == USAGE
    assert "--topics" in (said := capsys.readouterr().err.splitlines()[0])
    assert "is missing" not in said


def test_words_that_are_too_many_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """`Unused Tokens: ['***']`: the group was token-x, and y looked like a secret."""
    assert main(["groups", "describe", "token-x", "y"]) == USAGE
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "The command line has 1 word more than the command takes: ***"
    assert told[2].startswith("Try: coord groups describe -h")

    assert main(["groups", "describe", "a", "b", "c"]) == USAGE
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "The command line has 2 words more than the command takes: b c"


def test_the_help_of_sql_names_every_table_and_view(capsys: pytest.CaptureFixture[str]) -> None:
    """A view that the help does not name is not found: lost_history was one."""
    assert main(["sql", "--help"]) == OK

    assert set(re.findall(r"\w+", capsys.readouterr().out)) >= {*TABLES, *VIEWS}


@pytest.mark.parametrize("given", [["--stack", "typo"], ["--stack-folder", "typo"]])
def test_no_stack_of_that_name_is_not_wiped(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that mistyped the name believed that its data was gone."""
    assert main(["down", "--wipe", "--yes", *given]) == USAGE

    told = capsys.readouterr().err
    assert len(told.splitlines()) == 3
    assert "typo" in told
