"""How far the tables of a history are, where little or nothing was written into them."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from coordlib.history.plan import Commit, Source
from coordlib.history.tables import EVENTS, TABLES, path_of
from coordlib.history.topics_read import newest_commits

FIRST = Commit.first(Source("coord", {"events": "of-events"}))
NO_ROWS = pa.table({"group_id": pa.array([], pa.string())})


def write(tables: Path, name: str, commit: Commit | None) -> None:
    """Commit to a table, as an archive does or as somebody else."""
    told = None if commit is None else {"userMetadata": commit.to_json(-1)}
    properties = CommitProperties(custom_metadata=told)
    write_deltalake(tables / name, NO_ROWS, mode="append", commit_properties=properties)


def test_a_new_prefix_is_not_late(tmp_path: Path) -> None:
    """The archive has made its tables, and no group has come yet. `coord status
    --max-archive-lag-ms` said that its lag is not known, and called the job ill."""
    for name in TABLES:
        write(tmp_path, name, FIRST)

    assert newest_commits(str(tmp_path)) == {path_of(str(tmp_path), name): FIRST for name in TABLES}


def test_tables_are_as_far_as_their_newest_commits(tmp_path: Path) -> None:
    for name in TABLES:
        write(tmp_path, name, FIRST)
    second = FIRST.following("a", {"events": {"0": 7}}, 0, {}, ())
    write(tmp_path, EVENTS, second)

    found = newest_commits(str(tmp_path)) or {}

    assert found[path_of(str(tmp_path), EVENTS)] == second


def test_nothing_is_known_where_no_archive_has_been(tmp_path: Path) -> None:
    assert newest_commits(str(tmp_path)) is None


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_known_of_a_table_that_others_have_made(name: str, tmp_path: Path) -> None:
    for each in TABLES:
        write(tmp_path, each, None if each == name else Commit("a", 1))

    assert newest_commits(str(tmp_path)) is None
