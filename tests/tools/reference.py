"""The reference pages' parts that the site makes from the code: a hook of mkdocs (conf/mkdocs.yml).

A page has an intro and marker lines, such as `<!-- from the code: commands -->`; each is replaced
by what the part of that name returns; `fields of coordlib.client.Timing` is the table of a class's
fields. An unknown name ends the build.
"""

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

from cyclopts.docs.markdown import generate_markdown_docs
from mkdocs.exceptions import PluginError

from coordlib import errors, exit_codes, limits
from coordlib.installation import settings_file

MARKER: Final = re.compile(r"^<!-- from the code: (.*?) -->$", re.MULTILINE)
#: An option that so many commands have is explained once.
COMMON_FROM: Final = 10
_OPTION: Final = re.compile(r"^\* `(--.*?)`: .*(?:\n    .*)*\n", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs for each page."""
    return filled(markdown, page.file.src_path)


def filled(markdown: str, where: str) -> str:
    """The page with its parts in place of their markers. Raises PluginError."""

    def part(marker: re.Match[str]) -> str:
        name, _, of = marker[1].partition(" of ")
        if of and name == "fields":
            return fields_of(of)
        if marker[1] not in PARTS:
            raise PluginError(f"{where}: no part {marker[1]!r}; there are {', '.join(PARTS)}.")
        return PARTS[marker[1]]()

    return MARKER.sub(part, markdown)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*head], ["---"] * len([*head]), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines) + "\n"


def _cell(value: object) -> str:
    """One line; a `<` outside of backticks begins no tag."""
    parts = " ".join(str(value).replace("|", "\\|").split()).split("`")
    return "`".join(p if n % 2 else p.replace("<", "&lt;") for n, p in enumerate(parts))


def commands() -> str:
    """Every command of `coord`, by cyclopts; options of nearly all commands come first, once."""
    from coordlib.cli.main.commands import build

    text = generate_markdown_docs(
        build(),
        heading_level=2,
        max_heading_level=4,
        generate_toc=False,
        no_root_title=True,
        skip_preamble=True,
    )
    text = text.replace("coord submit submit", "coord submit")  # the command has a usage of its own
    count = Counter(each[0] for each in _OPTION.finditer(text + "\n"))
    common = {option for option, times in count.items() if times >= COMMON_FROM}
    names = {option: _OPTION.match(option)[1].split()[0].strip(",") for option in common}  # type: ignore[index]
    parts = []
    for part in re.split(r"^(?=#)", text + "\n", flags=re.MULTILINE):
        has = [names[each[0]] for each in _OPTION.finditer(part) if each[0] in common]
        part = _OPTION.sub(lambda each: "" if each[0] in common else each[0], part)
        if has:
            options = ", ".join(f"`{name}`" for name in has)
            part = f"{part.rstrip()}\n* {options}: [common options](#common-options)\n\n"
        parts.append(part)
    head = "## Common options\n\n" + "".join(sorted(common, key=names.__getitem__))
    return f"{head}\n{''.join(parts).replace('**Commands**:', '## Commands', 1)}"


def jobs() -> str:
    """The arguments of the jobs that `coord submit` launches, by their parsers."""
    from coordlib.job.main.archive import archive_parser
    from coordlib.job.main.arguments import claims_parser, coordinate_parser

    parts = []
    for parser in (coordinate_parser(), archive_parser(), claims_parser()):
        rows = []
        for each in parser._actions:
            if each.dest != "help":
                name = f"{each.option_strings[0]} {each.metavar or ''}".strip()
                about = (each.help or "").replace(str(settings_file()), "the one that is shipped")
                about = about.replace("%(default)s", f"default: {each.default}")
                rows.append((f"`{name}`", "yes" if each.required else "", about))
        parts.append(f"### {parser.prog}\n\n{table(('argument', 'required', 'meaning'), rows)}")
    return "\n".join(parts)


def codes() -> str:
    rows = [
        (f"`{each.name}`", each.code, "yes" if each.retriable else "", each.what_to_do)
        for each in errors.ErrorCode
    ]
    return table(("error", "number", "retriable", "what to do"), rows)


def exceptions() -> str:
    """The exceptions of coordlib.errors, each below its base, with the exit codes they lead to."""
    rows = []

    def add(each: type[errors.CoordError], base: str) -> None:
        one = each(errors.ErrorCode.NONE) if each is errors.GroupError else each("")
        ends = exit_codes.of_command(one), exit_codes.of_job(one)
        rows.append((f"`{each.__name__}`", base, *ends, inspect.getdoc(each)))
        for child in each.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, f"`{each.__name__}`")

    add(errors.CoordError, "`Exception`")
    return table(("exception", "is a", "ends a command", "ends a job", "raised because"), rows)


def settings() -> str:
    """The sections of coordinator.toml: the comments above a key say what it means."""
    parts: list[str] = []
    rows: list[tuple[str, str, str]] = []
    comment: list[str] = []
    for line in [*settings_file().read_text().splitlines(), "[]"]:
        if line.startswith("["):
            if rows:
                parts.append(table(("setting", "default", "meaning"), rows))
            if line != "[]":
                parts.append(f"### {line}\n")
            rows, comment = [], []
        elif line.startswith("#"):
            comment.append(line.removeprefix("#"))
        elif line:
            key, _, value = line.partition(" = ")
            rows.append((f"`{key}`", f"`{value}`", " ".join(comment) or "with the one above"))
            comment = []
        else:
            comment = []
    return "\n".join(parts)


_LIMIT: Final = re.compile(r"((?:^# .*\n)*)^([A-Z0-9_]+) = [^#\n]*(?:# (.*))?$", re.MULTILINE)


def fixed_limits() -> str:
    """The names of coordlib/limits.py that are no units, each with its comment."""
    found = [
        (name, f"{getattr(limits, name):,}", f"{(above or '').replace('# ', ' ')} {beside or ''}")
        for above, name, beside in _LIMIT.findall(inspect.getsource(limits))
        if name not in ("KIB", "MIB")
    ]
    return table(("limit", "value", ""), [(f"`{name}`", *rest) for name, *rest in found])


_FIELD: Final = re.compile(
    r"((?:^    #: .*\n)*)^    (\w+)(?:: [^=\n]+?)?(?: = (.+?))?(?:  #.*)?$", re.MULTILINE
)


def fields_of(name: str) -> str:
    """The fields of a class, by its dotted name: comments `#:` above a field are its meaning."""
    module, _, cls = name.rpartition(".")
    source = inspect.getsource(getattr(importlib.import_module(module), cls))
    body = re.split(r"^    (?:def|@)", source, maxsplit=1, flags=re.MULTILINE)[0]
    body = re.sub(r'^    """.*?"""$', "", body, count=1, flags=re.MULTILINE | re.DOTALL)
    rows = [
        (f"`{field}`", f"`{default}`" if default else "", comment.replace("#:", " "))
        for comment, field, default in _FIELD.findall(body)
    ]
    return table(("field", "default", "meaning"), rows)


_COLUMN: Final = re.compile(r'^        "(\w+)": "(\w+)",(?:  # (.*))?$', re.MULTILINE)


def tables() -> str:
    """The Delta tables with their columns: the comment behind a column says what it means."""
    from coordlib.history import tables as source

    found = {
        name: _COLUMN.findall(text)
        for name, text in zip(
            source.TABLES,
            re.findall(r"^    [A-Z]+: \{\n(        \"[^}]*)\}", inspect.getsource(source), re.M),
            strict=True,
        )
    }
    return "\n".join(
        f"### {name}\n\n"
        + table(("column", "type", "meaning"), [(f"`{col}`", *rest) for col, *rest in columns])
        for name, columns in found.items()
    )


_VIEW: Final = re.compile(r'((?:^    #.*\n)+)^    "(\w+)": "', re.MULTILINE)


def views_in(module: ModuleType) -> dict[str, str]:
    """View to the first paragraph of the comment above its query."""
    found = _VIEW.findall(inspect.getsource(module))
    about = {name: re.split(r"^ *#$", comment, flags=re.MULTILINE)[0] for comment, name in found}
    return {name: " ".join(comment.replace("#", " ").split()) for name, comment in about.items()}


def views() -> str:
    """The views, each with what a row is, and with its columns as DuckDB finds them."""
    import duckdb

    from coordlib.history.delta_files import declare
    from coordlib.history.engines import VIEWS, register_duckdb
    from coordlib.history.views import controller, groups, transactions

    known: dict[str, str] = {}
    for module in (groups, controller, transactions):
        known |= views_in(module)
    parts = []
    with duckdb.connect() as connection:
        declare(connection)
        register_duckdb(connection)
        for name in VIEWS:
            rows = connection.execute(f"DESCRIBE {name}").fetchall()
            columns = ", ".join(f"`{column}` {kind}" for column, kind, *_ in rows)
            columns = columns.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")
            parts.append(f"### {name}\n\n{known[name]}\n\nColumns: {columns}\n")
    return "\n".join(parts)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "commands": commands,
    "jobs": jobs,
    "codes": codes,
    "exceptions": exceptions,
    "settings": settings,
    "limits": fixed_limits,
    "tables": tables,
    "views": views,
}
