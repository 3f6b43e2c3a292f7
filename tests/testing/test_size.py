"""What the table of sizes counts, and how."""

from pathlib import Path

import pytest

from tests.tools import size


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three folders: `low` and `high` tie each other by a hint for types."""
    sources = {
        "__init__.py": "",
        "errors.py": "X = 1\n",
        "low/__init__.py": "",
        "low/a.py": (
            "from typing import TYPE_CHECKING\n"
            "from coordlib.errors import X\n"
            "if TYPE_CHECKING:\n"
            "    from coordlib.high.inner import b\n"
        ),
        "high/__init__.py": "",
        "high/inner/__init__.py": "",
        "high/inner/b.py": "def f():\n    import coordlib.low.a\n",
        "high/top.py": "from coordlib.high.inner.b import f\n",
        "other/__init__.py": "",
        "other/c.py": "from coordlib.low import a\nwas_told = isTold = told_you = retold = 0\n",
    }
    for name, text in sources.items():
        path = tmp_path / "coordlib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(size, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("package")
def test_imports_count_wherever_they_stand() -> None:
    """A circle that only hints close is one for who reads the files."""
    graph = size.imports()

    assert graph["coordlib.low.a"] == {"coordlib.errors", "coordlib.high.inner.b"}
    assert size.circles(graph) == [["coordlib.high.inner.b", "coordlib.low.a"]]
    assert size.circles(size.folded(graph, 2)) == [["high.inner", "low"]]
    assert size.arrows(size.folded(graph, 1)) == [
        *(("high", "low"), ("low", size.TOP), ("low", "high"), ("other", "low")),
    ]


@pytest.mark.usefixtures("package")
def test_words_of_identifiers_are_counted() -> None:
    """A word inside another one is none."""
    assert size.banned(size.files()) == {"told": 3}
    assert size.words_of("wasTold_ofHTTPServer2") == [*("was", "told", "of", "http", "server", "2")]


def test_the_page_is_read(package: Path) -> None:
    """By its tables, or by the block of code that takes the place of one."""
    page = package / "docs/contributing/architecture.md"
    page.parent.mkdir(parents=True)
    head = "## Words\n| word | meaning |\n|---|---|\n| **a, b** | x **no** |\n| **c** | y |\n"
    page.write_text(f"{head}## Where to look\n| q | f |\n|---|---|\n| x | y |\n")
    assert len(size.private_words()) == 2
    assert {row.what: row.now for row in size.rows()}['rows of "where to look"'] == "1"

    page.write_text("## Ten words\n**a**: x · **b**: y\n· **c**: z\n## Where to change\n\n  q  f\n")
    assert len(size.private_words()) == 3
    assert {row.what: row.now for row in size.rows()}['rows of "where to look"'] == "1"


def test_the_table_has_a_figure_and_an_aim_for_every_measure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is the closing note's."""
    size.main([])

    said = capsys.readouterr().out.splitlines()
    assert len(said) > 15
    for line in said[1:-1]:
        assert [part for part in line.split("  ") if part][1:], line
    size.main(["--why", "words"])
    assert capsys.readouterr().out == "", "no identifier has a banned word"
