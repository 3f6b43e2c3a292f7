"""What `--help` prints is read on a terminal, one line for each command and option."""

import re

import pytest

from coordlib.cli.main.commands import HELP_WIDTH_MAX
from coordlib.history.engines import VIEWS
from coordlib.history.tables import TABLES
from tests.cli.kit import Cli, leaves, tree

#: The words of every command, those with commands of their own included.
COMMANDS = {path[:at]: None for path, _ in leaves(tree()) for at in range(len(path) + 1)}
LINES_MAX = 2
_DECORATIONS = re.compile(r" \[(?:required|choices:|env var:|default:)[^\]]*\]")
_SECTION = re.compile(r"^(?:Commands|Arguments|Parameters|Members):$")


def help_of(command: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(HELP_WIDTH_MAX))
    return cli(*command, "--help").out


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
    command: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paragraph beside an option hides the options below it."""
    found = entries(help_of(command, cli, monkeypatch))

    for name, lines in found.items():
        assert len(lines) <= LINES_MAX, name
        text = _DECORATIONS.sub("", " ".join(line.strip() for line in lines))
        assert text.endswith("."), text
        assert ". " not in text.partition(": ")[2], text


def test_entries_are_seen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that finds nothing may be blind."""
    assert {"groups", "up", "--help, -h"} <= entries(help_of((), cli, monkeypatch)).keys()

    found = entries(help_of(("groups", "remove-members"), cli, monkeypatch))
    assert {"GROUP", "--member STR...", "--format CHOICE"} <= found.keys()
    assert ("groups", "remove-members") in COMMANDS


def test_the_help_of_sql_names_every_table_and_view(cli: Cli) -> None:
    """A view that the help does not name is not found: lost_history was one."""
    assert set(re.findall(r"\w+", cli("sql --help").out)) >= {*TABLES, *VIEWS}


ONE_OF = {
    ("transactions", "decide"): "(--commit | --abort)",
    ("groups", "remove-members"): "(--member ID... | --instance ID... | --all)",
    ("cluster", "elect"): "(--preferred | --unclean)",
    ("cluster", "reassign"): "(--plan FILE | --cancel)",
    ("claims", "set-position"): "(--to-earliest | --to-latest | --to-datetime TIME | --shift-by N",
}


@pytest.mark.parametrize("command", ONE_OF, ids=" ".join)
def test_options_of_which_one_is_needed_are_in_the_usage_line(
    command: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copied the usage line of `decide` was refused. The line names what it did before."""
    text = help_of(command, cli, monkeypatch)
    usage = " ".join(text.partition("\n\n")[0].split())

    assert usage.startswith(f"Usage: coord {' '.join(command)} {ONE_OF[command]}")
    required = [name for name in entries(text) if "[required]" in " ".join(entries(text)[name])]
    assert all(name in usage for name in required)


@pytest.mark.parametrize(
    ("command", "explained"),
    [
        (("claims", "list"), "SIGN-AGE: time since"),
        (("claims", "list"), "m0-12: partition 0 of the coordination topic, offset 12"),
        (("claims", "describe"), "SIGN-AGE: time since"),
        (("groups", "describe"), "r0-42: shard 0 of the requests topic, offset 42"),
        (("transactions", "describe"), "r0-42: shard 0 of the requests topic, offset 42"),
        (("transactions", "pending"), "r0-42: shard 0 of the requests topic, offset 42"),
        (("transactions", "list"), "`coord transactions pending` shows their offsets"),
    ],
)
def test_what_a_column_and_a_coordinate_mean_is_in_the_help(
    command: tuple[str, ...], explained: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explained in " ".join(help_of(command, cli, monkeypatch).split())
