"""The notebooks run from their first cell to their last, on tables without a stack."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.history.assigned_life import GROUP, a_life_of_an_assigned_group
from tests.history.cluster_life import a_life_of_a_cluster

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
NOTEBOOK = NOTEBOOKS / "who-owned-what.ipynb"


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells of code after a run, with what they gave."""
    tables = a_life_of_an_assigned_group().write(tmp_path / "tables")
    # As somebody leaves it who deletes what is old: of the first hand-overs no commit is known.
    early = "type = 'OffsetsCommitted' AND time < '2026-03-01T15:00:05Z'"
    DeltaTable(f"{tables}/events").delete(early)
    monkeypatch.setenv("COORD_TABLES", str(tables))
    monkeypatch.setenv("COORD_GROUP", GROUP)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    return run(NOTEBOOK)


def run(path: Path) -> list[Any]:
    """The cells of code of a notebook, after a run."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    return [each for each in notebook.cells if each.cell_type == "code"]


def tables_in(cells: list[Any]) -> list[str]:
    outputs = [each.get("data", {}) for cell in cells for each in cell.outputs]
    return [data["text/html"] for data in outputs if "text/html" in data]


def test_it_draws_owners_commits_and_lag_and_tells_causes(cells: list[Any]) -> None:
    kinds = [key for cell in cells for each in cell.outputs for key in each.get("data", {})]
    assert kinds.count("image/png") == 3
    causes, hand_overs = tables_in(cells)
    assert "session expired" in causes
    assert "member-5, query-1, query-2" in causes
    assert "<td>981</td>" in hand_overs  # a whole number, though others are missing
    assert hand_overs.count("<td>-</td>") == 3
    assert hand_overs.count("<td>query-2</td>") == 6  # it got three partitions, and lost them


def test_who_led_what_is_drawn_and_why_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the cluster that changed last, as no other is named."""
    monkeypatch.setenv("COORD_TABLES", str(a_life_of_a_cluster().write(tmp_path / "tables")))
    monkeypatch.delenv("COORD_CLUSTER", raising=False)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    cells = run(NOTEBOOKS / "who-led-what.ipynb")

    kinds = [key for cell in cells for each in cell.outputs for key in each.get("data", {})]
    assert kinds.count("image/png") == 1
    changes, leaderless, in_sync = tables_in(cells)
    assert "orders-0: broker 1 to nobody" in changes
    assert "former leader must have stopped" in changes
    assert leaderless.count("<tr>") == 3
    assert "<td>9.0</td>" in leaderless
    assert "former leader may still act" in leaderless
    assert "<td>[2, 3]</td>" in in_sync


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path) -> None:
    """They would be somebody's machine, and a diff at every look."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    code = [each for each in notebook.cells if each.cell_type == "code"]
    assert len(code) > 3
    assert all(each.outputs == [] and each.execution_count is None for each in code)
