"""How clients are opened, and what errors mean: a missing right, brokers that do not answer."""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AclOperation,
    AdminClient,
)

from coordlib.errors import CannotReach, CoordError, NotAllowed, SetupError
from coordlib.kafka.admin import Admin
from coordlib.kafka.options import shared, wrong_option
from coordlib.kafka.roles import UNUSED_GROUPS, Kind, Operation, Right

#: A newer producer has the transactional id.
FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)


def is_fatal(problem: BaseException | KafkaError | None) -> bool:
    """Whether the client that raised or reported this error can no longer be used."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    return isinstance(error, KafkaError) and (error.fatal() or error.code() == KafkaError._FATAL)


#: Every consumer needs a group. This one is never joined, and no offset is committed for it.
READER_GROUP: Final = "coordlib-reader"
#: Another broker leads a partition than the client believes, or the same one in another epoch.
LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


def reader_config(
    options: Mapping[str, Any], *, is_committed: bool = True, log_level: int = 0
) -> dict[str, Any]:
    """The configuration of a consumer that reads assigned partitions and leaves no trace.

    Args:
        options: librdkafka's, with `bootstrap.servers`.
        is_committed: whether it leaves out records of uncommitted transactions.
        log_level: 0: librdkafka's own lines on stderr would repeat what our error says.
    """
    return {
        **options,
        "group.id": READER_GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        "auto.offset.reset": "earliest",  # retention may have passed the position meanwhile
        "enable.partition.eof": True,
        "log_level": log_level,
    }


def open_admin(options: Mapping[str, Any], log_level: int = 0) -> Admin:
    """An admin client. Keep it in a variable: its answers are lost when it is collected.

    Raises SetupError: an option is wrong.
    """
    with opening():
        return Admin({**shared(options), "log_level": log_level})


@contextmanager
def opening() -> Iterator[None]:
    """Where a client is made of a user's keys. Raises SetupError for one that is wrong."""
    try:
        yield
    except (KafkaException, TypeError, ValueError) as problem:
        wrong = wrong_option(problem) if isinstance(problem, KafkaException) else None
        what = "A key cannot be used for a client of Kafka."
        raise wrong or SetupError(what, reason_of(problem), "Keys are librdkafka's.") from problem


def has_moved(problem: KafkaException) -> bool:
    """Whether a partition's leader is another than the client believes: see `Admin.forget`."""
    return problem.args[0].code() in LEADER_MOVED


def reason_of(problem: BaseException | KafkaError) -> str:
    """An error in words: Kafka's in librdkafka's. A future that is late has none of its own."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    if isinstance(error, KafkaError):
        return str(error.str() or error.name())
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or repr(error)


@contextmanager
def reaching(what: str, hint: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Raise CannotReach, with this text and Kafka's own reason, where Kafka does not answer.

    Args:
        options: librdkafka's, for a first contact: wrong passwords and certificates are looked for.
    """
    try:
        yield
    except (KafkaException, TimeoutError) as problem:
        if options is not None:
            raise unreachable(options, f"{what}.", problem, hint) from problem
        raise CannotReach(what, reason_of(problem), hint) from problem


_CODES: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: Of consumers that join no group of Kafka's.
UNUSED: Final = Right(Kind.GROUP, UNUSED_GROUPS, Operation.DESCRIBE, is_prefix=True)


def reading(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.READ)


def writing(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.WRITE)


def describing(topic: str) -> Right:
    return Right(Kind.TOPIC, topic, Operation.DESCRIBE)


def error_of(problem: BaseException | KafkaError | None) -> KafkaError | None:
    """Kafka's error in an exception; None for others."""
    if isinstance(problem, KafkaException):
        problem = problem.args[0] if problem.args else None
    return problem if isinstance(problem, KafkaError) else None


def is_denied(problem: BaseException | KafkaError | None) -> bool:
    """Whether a right is missing.

    An idempotent producer without any right to write fails for ever, and then tells so in words.
    """
    error = error_of(problem)
    if error is None:
        return False
    is_words = error.code() == KafkaError._FATAL and "authorization failed" in error.str().lower()
    return error.code() in _CODES or is_words


def missing(right: Right, options: Mapping[str, Any]) -> NotAllowed:
    """The error for a right that this client lacks.

    Args:
        options: librdkafka's; only who logs in, and where, is shown of them.
    """
    user = options.get("sasl.username")
    principal = f"User:{user}" if user else "this principal"
    return NotAllowed(
        f"A right is missing: {right}.",
        f"{principal} at {options.get('bootstrap.servers', 'these brokers')}",
        "Let an operator of the brokers grant it: coord acl apply --role ROLE --principal "
        f"{'User:NAME' if not user else principal} (coord acl print: what each role needs)",
    )


def refusing(
    options: Mapping[str, Any], right_to: Callable[[str], Right] = describing
) -> Callable[[str], None]:
    """Raises the error for a topic that this client may not see; for `log_bounds`."""

    def refuse(topic: str) -> None:
        raise missing(right_to(topic), options)

    return refuse


def denial(
    problem: BaseException | KafkaError | None, right: Right, options: Mapping[str, Any]
) -> NotAllowed | None:
    """The error to raise where this was needed; None: it failed for another reason."""
    if not is_denied(problem):
        return None
    error = error_of(problem)
    is_of_group = error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    return missing(UNUSED if is_of_group and right.kind is Kind.TOPIC else right, options)


def hidden(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> list[str]:
    """Those of the topics that the brokers hide: there or not, this principal may not know.

    A list of all topics simply leaves them out.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    names = sorted(topics)
    if not names:
        return []
    answers = admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
    return [name for name in names if _is_hidden(answers[name], timeout_s)]


def unwritable(options: Mapping[str, Any], topics: Sequence[str], timeout_s: float) -> list[str]:
    """Those of the topics that this client may not write.

    A transaction that could not begin for want of the right purges its records without a reason.

    Raises:
        KafkaException, TimeoutError: no broker answers.
    """
    admin = open_admin(options)
    answers = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    return [name for name in topics if not _is_writable(answers[name], timeout_s)]


def _is_writable(answer: Any, timeout_s: float) -> bool:
    try:
        allowed = answer.result(timeout_s).authorized_operations
    except KafkaException as problem:
        return not is_denied(problem)
    return allowed is None or AclOperation.WRITE in allowed  # None: brokers without an authorizer


def _is_hidden(answer: Any, timeout_s: float) -> bool:
    try:
        answer.result(timeout_s)
    except KafkaException as problem:
        if problem.args[0].code() < 0:  # librdkafka's own: no broker has answered
            raise
        return is_denied(problem)
    return False


LOOK_S: Final = 3.0
_ENCRYPTED: Final = frozenset({"SSL", "SASL_SSL"})
_SERVERS_LOOKED_AT_MAX: Final = 3
#: OpenSSL's numbers for why a certificate is refused.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


def unreachable(
    options: Mapping[str, Any],
    what: str,
    problem: BaseException,
    hint: str,
    where: str = "",
) -> CoordError:
    """The error to raise when brokers did not answer.

    Args:
        options: librdkafka's, with `bootstrap.servers`.
        what, hint, where: for a reason that only Kafka knows.
    """
    if isinstance(problem, KafkaException) and (wrong := wrong_option(problem)):
        return wrong
    if denied := denial(problem, describing("*"), options):
        return denied
    servers = str(options.get("bootstrap.servers", ""))
    reason = reason_of(problem) if isinstance(problem, KafkaException | TimeoutError) else ""
    place = where or servers
    return why_silent(options) or CannotReach(what, f"{place}: {reason}" if reason else place, hint)


def why_silent(options: Mapping[str, Any], look_s: float = LOOK_S) -> CoordError | None:
    """What a handshake with the brokers shows; None: no reason was found."""
    try:
        servers = list(_servers(options))[:_SERVERS_LOOKED_AT_MAX]
        listening = [server for server in servers if _listens(server, look_s)]
        for server in listening:
            if reason := _of_handshake(options, server, look_s):
                return reason
        has_login = "SASL" in str(options.get("security.protocol", "")).upper()
        return _of_login(options, look_s) if listening and has_login else None
    except (OSError, ValueError, KafkaException):  # no such file, no such option: told elsewhere
        return None


def anybody_listens(options: Mapping[str, Any], look_s: float = LOOK_S) -> bool:
    """Whether a connection to one of the named brokers is taken, by whomever.

    Also where no address can be read of what is named.
    """
    servers = list(_servers(options))[:_SERVERS_LOOKED_AT_MAX]
    return not servers or any(_listens(server, look_s) for server in servers)


def _servers(options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for each in str(options.get("bootstrap.servers", "")).split(","):
        host, _, port = each.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdigit():
            yield host.strip("[]"), int(port)


def _listens(server: tuple[str, int], look_s: float) -> bool:
    try:
        socket.create_connection(server, look_s).close()
    except OSError:
        return False
    return True


def _is_encrypted(options: Mapping[str, Any]) -> bool:
    return str(options.get("security.protocol", "")).upper() in _ENCRYPTED


def _of_handshake(
    options: Mapping[str, Any], server: tuple[str, int], look_s: float
) -> CoordError | None:
    where = f"{server[0]}:{server[1]}"
    if _is_encrypted(options):
        return _refused(_context(options), server, look_s, where)
    if _is_accepted(server, look_s):
        return SetupError(
            "The brokers want TLS at this address.",
            where,
            "Set security.protocol to SSL or SASL_SSL, in the file of --kafka-file or by --kafka.",
        )
    return None


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    file, text = options.get("ssl.ca.location"), options.get("ssl.ca.pem")
    context = ssl.create_default_context(
        cafile=str(file) if file and file != "probe" else None, cadata=str(text) if text else None
    )
    names = str(options.get("ssl.endpoint.identification.algorithm", "https"))
    context.check_hostname = names != "none"
    if str(options.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _refused(
    context: ssl.SSLContext, server: tuple[str, int], look_s: float, where: str
) -> CoordError | None:
    try:
        with socket.create_connection(server, look_s) as plain:
            _shake_hands(context, plain, server[0])
    except ssl.SSLCertVerificationError as problem:
        return _of_certificate(problem, where)
    except (ssl.SSLError, ConnectionResetError, EOFError) as problem:
        return _without_tls(where, getattr(problem, "reason", None) or "the connection was closed")
    except OSError:  # nobody listens: told as ever
        return None
    return None


def _without_tls(where: str, reason: str) -> CannotReach:
    return CannotReach(
        "The brokers do not speak TLS at this address; nothing secret was sent to them.",
        f"{where}: {reason}",
        "Check the port. If the brokers have dropped TLS, let an operator of them restore it.",
    )


def _is_accepted(server: tuple[str, int], look_s: float) -> bool:
    """Whether TLS is spoken there, by whomever."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(server, look_s) as plain:
            _shake_hands(context, plain, server[0])
    except OSError:
        return False
    return True


def _shake_hands(context: ssl.SSLContext, plain: socket.socket, host: str) -> None:
    with context.wrap_socket(plain, server_hostname=host):
        pass


def _of_certificate(problem: ssl.SSLCertVerificationError, where: str) -> CoordError:
    at = f"{where}: {problem.verify_message}"
    if problem.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return CannotReach(
            "The brokers' certificate has expired."
            if problem.verify_code == _EXPIRED
            else "The brokers' certificate is not valid yet.",
            at,
            "Let an operator of the brokers renew it, or correct this machine's clock.",
        )
    if problem.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        return SetupError(
            "The brokers' certificate is for another address.",
            at,
            "Name the brokers as their certificate does: --bootstrap-servers",
        )
    return SetupError(
        "The brokers' certificate is of an authority that is not trusted here.",
        at,
        "Set ssl.ca.location to the certificate of the brokers' authority.",
    )


def _of_login(options: Mapping[str, Any], look_s: float) -> CoordError | None:
    errors: list[KafkaError] = []
    listening: dict[str, Any] = {**options, "log_level": 0, "error_cb": errors.append}
    admin = AdminClient(listening)
    admin.describe_cluster(request_timeout=look_s)
    return _first_reason(lambda: admin.poll(0.05), errors, options, look_s)


def _first_reason(
    poll: Callable[[], Any], errors: list[KafkaError], options: Mapping[str, Any], look_s: float
) -> CoordError | None:
    deadline = time.monotonic() + look_s
    while time.monotonic() < deadline:
        poll()
        for error in errors:
            if error.code() == KafkaError._AUTHENTICATION:
                return _refused_login(error, options)
    return None


def _refused_login(error: KafkaError, options: Mapping[str, Any]) -> SetupError:
    where = f"sasl.username {options.get('sasl.username', '')} at "
    where += str(options.get("bootstrap.servers", ""))
    if "mechanism" in error.str() and "handshake" in error.str():
        return SetupError(
            "The brokers do not offer this way to log in.",
            f"sasl.mechanism {options.get('sasl.mechanism', '')} at "
            f"{options.get('bootstrap.servers', '')}",
            "Set sasl.mechanism to one that the brokers have.",
        )
    return SetupError(
        "The brokers do not accept this user with this password.",
        where,
        "Correct sasl.username and sasl.password, or let an operator of the brokers set them anew.",
    )
