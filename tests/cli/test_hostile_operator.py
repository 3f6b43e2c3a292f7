"""Every option of every command, with values that nobody should give.

The commands and their options are read from the command tree itself, so a new option is tried as
soon as it is there. Whatever is given: the command ends by itself with an exit code and a few plain
lines, shows no secret, deletes nothing, and starts nothing that was not named.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from coordlib.cli.main.main import build, main
from coordlib.exit_codes import USAGE
from coordlib.local.jars import JarSet
from coordlib.local.stack import Stack
from tests.cli.kit import arguments_of, leaves
from tests.cli.shop import open_log
from tests.cli.tables import write_events
from tests.history.rows import a_life_of_a_group
from tests.tools import commands

SECRET = "hunter2hunter2"  # results keep shorter ones: they may be words
HUGE = 100_000
STATE = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": 4}

#: What makes a command's line complete, and as dangerous as it can be. Options under test take
#: the place of these.
BASE: dict[tuple[str, ...], list[str]] = {
    ("down",): ["--wipe", "--yes"],
    ("cluster", "create-partitions"): ["--count", "2"],
    ("cluster", "create-topic"): ["--replica-assignment", "1"],
    ("cluster", "delete"): ["--yes"],
    ("cluster", "delete-topic"): ["--yes"],
    ("cluster", "elect"): ["--unclean", "--yes"],
    ("cluster", "reassign"): ["--cancel"],
    ("cluster", "remove-broker"): ["--yes"],
    ("cluster", "unregister"): ["--yes"],
    ("groups", "delete"): ["--yes"],
    ("groups", "remove-members"): ["--all", "--yes"],
    ("offsets", "delete"): ["--yes", "--topics", "orders"],
    ("transactions", "abort"): ["--yes"],
    ("transactions", "decide"): ["--yes", "--commit", "--reason", "x"],
    ("transactions", "finish"): ["--yes"],
    ("transactions", "release"): ["--yes"],
}
#: Of these exactly one is given.
EXCLUSIVE = {"--member", "--instance", "--all"}
EXCLUSIVE |= {"--preferred", "--unclean", "--plan", "--cancel", "--commit", "--abort"}


CONTROL = {"control characters": "a\x1b[2J\x1b]0;x\x07\r\n\tb\x9b31m\u202e"}


def texts(folder: Path) -> dict[str, str]:
    """Values by what is wrong with them."""
    return CONTROL | {
        "empty": "",
        "blank": " ",
        "the parent": "..",
        "a foreign folder": str(folder / "foreign"),
        "a foreign file": str(folder / "foreign" / "thesis.txt"),
        "a way out": "../foreign",
        "a foreign address": "nonsense://nobody@nowhere:x/y?z",
        "huge": "x" * HUGE,
        "an option": "--yes",
        "a secret": f"sasl.password={SECRET}",
    }


NUMBERS = CONTROL | {
    "empty": "",
    "negative": "-1",
    "no number": "nan",
    "a huge number": "9" * HUGE,
}
CHOICES = CONTROL | {"empty": "", "a secret": f"sasl.password={SECRET}"}


def firsts() -> set[tuple[tuple[str, ...], str]]:
    """Of options that several commands take from one place, the first command."""
    found: dict[object, tuple[tuple[str, ...], str]] = {}
    for path, arguments in ARGUMENTS.items():
        for each in arguments:
            key = (each.names, str(each.hint), each.keys)
            found.setdefault(key, (path, each.names[0]))
    return set(found.values())


def is_positional(argument: Any) -> bool:
    return not argument.names[0].startswith("-")


def is_flag(argument: Any) -> bool:
    return bool in (argument.hint, *get_args(argument.hint))


def is_number(argument: Any) -> bool:
    kinds = {argument.hint, *get_args(argument.hint)}
    return bool({int, float} & kinds) and bool not in kinds


def is_choice(argument: Any) -> bool:
    return get_origin(argument.hint) is Literal


#: Those who work on coordlib have commands that start stacks, too.
TOOLS = dict(leaves(commands.build()))
ARGUMENTS = {p: arguments_of(each) for p, each in (*leaves(build()), *TOOLS.items())}
FIRSTS = firsts()
#: Options that commands take from one place are tried with every value at the first of them.
SHARED = ("empty",)


class Machine:
    """What the commands could harm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[str] = []
        #: Folders of stacks that were told to start.
        self.made: list[Path] = []
        #: What is there before the first command.
        self.before: set[str] = set()
        home = folder / "project" / ".coord" / "stacks" / "local"
        for name in ("tables/kept", "broker/segments", "state.json", "../other/state.json"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(json.dumps(STATE))
        (folder / "foreign").mkdir()
        (folder / "foreign" / "thesis.txt").write_text("years of work")
        (folder / "history.jsonl").write_text("")

    def forget_what_was_named(self, path: tuple[str, ...], given: list[str]) -> None:
        """A stack that `up` was told to start is no harm; it must be that one. Nor is upkeep of
        the tables that are named, as long as no file goes."""
        for home in self.made:
            assert path == ("up",)
            value = given[0].partition("=")[2]
            assert home.name in ("local", value) or home == Path.cwd() / value, home
            (home / "broker" / "ports.json").unlink()
            if home.name != "local":
                shutil.rmtree(home)
        self.made.clear()
        if path == ("history", "maintain"):
            for each in self.paths() - self.before:
                assert each.startswith("tables/"), each
                (self.folder / each).unlink()

    def paths(self) -> set[str]:
        """Every file but the locks."""
        found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return {each for each in found if not each.endswith("/lock")}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    project = tmp_path / "project"
    tables = tmp_path / "tables"
    write_events(a_life_of_a_group(), tables)
    app, tools = build(), commands.build()

    def start(name: str) -> Callable[..., int]:
        def record(*_: object, **__: object) -> int:
            machine.started.append(name)
            return 0

        return record

    monkeypatch.chdir(project)
    monkeypatch.setenv("COORD_HOME", str(project / ".coord"))
    monkeypatch.setenv("COORD_TABLES", str(tables))
    for name in ("COORD_STACK_NAME", "COORD_PREFIX", "COORD_BOOTSTRAP_SERVERS", "COORD_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("coordlib.cli.main.main.build", lambda: app)  # built once: it is the same
    monkeypatch.setattr("tests.tools.commands.build", lambda: tools)
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.02)

    def start_broker(stack: Stack, *_: object) -> None:
        machine.started.append("a broker")
        machine.made.append(stack.home)
        (stack.home / "broker").mkdir(exist_ok=True)
        (stack.home / "broker" / "ports.json").write_text('{"broker": 1, "controller": 2}')

    def start_both(stack: Stack, *_: object) -> None:
        stack.start_broker()
        stack.start_job()

    monkeypatch.setattr(Stack, "start_broker", start_broker)
    monkeypatch.setattr(Stack, "start_job", start("a job"))
    monkeypatch.setattr(Stack, "_start_both", start_both)
    monkeypatch.setattr("coordlib.local.stack.ensure_jars", lambda *_: JarSet((), ()))
    monkeypatch.setattr("coordlib.local.class_archive.make_in_background", lambda *_: None)
    monkeypatch.setattr("coordlib.local.stack.belonging_to", lambda *_: [])
    monkeypatch.setattr("coordlib.local.job.belonging_to", lambda *_: [])
    monkeypatch.setattr("coordlib.local.broker.belonging_to", lambda *_: [])
    for runs in ("commands.run", "commands_entities.run"):
        monkeypatch.setattr(f"tests.tools.bench.{runs}", start("a benchmark"))
    monkeypatch.setattr("coordlib.demo.run", start("a demo"))
    monkeypatch.setattr("coordlib.local.stack.find_java", lambda: None)
    monkeypatch.setattr("coordlib.local.submit.submit", start("spark-submit"))
    monkeypatch.setattr("tests.tools.simulation.campaign.campaign", _no_campaign)
    monkeypatch.setattr(subprocess, "Popen", start("a process"))
    monkeypatch.setattr("sys.stdin", None)  # whoever asks a question here would wait for ever
    return machine


def run(path: tuple[str, ...], arguments: list[str]) -> int:
    return commands.main(arguments) if path in TOOLS else main(arguments)


def _no_campaign(*_: object) -> Any:
    from tests.tools.simulation.campaign import Summary

    return Summary()


def line(path: tuple[str, ...], under_test: Any, given: list[str]) -> list[str]:
    """A command line that is complete but for the argument under test, and then that."""
    words = list(path)
    for argument in ARGUMENTS[path]:
        if is_positional(argument) and argument is not under_test and argument.required:
            words.append(_placeholder(argument))
    base = list(BASE.get(path, []))
    for name in base:
        if name in under_test.names or (name in EXCLUSIVE and EXCLUSIVE & set(under_test.names)):
            words += [each for each in base if each != name and not _is_value_of(base, name, each)]
            break
    else:
        words += base
    return words + given


def _placeholder(argument: Any) -> str:
    if argument.hint is Path:
        return "history.jsonl"
    return "1" if is_number(argument) else "x"


def _is_value_of(base: list[str], name: str, each: str) -> bool:
    after = base.index(name) + 1
    return after < len(base) and base[after] == each and not each.startswith("-")


def tries(path: tuple[str, ...], argument: Any, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """What is wrong, and how it is given."""
    name = argument.names[0]
    values = texts(folder)
    if is_number(argument):
        values = NUMBERS
    elif is_flag(argument) or is_choice(argument):
        values = CHOICES
    for what, value in values.items():
        if what in SHARED or (path, name) in FIRSTS:
            yield what, [value] if is_positional(argument) else [f"{name}={value}"]
    if not is_positional(argument) and not is_flag(argument) and (path, name) in FIRSTS:
        yield "absent", [name]


def is_refused_by_itself(argument: Any, what: str) -> bool:
    """Values that no machine can make sense of, whatever else is given."""
    name = argument.names[0]
    if is_flag(argument) or is_number(argument) or is_choice(argument) or what == "absent":
        return True
    bad = {"empty", "huge", "control characters"}
    if name == "--stack":
        return what in bad | {"blank", "the parent", "a way out", "a foreign folder", "an option"}
    if name == "--bootstrap-servers":
        return what in ("empty", "blank")
    if name in (
        "GROUP",
        "CLUSTER",
        "TRANSACTIONAL-ID",
        "KEY",
        "--member",
        "--instance",
        "--topics",
    ):
        return what in bad
    if name in ("--topic", "TOPIC"):
        return what in bad | {"blank", "the parent", "a way out", "a foreign folder", "a secret"}
    if name == "--prefix":
        return what in bad | {"blank", "a way out", "a foreign folder"}
    if name in ("--stack-folder", "--tables"):
        return what in bad | {"blank"}
    return name == "QUERY" and what in ("empty", "blank")


@pytest.mark.parametrize("path", ARGUMENTS, ids=" ".join)
def test_no_option_does_harm(
    path: tuple[str, ...], machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = machine.before = machine.paths()
    for argument in ARGUMENTS[path]:
        for what, given in tries(path, argument, machine.folder):
            machine.started.clear()
            code = run(path, line(path, argument, given))
            told = capsys.readouterr()
            case = f"{' '.join(path)} {argument.names[0]}: {what}: {code}: {told.err[:500]}"
            look_at(told, case)
            assert code in range(5), case
            if is_refused_by_itself(argument, what):
                assert code == USAGE, case
            if code == USAGE:
                assert machine.started == [], case
            machine.forget_what_was_named(path, given)
            assert machine.paths() == before, case


def look_at(told: Any, case: str) -> None:
    """A terminal may show it, and a log of somebody else may keep it."""
    text = told.out + told.err
    assert "Traceback" not in text, case
    assert SECRET not in text, case
    assert "\x1b" not in text, case
    assert all(each.isprintable() for each in text.splitlines()), case
    assert max((len(each) for each in told.err.splitlines()), default=0) < 1_200, case
    assert len(told.err.splitlines()) < 20, case


@pytest.mark.parametrize("what", ["empty", "the parent", "control characters", "a secret", "huge"])
def test_no_variable_of_the_environment_does_harm(
    what: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A unit file or a shell's start-up sets them, and nobody looks there."""
    tried = set()
    for path, arguments in ARGUMENTS.items():
        for argument in arguments:
            for variable in argument.parameter.env_var or ():
                if what != "the parent" and variable in tried:
                    continue
                tried.add(variable)
                before = machine.paths()
                with monkeypatch.context() as patch:
                    patch.setenv(variable, texts(machine.folder)[what])
                    machine.started.clear()
                    code = run(path, line(path, argument, []))
                told = capsys.readouterr()
                case = f"{variable} for {' '.join(path)}: {what}: {code}: {told.err[:500]}"
                assert code in range(5), case
                changed = machine.paths() ^ before
                if path == ("history", "maintain") and code != USAGE:
                    changed = {each for each in changed if not each.startswith("tables/")}
                if path != ("down",) or code == USAGE:
                    assert changed == set(), case
                if SECRET not in texts(machine.folder)[what]:
                    look_at(told, case)
    assert tried == {
        *("COORD_STACK_NAME", "COORD_PREFIX", "COORD_BOOTSTRAP_SERVERS"),
        *("COORD_FORMAT", "COORD_TABLES", "COORD_KAFKA_FILE", "COORD_CLAIMS_TOPIC"),
    }


#: Commands that ask the coordinator itself to change something.
ASKING = [path for path in ARGUMENTS if path in BASE and path != ("down",)]
ASKING += [("groups", "release")]


@pytest.mark.parametrize("path", ASKING, ids=" ".join)
def test_no_name_does_harm_at_the_coordinator(
    path: tuple[str, ...],
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same over the real core: it refuses, or finds nobody of that name, and answers."""
    with open_log(monkeypatch):
        for argument in ARGUMENTS[path]:
            if is_flag(argument) or argument.keys:
                continue
            for what, value in texts(machine.folder).items():
                if what == "an option":
                    continue
                given = [value] if is_positional(argument) else [f"{argument.names[0]}={value}"]
                code = run(path, [*line(path, argument, given), "-b", "nowhere:1"])
                told = capsys.readouterr()
                case = f"{' '.join(path)} {argument.names[0]}: {what}: {code}: {told.err[:500]}"
                look_at(told, case)
                assert code in range(5), case


@pytest.mark.parametrize(
    "given",
    [
        ["down", "--wipe", "--yes", "--stack", ".."],
        ["sql", "x" * HUGE],
        ["groups", "describe", "a\x1b[2J", "--kafka", f"sasl.password={SECRET}", "more"],
    ],
    ids=["a foreign folder", "huge", "control characters and a secret"],
)
def test_the_process_itself_ends_well(given: list[str], tmp_path: Path) -> None:
    """As a shell starts it, with everything that Python prints on its own."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "thesis.txt").write_text("years of work")
    told = subprocess.run(
        [sys.executable, "-m", "coordlib.cli.main.main", *given],
        env={"COORD_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    look_at(
        type("Told", (), {"out": told.stdout, "err": told.stderr}),
        f"{told.returncode}: {told.stderr[:500]}",
    )
    assert told.returncode in (1, 2, 4)
    assert (tmp_path / "thesis.txt").exists()
