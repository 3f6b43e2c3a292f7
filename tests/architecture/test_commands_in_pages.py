"""Commands in the pages: each is there, and has the options that the page names."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError, UnknownCommandError, UnknownOptionError

from coordlib.cli.main.commands import build as coord
from coordlib.errors import SetupError
from tests.architecture.test_pages import PAGES
from tests.architecture.test_tidy import name_of
from tests.tools.commands import build as tools

_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}(.*\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?"
    r"(?:coord|python -m tests\.tools\.(?P<tool>sim|bench))\s(?P<rest>.+)"
)
#: What ends a command on a line, or says that the page leaves something out.
_ENDS = {"|", ">", "2>", "&", "&&", ";", "…"}
#: A remark of the page stands so far behind the command.
_REMARK = re.compile(r"\s{3,}")


def named(text: str) -> Iterator[tuple[str, list[str]]]:
    """(`coord`, `sim` or `bench`, its words) of each command in a page."""
    fenced = [line for block in _FENCED.findall(text) for line in _one_per_line(block)]
    rest = _FENCED.sub("", text)
    inline = [" ".join(code.split()) for code in _INLINE.findall(rest)]
    for line in [*fenced, *_one_per_line("\n".join(_INDENTED.findall(rest))), *inline]:
        if found := _COMMAND.fullmatch(line.strip()):
            yield found["tool"] or "coord", _words(_REMARK.split(found["rest"])[0])


def _one_per_line(block: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", block).splitlines()


def _words(line: str) -> list[str]:
    if line.count('"') % 2:  # a query that goes on over several lines
        line = line[: line.index('"')] + "QUERY"
    words = shlex.split(line, comments=True)
    end = next((n for n, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def fault(tool: str, words: list[str]) -> str | None:
    """What is wrong with a command; values may be placeholders, and some may be left out."""
    app, before = (coord(), []) if tool == "coord" else (tools(), [tool])
    try:
        app.parse_args([*before, *words], exit_on_error=False, print_error=False)
    except (UnknownCommandError, UnknownOptionError) as problem:
        return f"{' '.join(words)}: {problem}"
    except (CycloptsError, SetupError):
        return None
    return None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("`coord groups list --stack demo`", False),
        ("`coord groups\nlist --no-such`", True),
        ("```\n$ coord no-such | head\n```\n", True),
        ("    coord groups list \\\n      --no-such\n", True),
        ("`python -m tests.tools.bench settle --no-such`", True),
        ('```sh\ncoord sql --no-such "select 1,\n```', True),
        ("`coord` is a command; `coord_x --no-such` is none", False),
    ],
)
def test_a_wrong_command_is_seen(line: str, expected: bool) -> None:
    """A check that finds nothing may be blind."""
    assert any(fault(*each) for each in named(line)) is expected


@pytest.mark.parametrize("page", [p for p in PAGES if [*named(p.read_text())]], ids=name_of)
def test_commands_are_as_the_page_says(page: Path) -> None:
    """An option got another name; somebody copies the old one out of the page, at night."""
    assert [problem for each in named(page.read_text()) if (problem := fault(*each))] == []
