"""The page about a group's states is what the code would draw today."""

import re

import pytest

from coordlib.coordinators.classic.group import VALID_PREVIOUS_STATES, State
from coordlib.testing import state_diagram


def test_the_page_is_current() -> None:
    """Somebody changes the table and forgets the page: make diagrams."""
    page = state_diagram.PAGE.read_text(encoding="utf-8")

    assert page == state_diagram.with_drawing(page)


def test_the_files_of_the_page_exist() -> None:
    """What all kinds of groups have alike is judged in another folder than the page's."""
    named = re.findall(r"\| `([^`]+\.py)` \|$", state_diagram.drawn(), re.MULTILINE)

    assert "../offsets/retention.py" in named
    assert [name for name in named if not (state_diagram.PAGE.parent / name).exists()] == []


def test_the_drawing_has_every_state_and_every_arrow() -> None:
    """In the words of Mermaid's grammar, where a colon ends the name and begins the label."""
    drawn = state_diagram.drawn()

    arrows = re.findall(r"^    (\S+) --> (\S+?)(?:: [^:;#\n]+)?$", drawn, re.MULTILINE)
    legal = {(b.value, s.value) for s, some in VALID_PREVIOUS_STATES.items() for b in some}
    assert set(arrows) == {*legal, ("[*]", "Empty"), ("Dead", "[*]")}
    assert re.findall(r"^```(\w*)$", drawn, re.MULTILINE) == ["mermaid", ""]
    for state in State:
        assert f"| {state.value} | " in drawn


def test_text_around_the_marks_is_kept() -> None:
    page = f"before\n{state_diagram.BEGIN}\nold\n{state_diagram.END}\nafter\n"

    written = state_diagram.with_drawing(page)

    assert written.startswith(f"before\n{state_diagram.BEGIN}\n| state |")
    assert written.endswith(f"\n{state_diagram.END}\nafter\n")
    with pytest.raises(ValueError, match="needs a line"):
        state_diagram.with_drawing("no marks")
