"""Errors: Kafka's codes as values, and the few exceptions that shells and clients raise.

    CoordError                what happened · which thing · what to do next
    ├── SetupError            the machine, a port, a jar, a setting
    │   ├── NotReady          something here did not start or is busy: another try may help
    │   └── NotAllowed        the brokers refuse it: a right is missing
    ├── StartRefused          the job found topics or a checkpoint that it must not touch
    ├── TooMuchAtOnce         a batch needs more than workers or driver have; less is planned next
    ├── WorkerEnded           a Python worker was ended from outside, perhaps for want of memory
    ├── LogCut                records were deleted before a query had judged them
    ├── DriverFenced          a newer driver took over the transactional id
    ├── ReplayDiffers         a batch ran again and gave other bytes
    ├── CannotReach           no broker, no job, no table
    │   └── AnotherTable      a Delta table is not the one that was written to before
    └── GroupError            the coordinator refused a request (carries an ErrorCode)

Inside the core nothing is raised for a bad request: a refusal is an effect that carries an
ErrorCode. Numbers and names are Apache Kafka's (`org.apache.kafka.common.protocol.Errors`), so
that anybody who knows them from a broker knows them here.
"""

from enum import Enum


class ErrorCode(Enum):
    """Kafka's error: number, whether a client may simply try again, and what to do about it."""

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "Look into the job's log, and into the history of this name.",
    )
    NONE = (0, False, "Nothing: the request was accepted.")
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        True,
        "Check topic and partition: there is none, or it is being deleted.",
    )
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "Stop leading this partition: another broker leads it, or none.",
    )
    OFFSET_METADATA_TOO_LARGE = (12, False, "Commit with shorter metadata.")
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "Wait: the coordinator reads its state back; what was asked is answered then.",
    )
    COORDINATOR_NOT_AVAILABLE = (
        15,
        True,
        "What has this name is quarantined or being deleted; look at its events, release it, "
        "try again.",
    )
    NOT_COORDINATOR = (16, True, "Find the shard of this name again.")
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "Name the topic with letters, digits, dots, underscores and dashes.",
    )
    ILLEGAL_GENERATION = (22, False, "Drop what you own without committing, and join again.")
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "Offer the group's protocol type and a protocol that every member supports.",
    )
    INVALID_GROUP_ID = (24, False, "Give a name.")
    UNKNOWN_MEMBER_ID = (25, False, "Drop what you own, and join again with an empty member id.")
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "Choose session and rebalance timeouts within the coordinator's bounds.",
    )
    REBALANCE_IN_PROGRESS = (27, True, "Commit, let go, and join again under your member id.")
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        False,
        "Delete offsets that nobody reads, or raise the bounds of offsets in the configuration.",
    )
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "Leave it to the job: only its driver writes this.")
    UNSUPPORTED_VERSION = (35, False, "Use a type and version that this coordinator knows.")
    TOPIC_ALREADY_EXISTS = (36, False, "Use the topic that is there, or another name.")
    INVALID_PARTITIONS = (37, False, "Ask for more partitions than there are, and at least one.")
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "Ask for at least one replica, and no more than there are Active brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, False, "Name registered brokers, each once per partition.")
    NOT_CONTROLLER = (
        41,
        True,
        "Read the metadata again: this controller never gave such an epoch.",
    )
    INVALID_REQUEST = (42, False, "Correct the field that the message names.")
    POLICY_VIOLATION = (
        44,
        False,
        "Ask in parts, or delete topics that nobody needs: that is more than is allowed.",
    )
    INVALID_TXN_STATE = (48, False, "Begin again: this transaction is not open any more.")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "Ask for a producer id again: this one is not known.")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "Choose a timeout within the coordinator's bounds.")
    CONCURRENT_TRANSACTIONS = (51, True, "Wait until a transaction that is open has ended.")
    KAFKA_STORAGE_ERROR = (56, True, "Fix the storage of this broker.")
    REASSIGNMENT_IN_PROGRESS = (60, False, "Wait for the move that is under way, or cancel it.")
    NON_EMPTY_GROUP = (68, False, "Stop the members first.")
    GROUP_ID_NOT_FOUND = (69, False, "Check the name.")
    FENCED_LEADER_EPOCH = (74, True, "Stop leading in this epoch: a newer one has begun.")
    STALE_BROKER_EPOCH = (77, False, "Stop: a newer process is registered as this broker.")
    MEMBER_ID_REQUIRED = (79, True, "Join again under the member id in this answer.")
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        True,
        "Wait until the first replica is Active and in sync.",
    )
    GROUP_MAX_SIZE_REACHED = (
        81,
        False,
        "Wait for members to leave, send less metadata, or raise the group's limits.",
    )
    FENCED_INSTANCE_ID = (82, False, "Stop: a newer process uses this instance id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "Wait until a replica is Active that may lead.")
    ELECTION_NOT_NEEDED = (84, True, "Nothing: who is to lead leads.")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "Nothing: this partition is not being moved.")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "Stop the members that subscribe to this topic first.")
    UNSTABLE_OFFSET_COMMIT = (88, True, "Wait for the open transaction, then fetch again.")
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        True,
        "Wait, then try again: so much at once would slow all others.",
    )
    PRODUCER_FENCED = (90, False, "Stop: a newer process uses this transactional id.")
    INVALID_UPDATE_VERSION = (95, False, "Read the row in this answer, then ask again.")
    # Kafka's clients may ask for the topic's new id and repeat; an offset is of the old one alone.
    UNKNOWN_TOPIC_ID = (
        100,
        False,
        "Begin the topic again: it was deleted and created again since this was read.",
    )
    BROKER_ID_NOT_REGISTERED = (102, False, "Register this broker first.")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "Check the transactional id.")
    INELIGIBLE_REPLICA = (
        107,
        False,
        "Leave this replica out until its broker is Active in the incarnation that you name.",
    )
    NEW_LEADER_ELECTED = (108, False, "Stop leading this partition: the change has moved it.")
    UNSUPPORTED_ASSIGNOR = (112, False, "Name a strategy that the coordinator has, or none.")
    TRANSACTION_ABORTABLE = (120, False, "Abort the transaction, then begin again.")
    INVALID_REGULAR_EXPRESSION = (128, False, "Correct the expression: it must be RE2's.")
    WRONG_SHARD = (
        1001,
        False,
        "Write to partition abs(javaHash(name)) % shards of the requests topic.",
    )
    PARTITION_NOT_OWNED = (
        1002,
        False,
        "Commit only what is assigned to you: this partition is not, or not since then.",
    )

    def __init__(self, code: int, retriable: bool, what_to_do: str) -> None:
        self.code = code
        self.retriable = retriable
        self.what_to_do = what_to_do


class CoordError(Exception):
    """Three parts: what happened, where (group, member, file, port), what to do next."""

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__("\n".join(part for part in (what, where, hint) if part))


class SetupError(CoordError):
    """The machine lacks something, or a setting is wrong."""


class NotReady(SetupError):
    """A program on this machine did not start, or is busy; the same command may work later."""


class NotAllowed(SetupError):
    """The brokers refuse what was asked, because the principal lacks a right."""


class StartRefused(CoordError):
    """The job will not start on these topics or this checkpoint."""


class TooMuchAtOnce(CoordError):
    """A batch needs more memory than there is: the next start plans fewer records."""


class WorkerEnded(CoordError):
    """A Python worker was ended from outside: by the kernel perhaps, for want of memory."""


class LogCut(CoordError):
    """Records of an input were deleted before they were judged; a query can begin behind them."""


class DriverFenced(CoordError):
    """Another, newer driver writes for this prefix; this one must end."""


class ReplayDiffers(CoordError):
    """A committed batch was run again with other outputs. The next start takes its outcome over."""


class CannotReach(CoordError):
    """Nothing answers at the other end."""


class AnotherTable(CannotReach):
    """A Delta table has come to the place of the one that was written to, or an old copy of it."""


class GroupError(CoordError):
    """The coordinator refused a request."""

    def __init__(self, code: ErrorCode, where: str = "", message: str = "") -> None:
        self.code = code
        super().__init__(code.name, where, message or code.what_to_do)
