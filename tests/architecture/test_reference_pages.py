"""The reference pages made from the code have every command, error, setting and view."""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from cyclopts import App
from mkdocs.exceptions import PluginError

from coordlib import config, errors, limits
from coordlib.cli.main.commands import build
from coordlib.history.engines import VIEWS
from coordlib.history.tables import COLUMNS
from tests.tools import reference

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/reference"
#: Keys of configurations that programs give, by the file that reads them.
CLIENTS = ("groups/settings", "kit/config", "claims/options", "transactions/by_kafka")
#: Options that coordlib sets for its own Kafka clients; a logger's name.
NOT_GIVEN = {
    "coordlib.client",
    "fetch.wait.max.ms",
    "message.max.bytes",
    "fetch.message.max.bytes",
    "fetch.max.bytes",
}


def page(name: str) -> str:
    return reference.filled((PAGES / f"{name}.md").read_text(), name)


def command_names(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in app:
        if not name.startswith("-"):
            yield " ".join((*path, name))
            yield from command_names(app[name], (*path, name))


def command(name: str) -> App:
    found = build()
    for each in name.split():
        found = found[each]
    return found


def test_every_command_is_on_its_page_with_its_options() -> None:
    """A command that the page lacks is one that nobody finds."""
    text = page("commands")
    names = list(command_names(build()))
    headings = re.findall(r"^#+ coord (.*)$", text, re.MULTILINE)

    assert len(names) > 50
    assert sorted(headings) == sorted(names)
    for name in ("groups describe", "up"):
        options = {
            each for argument in command(name).assemble_argument_collection()
            for each in argument.names if each.startswith("--")
        }  # fmt: skip
        part = text.split(f"# coord {name}\n")[1].split("\n#")[0]
        assert sorted(each for each in options if each not in part) == []


def test_every_argument_of_a_job_is_on_the_page_of_commands() -> None:
    """Of all three; their default is no path of this machine."""
    text = page("commands")

    for name in ("coordinate", "archive", "claims"):
        part = text.split(f"### {name}\n")[1].split("\n### ")[0]
        for option in ("--bootstrap-servers", "--checkpoint", "--kafka-file"):
            assert f"| `{option}" in part
    assert "--accept-loss" in text
    assert str(ROOT) not in text


def test_every_error_is_on_its_page() -> None:
    """Codes with their numbers, and exceptions."""
    text = page("errors")
    rows = dict(re.findall(r"^\| `(\w+)` \| (-?\d+) \|", text, re.MULTILINE))
    raised = {n for n, each in vars(errors).items() if isinstance(each, type)} - {"ErrorCode"}

    assert rows == {each.name: str(each.code) for each in errors.ErrorCode}
    assert sorted(n for n in raised if f"| `{n}` |" not in text and n != "Enum") == []


def test_every_setting_of_the_coordinator_is_on_its_page_with_its_meaning() -> None:
    """In the order of the code; none without a meaning."""
    text = page("settings")
    defaults = msgspec.to_builtins(config.CoordinatorConfig())

    for section, keys in defaults.items():
        part = text.split(f"### [{section}]\n")[1].split("\n### ")[0].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.+) \|$", part, re.MULTILINE)
        assert [name for name, *_ in rows] == [*keys]
        assert all(meaning.strip() for *_, meaning in rows)


def test_every_limit_is_on_its_page() -> None:
    """With its value."""
    names = {name for name in vars(limits) if name.isupper()} - {"KIB", "MIB"}

    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| ([\d,]+) \|", reference.fixed_limits(), re.MULTILINE)
    assert {n: int(v.replace(",", "")) for n, v in rows} == {n: getattr(limits, n) for n in names}


@pytest.mark.parametrize("file", CLIENTS)
def test_every_key_that_a_client_reads_is_on_the_page_of_settings(file: str) -> None:
    """The tables are written by hand, the keys are those of the code."""
    tree = ast.parse((ROOT / f"coordlib/client/{file}.py").read_text())
    keys = {
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and re.fullmatch(r"[a-z]+(\.[a-z]+)+", each.value)
    } - NOT_GIVEN
    text = page("settings")

    assert keys
    assert sorted(key for key in keys if f"`{key}`" not in text) == []


def test_every_table_column_and_view_is_on_its_page() -> None:
    """With the columns' types; views with what a row is."""
    text = page("sql-views")

    for table, columns in COLUMNS.items():
        part = text.split(f"### {table}\n")[1].split("\n### ")[0].split("\n## ")[0]
        assert dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.MULTILINE)) == columns
    views = re.findall(r"^### (\w+)\n\n(.+)\n\nColumns: `", text, re.MULTILINE)
    assert [name for name, _ in views] == [*VIEWS]


@pytest.mark.parametrize("module", ["coordlib.client", "coordlib.client.claims"])
def test_every_public_name_is_on_the_page_of_the_python_api(module: str) -> None:
    """A name in `__all__` is meant for programs."""
    named = set(re.findall(r"^::: (.*)$", (PAGES / "python-api.md").read_text(), re.MULTILINE))

    public = {f"{module}.{name}" for name in import_module(module).__all__}
    assert sorted(public - named) == []


def test_an_unknown_marker_ends_the_build() -> None:
    """A misspelt part would be an empty page."""
    with pytest.raises(PluginError, match="comands"):
        reference.filled("# Title\n\n<!-- from the code: comands -->\n", "page.md")


def test_a_view_without_a_comment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: what nothing describes is not left out in silence."""
    found: Callable[..., dict[str, str]] = reference.views_in
    monkeypatch.setattr(
        reference, "views_in", lambda m: {k: v for k, v in found(m).items() if k != "ownership"}
    )
    with pytest.raises(KeyError, match="ownership"):
        reference.views()


def test_a_setting_that_the_file_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail, too."""
    parts = {**reference.PARTS, "settings": lambda: reference.settings().replace("`max_size`", "")}
    monkeypatch.setattr(reference, "PARTS", parts)
    with pytest.raises(AssertionError):
        test_every_setting_of_the_coordinator_is_on_its_page_with_its_meaning()
