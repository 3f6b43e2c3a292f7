"""What the command line says about a job's range of shards."""

import pytest

from coordlib.core.wire.cells import ShardRange
from coordlib.errors import SetupError
from coordlib.job.main.arguments import coordinator_options, parse_arguments
from coordlib.job.main.coordinator import CoordinatorOptions

PLACES = ["--bootstrap-servers", "127.0.0.1:9092", "--checkpoint", "/tmp/check/"]
ALONE = "--without-archive"


def options(*arguments: str) -> CoordinatorOptions:
    return coordinator_options(parse_arguments([*PLACES, *arguments]))


def test_a_job_without_a_range_has_all_shards() -> None:
    assert options(ALONE).owned is None


def test_a_cell_names_its_range() -> None:
    assert options(ALONE, "--shards", "0-7").owned == ShardRange(0, 7)


@pytest.mark.parametrize("text", ["7-0", "all", "0,1"])
def test_what_is_no_range_is_a_wrong_setting(text: str) -> None:
    """A supervisor must not start it again and again."""
    with pytest.raises(SetupError, match="no range of shards"):
        options(ALONE, "--shards", text)


def test_a_cell_writes_no_history() -> None:
    """Each would write all of it, and with the one that dies history would end."""
    with pytest.raises(SetupError, match="coord submit archive"):
        options("--tables", "/tmp/tables", "--shards", "0-7")


def test_a_cell_follows_no_claims() -> None:
    """All cells would fence each other's query, for ever."""
    claims = ("--set", "claims.topic=__marshal", "--shards", "0-7", ALONE)
    with pytest.raises(SetupError, match="coord submit claims"):
        options(*claims)
    assert options(*claims, "--without-claims").owned == ShardRange(0, 7)
