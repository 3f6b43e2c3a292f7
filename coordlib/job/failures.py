"""The reason why a query ended, as a CoordError in place of Spark's hundreds of lines.

Only failures that the operator can fix are recognised. Everything else stays a stack trace: it is
a defect, and its place matters.
"""

import re
from typing import Final

from confluent_kafka import KafkaException

from coordlib.errors import (
    CannotReach,
    CoordError,
    LogCut,
    NotAllowed,
    NotReady,
    SetupError,
    StartRefused,
    TooMuchAtOnce,
    WorkerEnded,
)
from coordlib.job.checkpoint import CheckpointFolder
from coordlib.kafka.options import wrong_option
from coordlib.spark_reasons import DISK_FULL

_COME_BACK: Final = "groups and offsets come back from the topics, members keep their places"
_CLAIMS_COME_BACK: Final = "claims come back from the snapshots and the log behind them"
_REBUILD: Final = (
    f"Name an empty folder and add --rebuild: {_COME_BACK}. "
    "Or put a whole copy of the folder back, if it is the newest."
)

_SMALLER: Final = (
    "Start the job again: it goes on behind the newest committed batch, and plans half as many "
    "records."
)
_SMALLER_CLAIMS: Final = (
    "Nothing: the next try goes on behind the newest committed batch, and plans half as many "
    "records."
)
_AGAIN: Final = "Nothing: the next try reads that history again, and writes it once."

_GRANT: Final = (
    "Let an operator of the brokers grant it: coord acl apply --role ROLE --principal User:NAME "
    "(coord acl print: what each role needs)"
)
_OTHER_PYTHON: Final = (
    "Install this machine's Python at the same path on every worker, or name in COORD_ENV_ARCHIVE "
    "an archive that brings its own interpreter and this version of coordlib."
)
#: Which executor a failed task was on, where Spark says so.
_ON_EXECUTOR: Final = r"(?:\((?P<host>\S+) executor [^)\n]*\): )?"

#: Text of Spark or of a worker -> what happened, what to do. The first match counts: a full disk
#: explains a file that is missing afterwards. Groups of the pattern are added to the message.
_Known = tuple[str, type[CoordError], str, str]
_KNOWN: Final[tuple[_Known, ...]] = (
    (
        DISK_FULL,
        NotReady,
        "The disk is full: the batch could not be kept.",
        "Make space and start the job again: the batch runs again and is written once.",
    ),
    (
        r"UnreadableState",
        StartRefused,
        "A shard's state in the checkpoint cannot be read: it is damaged, or another version of "
        "this code wrote it.",
        "Start the code that wrote it. If that does not help: "
        + _REBUILD[0].lower()
        + _REBUILD[1:],
    ),
    (
        r"BatchTooLarge: (?P<what>[^\n(]+) \(enough: (?P<enough>\d+)\)",
        TooMuchAtOnce,
        "A batch has more bytes than a Python worker may hold: {what}.",
        _SMALLER + " All at once it holds with engine.worker_memory_bytes={enough}, if workers "
        "have that much memory, and spark.executor.pyspark.memory where it is less.",
    ),
    (
        # Python's, numpy's and Arrow's; Java's is another one, and the next batch may not meet it.
        r"(?<!OutOf)MemoryError",
        TooMuchAtOnce,
        "A Python worker has no memory left for its batch.",
        _SMALLER + " Lower engine.worker_memory_bytes if workers have less than that.",
    ),
    (
        r"DirectByteBufferOutputStream cannot grow beyond 2GB",
        TooMuchAtOnce,
        "A batch has more than 2 GiB of one shard's requests, and Spark hands no more to a worker.",
        _SMALLER,
    ),
    (
        r"is bigger than (?:spark\.driver\.maxResultSize|local maxResultSize)",
        TooMuchAtOnce,
        "The outputs of a batch are more than the driver collects.",
        _SMALLER + " spark.driver.maxResultSize is the bound; spark.driver.memory must have room "
        "for twice as much.",
    ),
    (
        # Arrow's buffers lie beside the heap, and have as much as it.
        r"org\.apache\.arrow\.memory\.OutOfMemoryException",
        TooMuchAtOnce,
        "The outputs of a batch do not fit into the memory beside Java's heap.",
        _SMALLER + " Raise spark.driver.memory, and spark.executor.memory on a cluster, if that "
        "happens often.",
    ),
    (
        # However few records a batch has: it needs as many threads and classes.
        r"OutOfMemoryError: (?P<what>unable to create (?:new )?native thread|Metaspace"
        r"|Compressed class space)",
        NotReady,
        "A Java process of the job is at a limit that is none of its heap: {what}.",
        "Raise it (threads: ulimit -u, pids.max; classes: -XX:MaxMetaspaceSize), and start the job "
        "again: the batch runs again and is written once.",
    ),
    (
        r"OutOfMemoryError(: (?P<what>[^\n]*[^\n.]))?",
        TooMuchAtOnce,
        "A Java process of the job has no memory left: {what}.",
        _SMALLER + " If it ends so again and again, raise spark.driver.memory, and "
        "spark.executor.memory on a cluster.",
    ),
    (
        r"CANNOT_LOAD_STATE_STORE|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|ChecksumException"
        r"|Stream is corrupted|Incomplete log file",
        StartRefused,
        "The checkpoint cannot be read: a file of it is damaged or missing.",
        _REBUILD,
    ),
    (
        # Not lasting: whichever of the two began later has fenced the other, and is to go on.
        r"CONCURRENT_STREAM_LOG_UPDATE",
        CoordError,
        "Another job writes to this checkpoint too.",
        "Stop one of them: a checkpoint belongs to one job.",
    ),
    (
        r"KAFKA_DATA_LOSS|Some data may have been lost because they are not available in Kafka",
        StartRefused,
        "Requests were removed from their topic before the job had read them, or its end is lost.",
        "Start the job again: it names what is lost. If no processed record is missing, use an "
        "empty folder and --rebuild; otherwise --rebuild --accept-loss.",
    ),
    (
        r"TopicAuthorizationException: Not authorized to access topics: \[(?P<topic>[^\],]*)",
        NotAllowed,
        "A right is missing: Read on the topic {topic}.",
        _GRANT,
    ),
    (
        r"GroupAuthorizationException: Not authorized to access group: (?P<group>\S*)",
        NotAllowed,
        "A right is missing: Describe on the group {group}.",
        _GRANT,
    ),
    (
        r"SaslAuthenticationException",
        SetupError,
        "The brokers do not accept this user with this password.",
        "Correct sasl.username and sasl.password, or let an operator of the brokers set them anew.",
    ),
    (
        r"SslAuthenticationException",
        CannotReach,
        "No TLS connection to the brokers can be made: they or their certificate have changed.",
        "Let an operator of the brokers look; coord status with the same options says why.",
    ),
    (
        r"org\.apache\.kafka\.common\.errors\.TimeoutException",
        CannotReach,
        "The broker did not answer the job in time.",
        "Start the job again when the broker answers: it continues where it stopped.",
    ),
    (
        r"org\.apache\.kafka\.common\.config\.ConfigException",
        SetupError,
        "A Kafka option is wrong: Spark's client does not take it.",
        "Correct --kafka, or the table [kafka] of the configuration; the job's log names it.",
    ),
    (
        rf"{_ON_EXECUTOR}java\.io\.IOException: Cannot run program \"(?P<program>[^\"]*)\"",
        SetupError,
        "An executor on {host} has no Python to run: {program} does not start there.",
        _OTHER_PYTHON,
    ),
    (
        r"Python in worker has different version: (?P<worker>[\w.]+) than that in driver: "
        r"(?P<driver>[\w.]+)",
        SetupError,
        "Executors run Python {worker}, and the driver {driver}.",
        _OTHER_PYTHON,
    ),
    (
        # Spark's frame around what a worker's Python printed when it could not begin.
        r"Error from python worker:(?:(?!PYTHONPATH was)[\s\S])*"
        r"No module named '(?P<module>[\w.]+)'",
        SetupError,
        "The Python of an executor lacks the module {module}.",
        _OTHER_PYTHON,
    ),
    (
        # "Application has been killed" stands in Spark's log alone.
        r"Cannot call methods on a stopped SparkContext|SparkContext (?:was|has been) shut ?down",
        CoordError,
        "The cluster has ended the job, or its master does not answer any more.",
        "Spark's log says why, above: look for 'killed' or 'unresponsive'. Executors that cannot "
        "begin leave their reason in the logs of their workers. Then start the job again.",
    ),
    (
        r"Python worker exited unexpectedly",
        WorkerEnded,
        "A Python worker of the job was ended from outside, perhaps for want of memory.",
        "Start the job again: the batch runs again and is written once. If workers end so again, "
        "raise their memory. After two starts that ended so with one batch it plans half as many "
        "records.",
    ),
)
_KNOWN_OF_ARCHIVE: Final = (
    (
        r"KAFKA_DATA_LOSS|Some data may have been lost because they are not available in Kafka",
        CoordError,
        "History was deleted from its topic while it was read.",
        "Nothing: the next try goes on behind it, and leaves a HistoryLost event.",
    ),
    *(
        (pattern, kind, what, hint.replace(_SMALLER, _AGAIN))
        for pattern, kind, what, hint in _KNOWN
        if kind is not StartRefused
    ),
)
#: The claims query has a log of its own, and rebuilds from snapshots.
_KNOWN_OF_CLAIMS: Final = (
    (
        r"KAFKA_DATA_LOSS|Some data may have been lost because they are not available in Kafka",
        LogCut,
        "Messages were deleted from the coordination topic before the query had read them.",
        "Nothing: the query begins behind them, and history says so.",
    ),
    *(
        (
            pattern,
            kind,
            what,
            hint.replace(_COME_BACK, _CLAIMS_COME_BACK).replace(_SMALLER, _SMALLER_CLAIMS),
        )
        for pattern, kind, what, hint in _KNOWN
    ),
)
_FILE: Final = re.compile(r"(?:hdfs|s3a|abfss|gs|file):/[^\s:,\]]+")


def explain(problem: BaseException, checkpoint: str) -> CoordError | None:
    """The error for a query's exception; None: it is not recognised."""
    return _explained(problem, f"checkpoint {checkpoint}", _KNOWN)


def explain_archive(problem: BaseException) -> CoordError | None:
    """The same of the archive, which has no state and is not rebuilt."""
    return _explained(problem, "the archive", _KNOWN_OF_ARCHIVE)


def explain_claims(problem: BaseException, checkpoint: str) -> CoordError | None:
    """The same of the claims query; LogCut: it can begin behind what is gone."""
    return _explained(problem, f"checkpoint {checkpoint}", _KNOWN_OF_CLAIMS)


def _explained(problem: BaseException, place: str, known: tuple[_Known, ...]) -> CoordError | None:
    if isinstance(problem, KafkaException) and (wrong := wrong_option(problem)):
        return wrong
    text = str(problem)
    for pattern, kind, what, hint in known:
        if found := re.search(pattern, text):
            file = _FILE.search(text, found.start(), found.start() + 2_000)
            named = found.groupdict("unknown")
            where = file.group() if file else place
            return kind(what.format(**named), where, hint.format(**named))
    return None


def has_java_ended(folder: CheckpointFolder) -> bool:
    """Whether Java has: for want of memory (code 52) it tells nobody; it may be a kill, too."""
    from py4j.protocol import Py4JNetworkError

    try:
        folder.has_batches()
    except (Py4JNetworkError, OSError):
        return True
    return False
