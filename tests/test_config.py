"""Settings: the shipped file, and lists on the command line."""

import pytest

from coordlib.config import CoordinatorConfig, load_config
from coordlib.errors import SetupError
from coordlib.installation import settings_file


def test_the_shipped_file_states_the_defaults() -> None:
    """Somebody reads there what holds, and the code does something else."""
    assert load_config(settings_file()) == CoordinatorConfig()


def test_a_list_is_written_as_in_the_file() -> None:
    config = load_config(None, ['engine.mirror_offsets=["billing", "^orders-.*"]'])

    assert config.engine.mirror_offsets == ("billing", "^orders-.*")
    assert load_config(None, ["engine.mirror_offsets=[]"]) == CoordinatorConfig()


@pytest.mark.parametrize(
    "override",
    ['engine.mirror_offsets=["a"', "engine.mirror_offsets=[1]", "engine.mirror_offsets=a,b"],
)
def test_what_is_no_list_of_groups_is_refused(override: str) -> None:
    """A mirror that silently copies nothing would be found out much later."""
    with pytest.raises(SetupError) as caught:
        load_config(None, [override])

    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("value", ["-1", "x", "999999999999999999999"])
def test_an_interval_that_no_clock_has_is_refused(value: str) -> None:
    with pytest.raises(SetupError):
        load_config(None, [f"engine.lag_interval_ms={value}"])


def test_workers_with_too_little_memory_for_any_batch_are_refused() -> None:
    """A slip in the unit: 1024 instead of 1073741824. Every batch would end with BatchTooLarge."""
    with pytest.raises(SetupError, match="worker_memory_bytes"):
        load_config(None, [f"engine.worker_memory_bytes={64 * 1024 * 1024 - 1}"])

    least = load_config(None, [f"engine.worker_memory_bytes={64 * 1024 * 1024}"])
    assert least.engine.worker_memory_bytes == 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("group.shard_bytes_max", "shard.bytes_max"),
        ("group.offsets_retention_check_interval_ms", "shard.check_interval_ms"),
    ],
)
def test_a_key_that_has_moved_says_where_it_is(before: str, now: str):
    with pytest.raises(SetupError, match=f"{before} is called {now} now"):
        load_config(None, [f"{before}=70000"])
    assert load_config(None, [f"{now}=70000"]).shard != load_config(None).shard
