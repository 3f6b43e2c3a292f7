"""The `coord` command: parse, run, and turn what went wrong into three lines and an exit code.

Hardly anything is imported before `main` runs, so that Ctrl-C is an exit code from the beginning.
Commands import what is heavy (Kafka, DuckDB, psutil) when they are called: `coord --help` starts at
once.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coordlib import exit_codes

if TYPE_CHECKING:
    from cyclopts import App

    from coordlib.errors import CoordError


def main(arguments: Sequence[str] | None = None, tree: "Callable[[], App] | None" = None) -> int:
    """Entry point; returns the exit code. `tree`: other commands than those of `coord`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by whoever started it: `coord status >&-`
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        code = _run(given, tree or build)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader had enough: `coord sql … | head`
        _drop_output()
        return exit_codes.FAILED
    except OSError as problem:  # a full disk: nor can it take the error as JSON
        from coordlib.cli.kit.output import say

        _drop_output()
        say(str(problem.strerror or problem))
        return exit_codes.FAILED
    except KeyboardInterrupt:
        if arguments is None:
            _end_at_once()
        return exit_codes.INTERRUPTED


def build() -> "App":
    """The tree of commands."""
    from coordlib.cli.main.commands import build as build_commands

    return build_commands()


def _run(arguments: list[str], tree: "Callable[[], App]") -> int:
    # Of clients of object stores, which log to stderr whatever credentials they do not find.
    os.environ.setdefault("RUST_LOG", "error")
    from coordlib.errors import CannotReach, CoordError

    try:
        from cyclopts import CycloptsError
    except ModuleNotFoundError as problem:  # installed without the extra: there is no tree at all
        from coordlib.cli.kit.output import complain

        missing = _not_installed(problem)
        complain(missing.what, missing.where, missing.hint)
        return exit_codes.USAGE
    _hide_secrets(arguments)
    app = tree()
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
        return code if isinstance(code, int) else exit_codes.OK
    except CycloptsError as problem:
        return _failed(app, arguments, _wrong_usage(app, arguments, problem))
    except CoordError as problem:
        return _failed(app, arguments, problem)
    except TimeoutError:
        silent = CannotReach(
            "Kafka did not answer in time.",
            f"in: {_shown(app, arguments)}",
            "Check that the brokers and their controller run, then try again.",
        )
        return _failed(app, arguments, silent)
    except ModuleNotFoundError as problem:
        return _failed(app, arguments, _not_installed(problem))
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        where = f"{problem.filename or ''} in: {_shown(app, arguments)}".strip()
        return _failed(app, arguments, CoordError(problem.strerror or str(problem), where))


def _wrong_usage(app: "App", arguments: list[str], problem: Any) -> "CoordError":
    from coordlib.errors import SetupError

    path = " ".join([*app.name, *(problem.command_chain or ())])
    return SetupError(_in_words(problem), f"in: {_shown(app, arguments)}", f"Try: {path} -h")


def _in_words(problem: Any) -> str:
    """What is wrong with a command line, where cyclopts says it in words of its own."""
    from cyclopts import MissingArgumentError, UnusedCliTokensError

    from coordlib.cli.kit.output import counted

    if isinstance(problem, UnusedCliTokensError):
        words = problem.unused_tokens or []
        count = counted(len(words), "word")
        return f"The command line has {count} more than the command takes: {' '.join(words)}"
    argument = problem.argument if isinstance(problem, MissingArgumentError) else None
    if argument is not None and problem.keyword is None and not argument.tokens:
        name = argument.name
        return f"{'The option ' if name.startswith('-') else ''}{name} is missing."
    return str(problem).strip()


def _failed(app: "App", arguments: list[str], problem: "CoordError") -> int:
    _tell(app, arguments, problem)
    return exit_codes.of_command(problem)


def _not_installed(problem: ModuleNotFoundError) -> "CoordError":
    from coordlib.errors import SetupError
    from coordlib.installation import how_to_install

    return SetupError(
        f"{problem.name} is not installed in this Python.",
        "the command needs it",
        how_to_install("cli"),
    )


def _tell(app: "App", arguments: list[str], problem: "CoordError") -> None:
    """On stderr for people; for programs that asked for JSON, also as the object on stdout."""
    from coordlib.cli.kit.output import complain, error_fields, print_json

    complain(problem.what, problem.where, problem.hint)
    if _wants_json(arguments):
        print_json(" ".join(_command(app, arguments)) or "coord", error=error_fields(problem))


def _shown(app: "App", arguments: list[str]) -> str:
    from coordlib.redaction import redacted

    return " ".join([*app.name, *redacted(arguments)])


def _hide_secrets(arguments: list[str]) -> None:
    """Keep them out of what is printed, and warn of those that everybody can see already."""
    from coordlib.cli.kit.output import hide, say
    from coordlib.redaction import in_clear, secrets_of, warning_of

    seen = in_clear(arguments)
    hide(in_errors=secrets_of(arguments), in_results=seen.values())
    for name in seen:
        say(warning_of(name))


def _command(app: "App", arguments: list[str]) -> tuple[str, ...]:
    """The words that name the command, as far as there is such a one."""
    return app.parse_commands(arguments)[0]


def _wants_json(arguments: list[str]) -> bool:
    """Also of a command line that could not be parsed."""
    if "--format" in arguments[:-1]:
        return arguments[arguments.index("--format") + 1] == "json"
    asked = os.environ.get("COORD_FORMAT") == "json"
    return "--format=json" in arguments or (asked and "--format=text" not in arguments)


def _drop_output() -> None:
    """What is left of it would be an error again, at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_at_once() -> None:
    """A thread may be in a library that cannot be ended: the interpreter would wait for it, or
    crash beside it, and an impatient user's next Ctrl-C would print where."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_codes.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
