"""Executors and their Python workers: what they run and see, and when they give way."""

import hashlib
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from coordlib.errors import NotReady, SetupError
from coordlib.installation import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a start waits for executors: what a busy cluster has to free first, and what an executor
#: needs to fetch and unpack an environment of 100 MB.
WAIT_TIMEOUT_S: Final = 120.0
#: What decides, folders and files: two versions of it may give other outputs for the same log.
_DECIDING: Final = (
    *("core", "job"),
    *("limits.py", "errors.py", "config.py"),
)


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor's answer."""

    host: str
    #: Digest of the code that decides there.
    code: str
    #: Whether it can write where the checkpoint lies; True where that is no local folder.
    shares_checkpoint: bool


def is_one_jvm(context: Any) -> bool:
    """Whether driver and executors are one JVM, on this machine. `context`: Spark's."""
    return bool(context.master == "local" or context.master.startswith("local["))


def require_executors(spark: "SparkSession", checkpoint: str) -> None:
    """Have as many tasks as a batch has look around; returns at once on a laptop.

    A Python that does not run, or is another version, ends them with Spark's own error, which
    `failures.explain` recognises.

    Raises:
        NotReady: no executor has come in time.
        SetupError: an executor has other code of coordlib than the driver, or cannot write into the
            driver's checkpoint folder.
    """
    context: Any = spark.sparkContext
    if is_one_jvm(context):
        return
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    with _probe(spark, checkpoint) as probe:
        compare(_answers(context, tasks, probe), checkpoint)


def _answers(context: Any, tasks: int, probe: str | None) -> list[Executor]:
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        context.cancelAllJobs()  # there is no other one yet

    patience = threading.Timer(WAIT_TIMEOUT_S, give_up)
    patience.daemon = True
    patience.start()
    try:
        found: list[Executor] = (
            context.parallelize(range(tasks), tasks).map(lambda _: look_around(probe)).collect()
        )
        return found
    except Exception:
        if not is_late.is_set():
            raise
        raise NotReady(
            f"No executor has come within {WAIT_TIMEOUT_S:.0f} s.",
            context.master,
            "Have workers with as many free cores and as much memory as spark.executor.cores and "
            "spark.executor.memory ask for, which reach spark.driver.host; start the job again.",
        ) from None
    finally:
        patience.cancel()


def look_around(probe: str | None) -> Executor:
    """What this process, of an executor or the driver, runs and sees.

    Args:
        probe: a file in the driver's checkpoint folder; None: that is no local folder.
    """
    shares = probe is None or (Path(probe).exists() and os.access(Path(probe).parent, os.W_OK))
    return Executor(socket.gethostname(), _digest(), shares)


def compare(found: Iterable[Executor], checkpoint: str) -> None:
    """Raises SetupError where an executor differs from this process, the driver."""
    answers = list(found)
    others = sorted({each.host for each in answers if each.code != _digest()})
    if others:
        raise SetupError(
            "Executors have other code of coordlib than the driver.",
            f"on {', '.join(others)}",
            "Ship the driver's own environment: leave out COORD_ENV_ARCHIVE and --archives "
            "…#environment, or pack that archive anew.",
        )
    apart = sorted({each.host for each in answers if not each.shares_checkpoint})
    if apart:
        raise SetupError(
            "Executors cannot write into the driver's checkpoint folder.",
            f"{checkpoint} on {', '.join(apart)}",
            "Name a folder that all machines of the cluster mount and this user may write, or a "
            "URI of HDFS or an object store.",
        )


@contextmanager
def _probe(spark: "SparkSession", checkpoint: str) -> Iterator[str | None]:
    """A file in the checkpoint's folder, for as long as executors look for it."""
    folder = _local_folder(spark, checkpoint)
    if folder is None:
        yield None
        return
    probe = folder / f"probe-{uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
    except OSError as problem:
        raise NotReady(
            "The checkpoint's folder does not take a file.",
            f"{checkpoint}: {problem.strerror}",
            "Check that this job may write there.",
        ) from problem
    try:
        yield str(probe)
    finally:
        probe.unlink(missing_ok=True)


def _local_folder(spark: Any, checkpoint: str) -> Path | None:
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(checkpoint)
    system = path.getFileSystem(context._jsc.hadoopConfiguration())
    if system.getUri().getScheme() != "file":
        return None
    return Path(system.makeQualified(path).toUri().getPath())


@lru_cache
def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(_deciding()):
        digest.update(str(source.relative_to(PACKAGE)).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _deciding() -> Iterator[Path]:
    for each in _DECIDING:
        path = PACKAGE / each
        yield from [path] if path.suffix == ".py" else path.rglob("*.py")


#: In the environment of a daemon: by how much it gives way.
VARIABLE: Final = "COORD_WORKER_NICENESS"
#: A tenth of the processor's time where both want all of it, and the rest whenever they do not.
LOW_NICENESS: Final = 10
_lock: Final = threading.Lock()


@contextmanager
def workers_of(spark: "SparkSession", niceness: int) -> Iterator[None]:
    """Functions that are handed to Spark meanwhile run in workers of this niceness.

    On a cluster in those that all queries share.

    Spark copies the environment when it is handed a function; there is one for all threads, so
    only one query at a time is made.
    """
    context = spark.sparkContext
    with _lock:
        before = context.environment
        context.environment = environment_of(before, niceness if is_one_jvm(context) else 0)
        try:
            yield
        finally:
            context.environment = before


def environment_of(before: Mapping[str, str], niceness: int) -> dict[str, str]:
    """The environment of workers with this niceness; 0: those that all queries share."""
    return {**before, VARIABLE: str(niceness)} if niceness else dict(before)


def lower_priority() -> None:
    """Lower this process's priority as its environment says."""
    niceness = int(os.environ.get(VARIABLE, "0"))
    if niceness:
        os.nice(niceness)
