"""The notebook runs from its first cell to its last, on tables without a stack."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.history.assigned_life import GROUP, a_life_of_an_assigned_group

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "who-owned-what.ipynb"


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells of code after a run, with what they gave."""
    import nbformat
    from nbclient import NotebookClient

    tables = a_life_of_an_assigned_group().write(tmp_path / "tables")
    # As somebody leaves it who deletes what is old: of the first hand-overs no commit is known.
    early = "type = 'OffsetsCommitted' AND time < '2026-03-01T15:00:05Z'"
    DeltaTable(f"{tables}/events").delete(early)
    monkeypatch.setenv("COORD_TABLES", str(tables))
    monkeypatch.setenv("COORD_GROUP", GROUP)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT)}}).execute()
    return [each for each in notebook.cells if each.cell_type == "code"]


def test_it_draws_owners_commits_and_lag_and_tells_causes(cells: list[Any]) -> None:
    kinds = [key for cell in cells for each in cell.outputs for key in each.get("data", {})]
    assert kinds.count("image/png") == 3
    tables = [
        each["data"]["text/html"]
        for cell in cells
        for each in cell.outputs
        if "text/html" in each.get("data", {})
    ]
    causes, hand_overs = tables
    assert "session expired" in causes
    assert "member-5, query-1, query-2" in causes
    assert "<td>981</td>" in hand_overs  # a whole number, though others are missing
    assert hand_overs.count("<td>-</td>") == 3
    assert hand_overs.count("<td>query-2</td>") == 6  # it got three partitions, and lost them


def test_it_is_kept_without_outputs() -> None:
    """They would be somebody's machine, and a diff at every look."""
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [each for each in notebook.cells if each.cell_type == "code"]
    assert len(code) > 3
    assert all(each.outputs == [] and each.execution_count is None for each in code)
