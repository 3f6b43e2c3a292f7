"""The pages about groups' states are what the code would draw today."""

import re

import pytest

from tests.tools import state_diagram
from tests.tools.state_diagram import KINDS, Drawn

of_every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.page.stem)


@of_every_kind
def test_the_page_is_current(kind: Drawn) -> None:
    """Somebody changes the table and forgets the page: make diagrams."""
    page = kind.page.read_text(encoding="utf-8")

    assert page == state_diagram.with_drawing(page, kind)


@of_every_kind
def test_the_files_of_the_page_exist(kind: Drawn) -> None:
    """What all kinds of groups have alike is judged in another folder than the page's."""
    named = re.findall(r"\| `([^`]+\.py)` \|$", state_diagram.drawn(kind), re.MULTILINE)

    assert "core/groups/kind.py" in named
    assert [name for name in named if not (state_diagram.ROOT / "coordlib" / name).exists()] == []


@of_every_kind
def test_the_drawing_has_every_state_and_every_arrow(kind: Drawn) -> None:
    """In the words of Mermaid's grammar, where a colon ends the name and begins the label."""
    drawn = state_diagram.drawn(kind)

    arrows = re.findall(r"^    (\S+) --> (\S+?)(?:: [^:;#\n]+)?$", drawn, re.MULTILINE)
    previous = kind.group.VALID_PREVIOUS_STATES
    legal = {(before.value, state.value) for state, some in previous.items() for before in some}
    assert set(arrows) == {*legal, ("[*]", "Empty"), ("Dead", "[*]")}
    assert re.findall(r"^```(\w*)$", drawn, re.MULTILINE) == ["mermaid", ""]
    for state in kind.states:
        assert f"| {state.value} | " in drawn


def test_text_around_the_marks_is_kept() -> None:
    page = f"before\n{state_diagram.BEGIN}\nold\n{state_diagram.END}\nafter\n"

    written = state_diagram.with_drawing(page, KINDS[0])

    assert written.startswith(f"before\n{state_diagram.BEGIN}\n| state |")
    assert written.endswith(f"\n{state_diagram.END}\nafter\n")
    with pytest.raises(ValueError, match="needs a line"):
        state_diagram.with_drawing("no marks", KINDS[0])
