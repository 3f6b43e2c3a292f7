"""The page about clusters and the first page show the same commands; `make chaos` runs them."""

import re

from tests.architecture.test_tidy import ROOT
from tests.stack.cluster_page import blocks, commands


def test_the_first_page_shows_the_commands_that_are_run() -> None:
    """A flag that was renamed on one page only is copied from the other."""
    text = (ROOT / "README.md").read_text()
    (chapter,) = re.findall(r"^## On a cluster\n((?:    .*\n)+)", text, re.MULTILINE)
    shown = commands(re.sub(r"^    ", "", chapter, flags=re.MULTILINE))
    run = [
        each.removesuffix(" &")
        .replace(".venv/bin/coord", "coord")
        .replace("spark://127.0.0.1:7077", "spark://HOST:7077")
        for each in commands(blocks()[1])
    ]

    assert shown == run


def test_commands_are_lines_that_may_be_continued() -> None:
    assert commands("a \\\n    b\nc &\n") == ["a b", "c &"]
