"""Spark's settings that every run has: those that clusters would change, and sizes that fit.

The bounds are those of conf/coordinator.toml: who raises one raises the memory too.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from coordlib.config import CoordinatorConfig
from coordlib.installation import conf_file
from coordlib.limits import MIB
from coordlib.local.submission import DEFAULT_MASTER, Submission, read_properties

DEFAULTS: Final = read_properties(conf_file("spark-defaults.conf"))
CONFIG: Final = CoordinatorConfig()
GIB: Final = 1024 * MIB
#: A shard that is full may grow by a quarter for the members that it has.
FULL_SHARD: Final = CONFIG.shard.bytes_max * 5 // 4
#: Of a shard's state, by the executor that writes it: from Python, as a row, as a file.
COPIES: Final = 3
#: Spark keeps the newest two versions of the state in memory.
VERSIONS: Final = 2
SHARDS_PER_TASK: Final = 2


def size_bytes(key: str) -> int:
    found = re.fullmatch(r"(\d+)([mg])", DEFAULTS[key])
    assert found is not None
    return int(found[1]) * (MIB if found[2] == "m" else GIB)


@pytest.mark.parametrize("key", ["spark.dynamicAllocation.enabled", "spark.speculation"])
@pytest.mark.parametrize("master", ["yarn", "spark://m:7077", "local[2]"])
def test_what_managed_clusters_switch_on_is_off(key: str, master: str) -> None:
    """EMR and Dataproc switch dynamic allocation on for every job."""
    assert Submission.parse(["--master", master, "coordinate"]).properties()[key] == "false"


def test_a_flag_of_the_user_comes_behind_the_settings() -> None:
    """Of two that name one key spark-submit takes the flag."""
    given = ["--master", "yarn", "--conf", "spark.speculation=true", "coordinate"]
    command = Submission.parse(given).command(Path("/p"), (), None, Path("/spark"))

    assert command.index("--properties-file") < command.index("--conf")
    assert command[command.index("--conf") + 1] == "spark.speculation=true"


def test_a_laptop_has_a_slot_for_the_groups_tasks_and_one_for_what_runs_beside_them() -> None:
    """The task of the claims query or of the archive runs for seconds; Spark interrupts none."""
    laptop = read_properties(conf_file("spark-local.conf"))

    assert laptop["spark.master"] == DEFAULT_MASTER
    assert laptop["spark.master"] == f"local[{int(laptop['spark.sql.shuffle.partitions']) + 1}]"


def test_a_laptops_jvm_has_room_for_the_code_that_it_compiles() -> None:
    """With C1 alone it reserves 48 MiB, which a job fills within a minute: then it ends."""
    laptop = read_properties(conf_file("spark-local.conf"))
    options = laptop["spark.driver.extraJavaOptions"].split()

    assert "-XX:TieredStopAtLevel=1" in options
    assert "-XX:ReservedCodeCacheSize=240m" in options


def test_a_driver_holds_the_largest_batch_and_spark_itself() -> None:
    assert size_bytes("spark.driver.memory") >= size_bytes("spark.driver.maxResultSize") + GIB


def test_an_executors_heap_holds_full_shards_and_the_largest_planned_batch() -> None:
    tasks = int(DEFAULTS["spark.executor.cores"])
    states = FULL_SHARD * (SHARDS_PER_TASK * VERSIONS + COPIES)
    batch = CONFIG.engine.worker_memory_bytes // 4

    assert size_bytes("spark.executor.memory") * 6 // 10 >= tasks * (states + batch)


def test_beside_the_heap_there_is_room_for_a_python_worker() -> None:
    tasks = int(DEFAULTS["spark.executor.cores"])
    workers = tasks * CONFIG.engine.worker_memory_bytes

    assert size_bytes("spark.executor.memoryOverhead") >= workers + GIB // 2


@pytest.mark.parametrize("key", ["spark.executor.instances", "spark.cores.max"])
def test_a_batch_has_a_core_for_each_task(key: str) -> None:
    tasks = int(DEFAULTS["spark.sql.shuffle.partitions"])

    assert int(DEFAULTS[key]) * int(DEFAULTS["spark.executor.cores"]) == tasks


def test_a_laptop_keeps_its_small_driver() -> None:
    assert Submission.parse(["coordinate"]).properties()["spark.driver.memory"] == "1g"


def test_a_laptops_driver_collects_less_than_its_heap() -> None:
    """More than the heap ends the JVM with exit code 52, and no word of why."""
    laptop = Submission.parse(["coordinate"]).properties()

    assert laptop["spark.driver.memory"] == "1g"
    assert laptop["spark.driver.maxResultSize"] == "512m"


def seconds(properties: dict[str, str], key: str) -> int:
    return int(properties[key].removesuffix("s"))


def test_an_executor_that_is_cut_off_is_missed_within_a_minute() -> None:
    """Spark refuses a heartbeat that comes as seldom as its timeout; three may be lost."""
    timeout = seconds(DEFAULTS, "spark.network.timeout")

    assert timeout + seconds(DEFAULTS, "spark.network.timeoutInterval") < 60
    assert seconds(DEFAULTS, "spark.executor.heartbeatInterval") * 4 < timeout


def test_a_laptop_may_sleep_for_a_minute() -> None:
    properties = Submission.parse(["coordinate"]).properties()

    assert seconds(properties, "spark.network.timeout") == 120


def test_every_setting_has_a_reason() -> None:
    """A value without one is never dared to be changed."""
    blocks = conf_file("spark-defaults.conf").read_text().split("\n\n")
    silent = [block for block in blocks if "#" not in block and "timeZone" not in block]

    assert silent == []
