"""What the figures of a long history are of: the folder may have been used before."""

from pathlib import Path

import pytest

from coordlib.history.sql import query_tables
from coordlib.history.tables import TABLES
from tests.tools.bench.history import make
from tests.tools.bench.history_rows import Shape

SHAPE = Shape(days=2, groups=4, commits_per_day=40, files=2)


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_history_whose_writing_was_ended_is_written_on(
    tmp_path: Path, is_archived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year takes half an hour to write: the machine went down behind the first files."""
    whole, ended = str(tmp_path / "whole"), tmp_path / "ended"
    make(Path(whole), SHAPE, is_archived)
    with monkeypatch.context() as patch:
        patch.setattr("tests.tools.bench.history.lag", lambda *_: _end())
        with pytest.raises(KeyboardInterrupt):
            make(ended, SHAPE, is_archived)
    (first, *_) = sorted(ended.rglob("*.parquet"))
    before = first.stat().st_mtime_ns

    make(ended, SHAPE, is_archived)

    assert first.stat().st_mtime_ns == before
    for table in TABLES:
        rows = f"SELECT * FROM {table} ORDER BY ALL"
        assert query_tables(str(ended), rows).rows == query_tables(whole, rows).rows


def _end() -> str:
    raise KeyboardInterrupt
