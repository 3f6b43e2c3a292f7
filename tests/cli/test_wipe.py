"""`coord down --wipe` deletes what a stack has made, and nothing else, whatever it is given.

Once it took any path for a stack: `coord down --wipe --stack ..` in a project deleted every stack
and the jars, and a slip in a script deleted the folder that it ran in.
"""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.local import stack_folder
from coordlib.local.processes import environment_of
from tests.cli.kit import Cli, at_a_terminal

STATE = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": 4, "broker": None}


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`.coord/stacks`; the current folder is beside it."""
    project = tmp_path / "project"
    (project / ".coord" / "stacks").mkdir(parents=True)
    monkeypatch.setenv("COORD_HOME", str(project / ".coord"))
    monkeypatch.delenv("COORD_STACK_NAME", raising=False)
    monkeypatch.chdir(project)
    return project / ".coord" / "stacks"


def stack_in(home: Path, *more: str) -> Path:
    """What a stack leaves when it was stopped."""
    for name in (
        "broker/segments/x.log",
        "checkpoint/offsets/0",
        "checkpoint-claims/offsets/0",
        "tables/events/f",
        "job.json",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    for name in more:
        (home / name).write_text("mine")
    (home / "state.json").write_text(json.dumps(STATE))
    return home


def everything(root: Path) -> dict[str, str]:
    """Every path below, with what it is: nothing was touched if it stays the same."""
    return {str(path.relative_to(root)): _what(path) for path in root.rglob("*")}


def _what(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "folder" if path.is_dir() else path.read_text()


def test_a_stack_is_wiped_whole(stacks: Path, cli: Cli) -> None:
    home, other = stack_in(stacks / "mine"), stack_in(stacks / "other")

    said = cli("down --wipe --yes --stack mine").err
    assert not home.exists()
    assert other.is_dir()
    assert f"Deleted {home}" in said


def test_without_wipe_everything_stays(stacks: Path, cli: Cli) -> None:
    home = stack_in(stacks / "mine")
    before = everything(home)

    cli("down --stack mine")

    assert everything(home) | {"lock": ""} == before | {"lock": ""}


def test_what_no_stack_makes_is_left_and_named(stacks: Path, cli: Cli) -> None:
    """Somebody kept notes in the stack's folder."""
    home = stack_in(stacks / "mine", "notes.txt")

    said = cli("down --wipe --yes --stack mine").err
    assert everything(home) == {"notes.txt": "mine"}
    assert "left there: notes.txt" in said


def test_a_folder_elsewhere_is_named_as_a_folder(stacks: Path, tmp_path: Path, cli: Cli) -> None:
    home = stack_in(tmp_path / "disk" / "stack")

    cli("down --wipe --yes --stack-folder", str(home))
    assert not home.exists()
    assert home.parent.is_dir()


def test_a_link_in_a_stack_is_removed_and_not_followed(
    stacks: Path, tmp_path: Path, cli: Cli
) -> None:
    """The tables were moved to another disk, with a link in their place."""
    home = stack_in(stacks / "mine")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "events").write_text("rows")
    (home / "history.jsonl").symlink_to(tmp_path / "disk" / "events")
    (home / "witnesses").symlink_to(tmp_path / "disk")

    cli("down --wipe --yes --stack mine")

    assert not home.exists()
    assert everything(tmp_path / "disk") == {"events": "rows"}


FOREIGN = {
    "a name that is a path": ["--stack", "{folder}"],
    "the current folder": ["--stack", "./"],
    "a dot": ["--stack", "."],
    "all stacks": ["--stack", ""],
    "two dots": ["--stack", ".."],
    "an option as a name": ["--stack=-rf"],
    "a way out": ["--stack", "../../folder"],
    "a folder": ["--stack-folder", "{folder}"],
    "the current folder as a folder": ["--stack-folder", "."],
    "the parent as a folder": ["--stack-folder", ".."],
    "no folder": ["--stack-folder", ""],
    "the folder of all stacks": ["--stack-folder", "{stacks}"],
    "a link to a stack": ["--stack-folder", "{link}"],
    "a link to a stack with a slash": ["--stack-folder", "{link}/"],
    "a link among the stacks": ["--stack", "linked"],
    "a file": ["--stack-folder", "{folder}/thesis.txt"],
    "a file among the stacks": ["--stack", "demo.lock"],
    "a folder with a state of another tool": ["--stack-folder", "{other}"],
    "a folder with a link for a state": ["--stack-folder", "{faked}"],
    "a name and a folder": ["--stack", "mine", "--stack-folder", "{folder}"],
    "a name with a line in it": ["--stack", "mine\n"],
    "a long name": ["--stack", "m" * 101],
}


@pytest.mark.parametrize("given", FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_stack_survives(
    stacks: Path, tmp_path: Path, given: list[str], cli: Cli
) -> None:
    """`--yes` is said: only what the folder is may save it."""
    mine = stack_in(stacks / "mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state.json").write_text('{"version": 4, "serial": 1}')
    (tmp_path / "faked").mkdir()
    (tmp_path / "faked" / "state.json").symlink_to(mine / "state.json")
    (tmp_path / "link").symlink_to(mine)
    (stacks / "linked").symlink_to(mine)
    (stacks / "demo.lock").write_text("")
    places = {name: str(tmp_path / name) for name in ("folder", "other", "faked", "link")} | {
        "stacks": str(stacks)
    }
    before = everything(tmp_path)

    cli.error("down --wipe --yes", *(word.format(**places) for word in given))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["", "..", "/", ".", "a/b"])
def test_the_environment_names_no_other_folders_either(
    stacks: Path, name: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    stack_in(stacks / "mine")
    before = everything(stacks.parent)
    monkeypatch.setenv("COORD_STACK_NAME", name)

    cli("down --wipe --yes", code=USAGE)
    assert everything(stacks.parent) == before


def test_a_name_of_the_environment_gives_way_to_a_folder(
    stacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("COORD_STACK_NAME", "mine")
    mine, other = stack_in(stacks / "mine"), stack_in(tmp_path / "other")

    cli("down --wipe --yes --stack-folder", str(other))
    assert (mine.exists(), other.exists()) == (True, False)


def test_in_a_pipe_nothing_is_wiped_without_a_word(stacks: Path, cli: Cli) -> None:
    home = stack_in(stacks / "mine")
    before = everything(home)

    assert cli.error("down --wipe --stack mine")[-1].endswith("Say --yes if it is meant.")
    assert everything(home) == before


@pytest.mark.parametrize(("typed", "code", "is_left"), [("y\n", OK, False), ("\n", FAILED, True)])
def test_on_a_terminal_it_asks(
    stacks: Path, typed: str, code: int, is_left: bool, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    at_a_terminal(monkeypatch, typed)
    home = stack_in(stacks / "mine")

    cli("down --wipe --stack mine", code=code)
    assert home.exists() == is_left


def test_wiping_nothing_is_no_error_and_asks_nobody(stacks: Path, cli: Cli) -> None:
    """`make down WIPE=1` before the first start."""
    cli("down --wipe")


@pytest.mark.parametrize("option", ["--stack", "--stack-folder"])
def test_no_stack_of_that_name_is_not_wiped(stacks: Path, option: str, cli: Cli) -> None:
    """A script that mistyped the name believed that its data was gone."""
    assert "typo" in "\n".join(cli.error("down --wipe --yes", option, "typo"))


def test_a_wipe_that_was_cut_short_goes_on(stacks: Path, cli: Cli) -> None:
    """Ctrl-C while a large folder was deleted: what is left is still known to be a stack's."""
    home = stack_in(stacks / "mine")
    stack_folder._remove(home / "broker")
    stack_folder._remove(home / "tables")

    cli("down --wipe --yes --stack mine")
    assert not home.exists()


@pytest.mark.parametrize("given", [["--stack", ".."], ["--stack-folder", "{folder}"]])
def test_no_stack_is_started_in_a_foreign_folder(
    stacks: Path, tmp_path: Path, given: list[str], cli: Cli
) -> None:
    """It would leave its files among others."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    before = everything(tmp_path)

    said = cli("up", *(word.format(folder=tmp_path / "folder") for word in given), code=USAGE).err
    assert everything(tmp_path) == before
    assert "Starting" not in said


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of another program, whose names are those that a stack gives its own."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    for name in ("tables/t.csv", "logs/year.log", "checkpoint/model"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("years of work")
    return folder


@pytest.mark.parametrize(("command", "code"), [("down", OK), ("down --wipe --yes", USAGE)])
def test_a_folder_with_our_names_and_no_state_is_not_touched(
    theirs: Path, command: str, code: int, cli: Cli
) -> None:
    """A slip in --stack-folder. `tables` and `logs` are anybody's names: it once became a stack."""
    before = everything(theirs)

    told = cli(command, "--stack-folder", str(theirs), code=code).err
    assert everything(theirs) == before
    assert theirs.stat().st_mode & 0o777 == 0o755
    assert "There is no stack in" in told or "This is no folder of a stack" in told


@pytest.mark.parametrize("role", ["broker", "job"])
def test_a_stack_whose_folder_was_deleted_is_ended_all_the_same(
    tmp_path: Path, role: str, cli: Cli
) -> None:
    """`rm -rf` in place of `down --wipe`: broker and job ran on, and nothing named them."""
    folder = tmp_path / "gone"
    left = subprocess.Popen(["sleep", "600"], env=environment_of(folder, role))

    said = cli("down --stack-folder", str(folder)).err
    assert left.wait(60) == -signal.SIGKILL
    assert f"ended pid {left.pid}" in said
    assert not folder.exists()


def test_no_stack_is_started_among_files_of_our_names(theirs: Path, cli: Cli) -> None:
    """`up` would have made them a stack's, and a later `down --wipe` deleted them."""
    before = everything(theirs)

    cli("up --stack-folder", str(theirs), code=USAGE)

    assert everything(theirs) == before
    assert theirs.stat().st_mode & 0o777 == 0o755


def test_what_a_first_start_left_is_a_stack(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The network was away when the stack was started for the first time."""

    def without_network(*_: object) -> None:
        raise SetupError("No jars.", "this machine", "Try again.")

    monkeypatch.setattr("coordlib.local.stack.ensure_jars", without_network)

    assert "No jars" in cli("up --stack mine", code=USAGE).err
    assert stack_folder.read_state(stacks / "mine")
    cli("down --wipe --yes --stack mine")
    assert not (stacks / "mine").exists()


def test_without_java_nothing_is_left(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """It is asked for before anything is written."""

    def without_java() -> None:
        raise SetupError("No Java.", "this machine", "Install it.")

    monkeypatch.setattr("coordlib.local.stack.find_java", without_java)

    assert "No Java" in cli("up --stack mine", code=USAGE).err
    assert not (stacks / "mine").exists()


def test_a_start_that_was_killed_at_once_can_be_repeated(tmp_path: Path) -> None:
    """Killed between its first file and `state.json`."""
    home = tmp_path / "stack"
    home.mkdir()
    for name in ("lock", "state.json.new"):
        (home / name).write_text("")

    stack_folder.make(home)
    assert not stack_folder.holds_stack(home)


def test_a_disk_that_is_full_does_not_make_a_stack_unknown(
    stacks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is written at every start; half of it would be nobody's."""
    home = stack_in(stacks / "mine")

    def no_space(path: Path, text: str) -> None:
        path.write_bytes(b"{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_space)
    with pytest.raises(OSError, match="No space"):
        stack_folder.write_state(home, STATE)

    assert stack_folder.read_state(home) == STATE


def test_only_this_user_can_enter_a_stack(tmp_path: Path) -> None:
    """Member ids, offsets' metadata and logs lie in it. Also where the folder was there."""
    home = tmp_path / "stack"
    home.mkdir(mode=0o755)

    stack_folder.make(home)
    assert home.stat().st_mode & 0o777 == 0o700
