"""One broker and one job for the ordinary tests; fault tests bring their own."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from coordlib.local.broker import Broker
from coordlib.local.stack import Stack
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.newcomer import Newcomer
from tests.stack.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_ARGS = (
    *("--set", "group.initial_rebalance_delay_ms=0"),
    *("--set", "engine.check_invariants=true"),
    # Else samples never cease to come.
    *("--set", "engine.lag_interval_ms=0"),
)


@pytest.fixture(scope="session")
def shared_stack(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The job, on the broker that all tests share. It samples lag, and mirrors some groups."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.broker = broker
    watches = (
        *("--set", "engine.lag_interval_ms=1000"),
        *("--set", 'engine.mirror_offsets=["^mirrored-.*"]'),
    )
    stack.up(job_args=(*JOB_ARGS, *watches, "--without-archive"))
    yield stack
    stack.stop_job()
    stack.kill_job()


@pytest.fixture(autouse=True)
def the_shared_job_runs(request: pytest.FixtureRequest) -> None:
    """One that ended by itself is the failure, and not what all later tests wait for in vain."""
    if "shared_stack" in request.fixturenames:
        stack: Stack = request.getfixturevalue("shared_stack")
        ended = f"the shared job has ended with exit code {stack.job.exit_code}"
        assert stack.job.is_running, f"{ended}:\n{stack.last_job_lines()}"


@pytest.fixture(scope="session")
def wire(shared_stack: Stack) -> Iterator[Wire]:
    """One for all tests of the shared stack: to read everything anew takes longer each time."""
    with Wire(shared_stack.bootstrap_servers) as wire:
        yield wire


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"g-{uuid4().hex[:8]}"


@pytest.fixture
def flow(shared_stack: Stack, group: str) -> Iterator[Flow]:
    """Records in a topic of 6 partitions."""
    with Flow(shared_stack.bootstrap_servers, f"records-of-{group}", 6) as flow:
        yield flow


@pytest.fixture
def crew(shared_stack: Stack, group: str, flow: Flow, tmp_path: Path) -> Iterator[Crew]:
    """Nobody yet; those whom a test starts share the topic of `flow`."""
    config = {
        "bootstrap.servers": shared_stack.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        "max.poll.interval.ms": 60_000,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    with Crew(tmp_path, flow.topic, config) as crew:
        yield crew


@pytest.fixture(scope="session")
def archived(
    shared_stack: Stack, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Bring what `shared_stack` wrote until now into Delta; returns the tables' folder."""
    from coordlib.history.archive import Archive
    from coordlib.history.plan import ArchiveOptions

    folder = tmp_path_factory.mktemp("history")
    options = ArchiveOptions(
        bootstrap_servers=shared_stack.bootstrap_servers,
        tables=str(folder / "tables"),
        checkpoint=str(folder / "archive"),
    )

    def archive() -> Path:
        Archive(spark, options).catch_up()
        return folder / "tables"

    return archive


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A broker without a job, for tests that break things."""
    stack = Stack(tmp_path / "stack")
    stack.start_broker()
    yield stack
    gc.collect()  # clients that are not closed would tell that the broker is gone
    stack.down()


@pytest.fixture
def start_job(own_stack: Stack) -> Callable[..., None]:
    """Start the job of `own_stack`, without an archive to make it quick."""

    def start(*arguments: str, archive: bool = False, **job: object) -> None:
        extra = () if archive else ("--without-archive",)
        own_stack.start_job((*JOB_ARGS, *extra, *arguments), **job)  # type: ignore[arg-type]

    return start


@pytest.fixture
def newcomer(shared_stack: Stack, tmp_path: Path, group: str) -> Iterator[Newcomer]:
    newcomer = Newcomer(shared_stack, tmp_path, group)
    yield newcomer
    newcomer.end()
