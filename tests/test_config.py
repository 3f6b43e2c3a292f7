"""Settings: the shipped file, and lists on the command line."""

from pathlib import Path

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


@pytest.mark.parametrize("value", ["-1", "x", str(2**31), "999999999999999999999"])
@pytest.mark.parametrize(
    "key",
    [
        "engine.lag_interval_ms",
        "engine.archive_interval_ms",
        "engine.topic_watch_interval_ms",
        "engine.trigger_interval_ms",
        "engine.transaction_timeout_ms",
        "engine.fetch_wait_ms",
        "claims.trigger_interval_ms",
    ],
)
def test_an_interval_that_no_clock_has_is_refused(key: str, value: str) -> None:
    """Microseconds in place of milliseconds: a thread ended at its first wait without a word, and
    Spark's query at its start, again and again."""
    with pytest.raises(SetupError):
        load_config(None, [f"{key}={value}"])


@pytest.mark.parametrize("section", ["engine", "claims"])
def test_more_records_than_a_batch_can_have_are_refused(section: str) -> None:
    with pytest.raises(SetupError, match="max_offsets_per_trigger"):
        load_config(None, [f"{section}.max_offsets_per_trigger={2**63}"])


@pytest.mark.parametrize(
    "name",
    [
        "group.session_timeout",
        "brokers.session_timeout",
        "brokers.release_timeout",
        "transactions.timeout",
    ],
)
def test_bounds_with_nothing_between_are_refused(name: str) -> None:
    """Each for itself is allowed; together they would refuse every member."""
    with pytest.raises(SetupError, match=f"{name}_min_ms is 60000, above {name}_max_ms, 6000"):
        load_config(None, [f"{name}_min_ms=60000", f"{name}_max_ms=6000"])

    load_config(None, [f"{name}_min_ms=60000", f"{name}_max_ms=60000"])


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    """A job that ends with 1 in place of 2 is started again for ever."""
    with pytest.raises(SetupError, match="cannot be read"):
        load_config(tmp_path)


@pytest.mark.parametrize("text", ["group = 5", "[[group]]\nmax_size = 1"])
def test_a_section_that_is_none_is_refused_also_where_a_setting_of_it_is_given(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(text)
    with pytest.raises(SetupError, match="Expected `object`"):
        load_config(file, ["group.max_size=3"])


def test_workers_with_too_little_memory_for_any_batch_are_refused() -> None:
    """A slip in the unit: 1024 instead of 1073741824. Every batch would end with BatchTooLarge."""
    with pytest.raises(SetupError, match="worker_memory_bytes"):
        load_config(None, [f"engine.worker_memory_bytes={64 * 1024 * 1024 - 1}"])

    least = load_config(None, [f"engine.worker_memory_bytes={64 * 1024 * 1024}"])
    assert least.engine.worker_memory_bytes == 64 * 1024 * 1024
