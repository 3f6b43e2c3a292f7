"""Session-wide fixtures: one Spark and one broker per test run, started when first asked for.

A run that is ended by SIGTERM, or whose terminal is closed, ends its fixtures first, as after
Ctrl-C. With several processes they have no time for that: whatever they started is killed.
"""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import hypothesis
import psutil
import pytest

from coordlib.local.processes import STACK_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordlib.local.broker import Broker

hypothesis.settings.register_profile("coordlib", deadline=None)  # machines are busy
hypothesis.settings.load_profile("coordlib")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # trap: another Python on the executors


#: In the environment of all that a run has started, its own processes included.
RUN_VARIABLE = "COORD_TEST_RUN"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="of what has passed; it is not run again")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("results"):
        from tests.tools.results import PassedTests

        config.pluginmanager.register(PassedTests(path))
    if not hasattr(config, "workerinput"):
        os.environ[RUN_VARIABLE] = uuid4().hex
        # Set-up may have made one; no test makes another in a folder of its own.
        os.environ.setdefault("COORD_CLASS_ARCHIVE", "use")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one of them
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """No broker, and no job, outlives the run that started it."""
    if hasattr(config, "workerinput"):
        return
    run = os.environ[RUN_VARIABLE]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if environment.get(RUN_VARIABLE) == run and STACK_VARIABLE in environment:
                process.kill()


#: Those that run in one process each, in the order in which they begin: the longest first. Behind
#: them come simulated worlds, and then all others, which keep every process busy to the end.
CHAINS = (
    *("shared_stack", "spark", "own stack", "spark of streams"),
    *("secured_broker", "demo", "broker"),
)
#: Tests of a name of a file that are given to a process at once: one by one, the controller would
#: look through all that a process has had for each of 15,000. Simulated worlds take seconds each.
AT_ONCE = 8


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in its own hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What shares a broker, a job or a Spark runs in one process: there is one of each. Of Sparks
    there are two, as their tests would be the longest chain by far."""
    seen, rank = Counter[str](), dict[pytest.Item, int]()
    for item in items:
        if item.get_closest_marker("stack") or item.get_closest_marker("fault"):
            chain = _chain(item)
            item.add_marker(pytest.mark.xdist_group(chain))
            rank[item] = CHAINS.index(chain)
        elif "simulation" in item.path.parts:
            rank[item] = len(CHAINS)
        else:
            name = item.path.stem
            item.add_marker(pytest.mark.xdist_group(f"{name}:{seen[name] // AT_ONCE}"))
            seen[name] += 1
    if _goes_in_groups(config):
        items.sort(key=lambda item: rank.get(item, len(CHAINS) + 1))


def _chain(item: pytest.Item) -> str:
    used = set(getattr(item, "fixturenames", ()))
    own = "demo" if "demo" in item.path.name else "own stack"
    fixtures = ("secured_broker", "shared_stack", "spark", "broker")
    shared = next((each for each in fixtures if each in used), own)
    if shared == "spark" and "history" not in item.path.parts:
        return "spark of streams"
    return shared


def _goes_in_groups(config: pytest.Config) -> bool:
    """Whether this is one of several processes, and each group comes in one piece."""
    return hasattr(config, "workerinput") and bool(config.getoption("loadgroup", default=False))


#: Fixtures with processes that take a good part of a core also when nobody asks them anything.
BUSY_WHEN_IDLE = ("shared_stack", "secured_broker", "broker")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Brokers and jobs end with the last test of their group, and not with the run. Only where each
    group comes in one piece: a process that runs all tests goes file by file."""
    if not _goes_in_groups(item.config):
        return
    if nextitem is not None and _groups(nextitem) == _groups(item):
        return
    known = item.session._fixturemanager._arg2fixturedefs
    for fixture in (each for name in BUSY_WHEN_IDLE for each in known.get(name, ())):
        if fixture.scope == "session":
            fixture.finish(item._request)  # type: ignore[attr-defined]  # no other way in pytest


def _groups(item: pytest.Item) -> set[object]:
    return {mark.args[0] for mark in item.iter_markers("xdist_group")}


def _end(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # impatience must not stop the stopping
    pytest.exit(f"ended by {signal.Signals(number).name}", returncode=128 + number)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local Spark with Kafka source and Delta; times are UTC."""
    from pyspark.sql import SparkSession

    from tests.stack.spark_member import laptop_properties

    scratch = tmp_path_factory.mktemp("spark")
    options = {
        **laptop_properties(),
        # Tables of a few rows: to compile a query takes longer than to run it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("coordlib tests")
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A real Kafka broker in a folder of its own."""
    from coordlib.local.broker import Broker
    from coordlib.local.jars import ensure_jars

    running = Broker(tmp_path_factory.mktemp("broker"), ensure_jars().broker)
    running.start()
    yield running
    gc.collect()  # clients in reference cycles would tell, each of them, that it is gone
    running.stop()
