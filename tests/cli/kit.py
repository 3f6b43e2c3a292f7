"""Commands as somebody runs them: what they print, how they end, and whom they ask."""

import functools
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from cyclopts import App

from coordlib.cli.main.main import build, main
from coordlib.exit_codes import OK, USAGE

tree = functools.cache(build)
"""Built once: to build it takes longer than most commands."""


def leaves(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command that does something, with the words that name it."""
    if app.default_command:
        yield path, app
    for name in app:
        if not name.startswith("-"):
            yield from leaves(app[name], (*path, name))


def arguments_of(command: App) -> list[Any]:
    """Its positional arguments and options."""
    found = command.assemble_argument_collection(parse_docstring=False)
    return [argument for argument in found if not argument.children]


@dataclass(frozen=True)
class Printed:
    """What one command has printed."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Of the result."""
        return self.out.splitlines()

    @property
    def said(self) -> list[str]:
        """Lines of stderr."""
        return self.err.splitlines()

    def __iter__(self) -> Iterator[Any]:
        """Lines of the result, and what was said."""
        return iter((self.lines, self.err))

    @property
    def rows(self) -> list[list[str]]:
        """The words of the result's lines."""
        return [line.split() for line in self.lines]

    @property
    def shown(self) -> str:
        """All of it, as on a terminal; lines of stderr are marked."""
        return self.out + "".join(f"2> {line}\n" for line in self.said)


class Cli:
    """Runs commands in this process. The first of a command's words may be several.

    Args:
        noun: what each command begins with.
        where: options that each command gets behind its own.
    """

    def __init__(
        self, capsys: pytest.CaptureFixture[str], *noun: str, where: Sequence[str] = ()
    ) -> None:
        self._capsys, self._noun, self.where = capsys, noun, where

    def run(self, *words: str) -> tuple[int, Printed]:
        """The exit code, and what was printed meanwhile."""
        self._capsys.readouterr()
        first, *others = words
        given = [*self._noun, *first.split(" "), *others, *self.where]
        # A tree that has printed help keeps the width of that terminal.
        code = main(given, build if "--help" in given else tree)
        return code, Printed(*self._capsys.readouterr())

    def __call__(self, *words: str, code: int = OK) -> Printed:
        """Run a command that ends with this code."""
        found, printed = self.run(*words)
        assert found == code, printed
        return printed

    def json(self, *words: str, code: int = OK) -> dict[str, Any]:
        """The one object that the command prints for programs."""
        (line,) = self(*words, "--format", "json", code=code).lines
        found: dict[str, Any] = json.loads(line)
        return found

    def error(self, *words: str, code: int = USAGE) -> list[str]:
        """What is wrong, where, and what to do: three lines, and no result."""
        printed = self(*words, code=code)
        assert (printed.out, len(printed.said)) == ("", 3), printed
        return printed.said


class Terminal(io.StringIO):
    """Somebody sits at it, and types this text."""

    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
