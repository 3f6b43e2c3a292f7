"""The `coord` command: parse, run, and turn what went wrong into three lines and an exit code.

    0 done · 1 failed · 2 wrong usage · 3 unhealthy · 4 nothing answers

Commands import what is heavy (Kafka, DuckDB, psutil) when they are called: `coord --help` starts
at once.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

from coordlib.cli import bench, demo, groups, history, offsets, removal, sim, sql, stack, topics
from coordlib.cli.output import complain, print_json
from coordlib.errors import CannotReach, CoordError, NotReady, SetupError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNHEALTHY: Final = 3
UNREACHABLE: Final = 4
INTERRUPTED: Final = 130  # as a shell says of a program that Ctrl-C ended


def build() -> App:
    """The tree of commands."""
    app = App(
        name="coord",
        help="Group coordination on Kafka and Spark: run it, look into it, ask its history.",
        help_epilogue=(
            "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unhealthy, 4 nothing answers.\n\n"
            "Results go to stdout, everything else to stderr. With --format json stdout is one "
            "JSON object."
        ),
        help_formatter="plain",
        help_format="plaintext",
        version=_version,
        default_parameter=None,
        result_action="return_value",
    )
    app.command(stack.up, name="up")
    app.command(stack.down, name="down")
    app.command(stack.status, name="status")
    app.command(demo.demo, name="demo")
    app.command(sql.sql, name="sql")
    groups_app = App(
        name="groups", help="Consumer groups: how they stand now, and how they came to."
    )
    groups_app.command(groups.list_groups, name="list")
    groups_app.command(groups.describe, name="describe")
    groups_app.command(history.history, name="history")
    groups_app.command(groups.release, name="release")
    groups_app.command(groups.delete, name="delete")
    groups_app.command(removal.remove_members, name="remove-members")
    offsets_app = App(name="offsets", help="Committed positions of groups.")
    offsets_app.command(offsets.delete, name="delete")
    topics_app = App(name="topics", help="The engine's own topics.")
    topics_app.command(topics.create, name="create")
    topics_app.command(topics.check, name="check")
    bench_app = App(name="bench", help="Measure the engine on this machine.")
    bench_app.command(bench.settle, name="settle")
    bench_app.command(bench.load, name="load")
    bench_app.command(bench.core, name="core")
    bench_app.command(bench.hostile, name="hostile")
    bench_app.command(bench.rebuild, name="rebuild")
    log_app = App(name="log", help="Recorded histories of members.")
    log_app.command(sim.check, name="check")
    app.command(sim.sim, name="sim")
    for part in (groups_app, offsets_app, topics_app, bench_app, log_app):
        app.command(part)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader had enough: `coord sql … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    try:
        code = build()(arguments, exit_on_error=False, print_error=False)
        return code if isinstance(code, int) else OK
    except CycloptsError as problem:
        return _wrong_usage(arguments, problem)
    except CoordError as problem:
        return _failed(arguments, problem)
    except TimeoutError:
        silent = CannotReach(
            "Kafka did not answer in time",
            f"in: coord {' '.join(arguments)}",
            "Check that the brokers and their controller run, then try again.",
        )
        return _failed(arguments, silent)
    except ModuleNotFoundError as problem:
        return _failed(arguments, _not_installed(problem))


def _wrong_usage(arguments: list[str], problem: CycloptsError) -> int:
    path = " ".join(["coord", *(problem.command_chain or ())])
    error = CoordError(str(problem).strip(), f"in: coord {' '.join(arguments)}", f"Try: {path} -h")
    _tell(arguments, error)
    return USAGE


def _failed(arguments: list[str], problem: CoordError) -> int:
    _tell(arguments, problem)
    if isinstance(problem, CannotReach):
        return UNREACHABLE
    is_usage = isinstance(problem, SetupError) and not isinstance(problem, NotReady)
    return USAGE if is_usage else FAILED


def _not_installed(problem: ModuleNotFoundError) -> CoordError:
    return SetupError(
        f"{problem.name} is not installed in this Python",
        "the command needs it",
        "Run: pip install 'coordlib[cli]' — or, in a checkout, make setup",
    )


def _tell(arguments: list[str], problem: CoordError) -> None:
    """On stderr for people; for programs that asked for JSON, also as the object on stdout."""
    complain(problem.what, problem.where, problem.mend)
    if _wants_json(arguments):
        words = [word for word in arguments[:2] if not word.startswith("-")]
        error = {"what": problem.what, "where": problem.where, "mend": problem.mend}
        print_json(" ".join(words), error=error)


def _wants_json(arguments: list[str]) -> bool:
    """Also of a command line that could not be parsed."""
    if "--format" in arguments[:-1]:
        return arguments[arguments.index("--format") + 1] == "json"
    asked = os.environ.get("COORD_FORMAT") == "json"
    return "--format=json" in arguments or (asked and "--format=text" not in arguments)


def _version() -> str:
    from importlib.metadata import version

    return version("coordlib")


if __name__ == "__main__":
    sys.exit(main())
