"""What the figures of a long history are of: the folder may have been used before."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.history.maintain import maintain
from tests.tools.bench.history import ARCHIVED, MAINTAINED, make, run, state_of
from tests.tools.bench.history_rows import Shape

SHAPE = Shape(days=2, groups=4, commits_per_day=40, files=2)


def test_a_maintained_history_is_not_told_as_archived(tmp_path: Path) -> None:
    """The first run maintains the folder that it made; the second one finds that."""
    make(tmp_path, SHAPE, is_archived=True)
    assert state_of(tmp_path) == ARCHIVED
    maintain(str(tmp_path), {})
    assert state_of(tmp_path) == MAINTAINED

    with pytest.raises(SetupError, match="maintained") as told:
        run(shape=SHAPE, folder=str(tmp_path), is_archived=True, repeats=1)

    assert str(tmp_path) in told.value.where


def test_a_history_that_was_made_as_maintained_is_told_so(tmp_path: Path) -> None:
    make(tmp_path, SHAPE, is_archived=False)

    assert state_of(tmp_path) == MAINTAINED
