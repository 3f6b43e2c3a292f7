"""What `--help` prints is read on a terminal, one line for each command and option."""

import re
from collections.abc import Iterator

import pytest
from cyclopts import App

from coordlib.cli.main.commands import HELP_WIDTH_MAX, build
from coordlib.cli.main.main import main
from coordlib.exit_codes import OK


def tree(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, those with commands of their own included."""
    yield path
    for name in app:
        if not name.startswith("-"):
            yield from tree(app[name], (*path, name))


COMMANDS = list(tree(build()))
LINES_MAX = 2
_DECORATIONS = re.compile(r" \[(?:required|choices:|env var:|default:)[^\]]*\]")
_SECTION = re.compile(r"^(?:Commands|Arguments|Parameters|Members):$")


def help_of(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setenv("COLUMNS", str(HELP_WIDTH_MAX))
    assert main([*command, "--help"]) == OK
    return capsys.readouterr().out


def entries(text: str) -> dict[str, list[str]]:
    """The lines of each command and option, by its names."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    is_listing = False
    for line in text.splitlines():
        if not line.startswith(" "):
            is_listing, lines = bool(_SECTION.match(line)), None
        elif is_listing and (entry := re.match(r"  (\S.*?): ", line)):
            lines = found.setdefault(entry[1], [line])
        elif is_listing and lines is not None:
            lines.append(line)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_entry_is_one_sentence_on_two_lines_at_most(
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A paragraph beside an option hides the options below it."""
    found = entries(help_of(command, capsys, monkeypatch))

    for name, lines in found.items():
        assert len(lines) <= LINES_MAX, name
        text = _DECORATIONS.sub("", " ".join(line.strip() for line in lines))
        assert text.endswith("."), text
        assert ". " not in text.partition(": ")[2], text


def test_entries_are_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that finds nothing may be blind."""
    assert {"groups", "up", "--help, -h"} <= entries(help_of((), capsys, monkeypatch)).keys()

    found = entries(help_of(("groups", "remove-members"), capsys, monkeypatch))
    assert {"GROUP", "--member STR...", "--format CHOICE"} <= found.keys()
    assert ("groups", "remove-members") in COMMANDS
