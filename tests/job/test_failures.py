"""What the job says when Spark ends it: excerpts of what Spark 4.2 really says."""

import pytest
from confluent_kafka import KafkaException, Producer

from coordlib.errors import (
    CannotReach,
    CoordError,
    NotAllowed,
    NotReady,
    SetupError,
    StartRefused,
    TooMuchAtOnce,
    WorkerEnded,
)
from coordlib.job.batch import too_large
from coordlib.job.failures import explain, explain_archive, explain_claims
from coordlib.job.operator import UnreadableState, judge_readable
from coordlib.job.pipelines import fold_groups
from tests.tools.core import InputRecord, ShardSettings

DAMAGED = """\
[STREAM_FAILED] Query [id = 5f9bccd0, runId = 5e26faa1] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most \
recent call last):
Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error \
occurred during loading state.  SQLSTATE: 58030
Caused by: org.apache.hadoop.fs.ChecksumException: Checksum error: \
file:/stacks/a/checkpoint/state/0/0/1.delta at 0 exp: 1160113717 got: -309525730
"""
OTHERS: list[tuple[str, type[CoordError], str]] = [
    ("java.io.IOException: No space left on device", NotReady, "Make space"),
    (
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED]\nCaused by: No space left on device",
        NotReady,
        "Make space",
    ),
    ("coordlib.job.batch.UnreadableState: shard 1: version 9", StartRefused, "--rebuild"),
    (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs "
        "detected for 7.",
        CoordError,
        "Stop one of them",
    ),
    ("org.apache.kafka.common.errors.TimeoutException: call", CannotReach, "continues where it"),
    (
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access "
        "topics: [coord.requests]",
        NotAllowed,
        "coord acl apply",
    ),
    (
        "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access "
        "group: spark-kafka-source-1",
        NotAllowed,
        "coord acl apply",
    ),
    (
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
        SetupError,
        "sasl.password",
    ),
    (
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed",
        CannotReach,
        "coord status",
    ),
    ("Python worker exited unexpectedly (crashed)", WorkerEnded, "Start the job again"),
    ("  File operator.py\nMemoryError: Unable to allocate 16 MiB", TooMuchAtOnce, "half as many"),
    (
        "Lost task 1.0 in stage 1.0: org.apache.spark.SparkException: [INTERNAL_ERROR] "
        "DirectByteBufferOutputStream cannot grow beyond 2GB limit (requested 2147490272 bytes)",
        TooMuchAtOnce,
        "half as many",
    ),
    ("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed", TooMuchAtOnce, "half as many"),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to", TooMuchAtOnce, "half as many"),
    (
        "Job aborted due to stage failure: Total size of serialized results of 3 tasks (812.0 MiB) "
        "is bigger than spark.driver.maxResultSize (512.0 MiB)",
        TooMuchAtOnce,
        "spark.driver.maxResultSize",
    ),
    (
        "org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.\n\tat org",
        TooMuchAtOnce,
        "half as many",
    ),
    (
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis "
        "stopped SparkContext was created at:",
        CoordError,
        "start the job again",
    ),
    (
        "Job 12 cancelled because SparkContext was shut down",
        CoordError,
        "start the job again",
    ),
    ("java.lang.OutOfMemoryError: Java heap space\n\tat org", TooMuchAtOnce, "driver.memory"),
    (
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory or "
        "process/resource limits reached",
        NotReady,
        "pids.max",
    ),
    ("java.lang.OutOfMemoryError: Metaspace", NotReady, "MaxMetaspaceSize"),
    ("org.apache.spark.memory.SparkOutOfMemoryError\n", TooMuchAtOnce, "executor.memory"),
]


def test_a_damaged_file_of_the_state_is_named_with_its_hint() -> None:
    """A disk flipped a bit while the job was down; Hadoop's checksum notices."""
    told = explain(RuntimeError(DAMAGED), "/stacks/a/checkpoint")

    assert isinstance(told, StartRefused)
    assert str(told).splitlines() == [
        "The checkpoint cannot be read: a file of it is damaged or missing.",
        "file:/stacks/a/checkpoint/state/0/0/1.delta",
        "Name an empty folder and add --rebuild: groups and offsets come back from the topics, "
        "members keep their places. Or put a whole copy of the folder back, if it is the newest.",
    ]


def test_a_batch_that_no_worker_can_hold_is_named_with_its_bytes() -> None:
    """The next start plans fewer: a supervisor is to go on."""
    problem = too_large("batch 7, shard 1", records=2, size_bytes=600, bytes_max=500)
    text = (
        "pyspark.errors.PythonException: Traceback\n"
        f"coordlib.job.batch.BatchTooLarge: {problem}\n\n\tat org.apache.spark"
    )
    told = explain(RuntimeError(text), "/c")

    assert isinstance(told, TooMuchAtOnce)
    assert told.what == (
        "A batch has more bytes than a Python worker may hold: batch 7, shard 1: 600 bytes of "
        "requests in its first 2 records, and a Python worker holds 500."
    )
    assert told.hint.startswith("Start the job again")
    assert "engine.worker_memory_bytes=1200" in told.hint


@pytest.mark.parametrize(("text", "kind", "hint"), OTHERS)
def test_what_a_user_can_fix_is_told_in_words(text: str, kind: type[CoordError], hint: str) -> None:
    """A supervisor starts the job again for what passes, and for nothing that stays."""
    told = explain(RuntimeError(text), "/c")

    assert type(told) is kind
    assert told.where == "checkpoint /c"
    assert hint in told.hint


NO_PYTHON = """\
Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost \
task 1.3 in stage 0.0 (TID 7) (10.1.2.3 executor 1): java.io.IOException: Cannot run program \
"./environment/bin/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
OLDER_PYTHON = """\
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
NO_MODULE = """\
(127.0.0.1 executor 0): org.apache.spark.SparkException: \nError from python worker:
  /usr/bin/python3: Error while finding module specification for \
'coordlib.job.warm_daemon' (ModuleNotFoundError: No module named 'coordlib')
PYTHONPATH was:
  /work/app-1/0/spark-core.jar
"""
WRONG_PYTHONS = [
    (
        NO_PYTHON,
        "An executor on 10.1.2.3 has no Python to run: ./environment/bin/python does not start "
        "there.",
    ),
    (
        NO_PYTHON.replace("(10.1.2.3 executor 1): ", ""),
        "An executor on unknown has no Python to run: ./environment/bin/python does not start "
        "there.",
    ),
    (OLDER_PYTHON, "Executors run Python 3.9, and the driver 3.11."),
    (NO_MODULE, "The Python of an executor lacks the module coordlib."),
]


@pytest.mark.parametrize(("text", "what"), WRONG_PYTHONS)
def test_a_worker_without_the_right_python_is_told_in_one_sentence(text: str, what: str) -> None:
    """It fails again at every start: nobody is to start the job again before a worker is fixed."""
    told = explain(RuntimeError(text), "/c")

    assert type(told) is SetupError
    assert told.what == what
    assert "at the same path" in told.hint


def test_a_module_that_is_missing_while_a_batch_is_judged_is_a_defect() -> None:
    """Its place matters."""
    assert explain(RuntimeError("ModuleNotFoundError: No module named 'shop'"), "/c") is None


def test_a_full_java_heap_says_which_memory_it_was() -> None:
    """A heap that is full for a moment once ended the job for good, and asked for a rebuild."""
    heap = RuntimeError("Caused by: java.lang.OutOfMemoryError: Java heap space\n\tat org.apache")

    told = explain(heap, "/c")

    assert told is not None
    assert told.what == "A Java process of the job has no memory left: Java heap space."
    assert "--rebuild" not in told.hint


def test_an_archive_is_not_rebuilt_but_its_disk_may_be_full() -> None:
    """It stands beside the coordinator in one job, and fails by itself."""
    full = RuntimeError("java.io.IOException: No space left on device")

    told = explain_archive(full)
    assert isinstance(told, SetupError)
    assert told.where == "the archive"
    assert explain_archive(RuntimeError(DAMAGED)) is None


def test_history_that_is_deleted_while_it_is_read_is_no_reason_to_refuse() -> None:
    """Retention overtakes the archive between its plan and its reading: the next plan knows."""
    lost = RuntimeError(
        "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost"
    )

    told = explain_archive(lost)

    assert type(told) is CoordError
    assert "HistoryLost" in told.hint


def test_an_option_that_the_client_does_not_take_is_a_wrong_setting() -> None:
    """The producer is the first to see it, and raises before Spark has begun."""
    with pytest.raises(KafkaException) as raised:
        Producer({"bootstrap.servers": "localhost:1", "sasl.pasword": "x"})

    told = explain(raised.value, "/c")
    assert type(told) is SetupError
    assert "sasl.pasword" in told.where


def test_everything_else_stays_a_stack_trace() -> None:
    """Whoever fixes a defect needs its place, not our words."""
    assert explain(RuntimeError("Traceback: KeyError in fold"), "/c") is None


@pytest.mark.parametrize("blob", [b"", b"\xff\x00", b"\x91\x63"])
def test_a_blob_that_nobody_wrote_is_known_by_its_name(blob: bytes) -> None:
    """A copy of another program's file, a newer version: Spark's checksums are all right then.

    Spark hands on the worker's traceback as text; the class's name in it is what is recognised.
    """
    settings = ShardSettings(shard=1, shards=2, reply_partitions=4, incarnation="i")
    record = InputRecord("r", 0, 1, b"{}")

    with pytest.raises(UnreadableState, match="shard 1"):
        judge_readable(fold_groups, blob, [record], settings)


def test_what_tries_again_by_itself_asks_nobody_to_start_the_job() -> None:
    """Claims beside the groups, and the archive, which plans as it did."""
    full = RuntimeError("java.lang.OutOfMemoryError: Java heap space")
    archive, claims = explain_archive(full), explain_claims(full, "/c")

    assert archive is not None
    assert claims is not None
    assert "half as many" in claims.hint
    assert "half as many" not in archive.hint
    assert "Start the job again" not in archive.hint + claims.hint
