"""What follows from each request in each state of a group, effect for effect (`by_state`)."""

from pathlib import Path

import pytest

from tests.tools import by_state
from tests.tools.by_state import GROUPS, SETTINGS

FILES = by_state.files()


def name_of(path: Path) -> str:
    return str(path.relative_to(GROUPS.parent).with_suffix(""))


@pytest.mark.parametrize(
    ("path", "state"),
    [(path, state) for path in FILES for state in SETTINGS[path.parent].states],
    ids=lambda value: name_of(value) if isinstance(value, Path) else value,
)
def test_what_follows_from_a_request_in_a_state(path: Path, state: str) -> None:
    """Nothing more and nothing less: who owes nothing is told nothing, refusals disturb nobody."""
    table = by_state.read(path)

    assert by_state.said_in(SETTINGS[path.parent], state, table.command) == table.lines[state]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_why_and_names_all_states(path: Path) -> None:
    """A state that nobody looked at; a table that nobody knows the reason of."""
    table = by_state.read(path)

    assert table.prose
    assert table.lines.keys() == SETTINGS[path.parent].states.keys()


def test_every_file_is_run() -> None:
    """A table that nobody reads would lie in peace."""
    there = [path for path in GROUPS.parent.rglob("*.txt") if "by_state" in path.parts]

    assert sorted(there) == sorted(FILES)


def test_a_wrong_line_is_found(tmp_path: Path) -> None:
    """A check that finds nothing may be blind: one line less, one more, one other."""
    path = GROUPS / "classic/by_state/dynamic/leader-syncs.txt"
    said = by_state.said_in(SETTINGS[path.parent], "Completing", by_state.read(path).command)
    text = path.read_text()
    for wrong in (
        text.replace(f"{said[0]}\n", ""),
        text.replace(f"{said[0]}\n", f"{said[0]}\nnotify RebalanceInProgress generation=2\n"),
        text.replace(said[0], said[0].replace("p0", "p1")),
    ):
        (tmp_path / "wrong.txt").write_text(wrong)

        assert wrong != text
        assert by_state.read(tmp_path / "wrong.txt").lines["Completing"] != said


@pytest.mark.parametrize(
    "text",
    [
        "# No command.\n----\n[absent]\n",
        "a heartbeat\nb heartbeat\n----\n[absent]\n",
        "a join\n",
        "a join\n----\n[absent]\n[Empty absent]\n",
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    """A second command that is never run; a state of which only the last table counts."""
    (tmp_path / "bad.txt").write_text(text)

    with pytest.raises(ValueError, match=r"bad\.txt"):
        by_state.read(tmp_path / "bad.txt")


def test_files_are_rewritten_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """The tool that writes the tables writes what the test reads, in one form."""
    assert by_state.main([]) == 0
    assert capsys.readouterr().out == ""
