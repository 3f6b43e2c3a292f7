"""How many response partitions a local stack has: those that it began with."""

from pathlib import Path
from typing import Any

import pytest

from coordlib.local import stack_folder
from coordlib.local.stack import Stack


def begun(home: Path, responses: Any) -> Path:
    """A stack that an earlier command has made."""
    stack_folder.make(home)
    state = {"bootstrap_servers": None, "prefix": "coord", "shards": 2, "responses": responses}
    stack_folder.write_state(home, state)
    return home


@pytest.mark.parametrize(("shards", "responses"), [(2, 16), (8, 32)])
def test_a_new_stack_has_as_many_as_any_new_prefix(
    tmp_path: Path, shards: int, responses: int
) -> None:
    assert Stack(tmp_path / "new", shards=shards).responses == responses


def test_a_stack_keeps_the_number_that_it_began_with(tmp_path: Path) -> None:
    """It was made when 4 was the default; `coord up` must not refuse its topics now."""
    assert Stack(begun(tmp_path / "old", 4)).responses == 4


def test_a_number_that_is_given_counts(tmp_path: Path) -> None:
    """`up` refuses it if the topics have another one, and says so."""
    assert Stack(begun(tmp_path / "old", 4), responses=5).responses == 5


@pytest.mark.parametrize("spoilt", [None, "4", 0, -1, [4]], ids=str)
def test_a_spoilt_number_is_none(tmp_path: Path, spoilt: Any) -> None:
    """Somebody has edited state.json."""
    assert Stack(begun(tmp_path / "old", spoilt)).responses == 16
