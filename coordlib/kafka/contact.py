"""Why brokers do not answer: TLS, certificates, passwords; found by a second look.

librdkafka reports that no broker answered in time, whatever the reason. So where a first
contact has failed, the handshake is tried once more, by Python's own TLS for the certificate and by
a client whose errors are listened to for the login. A healthy client costs nothing of this.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.kafka.clients import reason_of
from coordlib.kafka.denied import denial, describing
from coordlib.kafka.options import wrong_option

LOOK_S: Final = 3.0
_ENCRYPTED: Final = frozenset({"SSL", "SASL_SSL"})
_SERVERS_LOOKED_AT_MAX: Final = 3
#: OpenSSL's numbers for why a certificate is refused.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


def unreachable(
    options: Mapping[str, Any],
    what: str,
    problem: BaseException,
    mend: str,
    where: str = "",
) -> CoordError:
    """The error to raise when brokers did not answer.

    Args:
        options: librdkafka's, with `bootstrap.servers`.
        what, mend, where: for a reason that only Kafka knows.
    """
    if isinstance(problem, KafkaException) and (wrong := wrong_option(problem)):
        return wrong
    if denied := denial(problem, describing("*"), options):
        return denied
    servers = str(options.get("bootstrap.servers", ""))
    told = reason_of(problem) if isinstance(problem, KafkaException | TimeoutError) else ""
    place = where or servers
    return why_silent(options) or CannotReach(what, f"{place}: {told}" if told else place, mend)


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
    told = f"{where}: {problem.verify_message}"
    if problem.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return CannotReach(
            "The brokers' certificate has expired."
            if problem.verify_code == _EXPIRED
            else "The brokers' certificate is not valid yet.",
            told,
            "Let an operator of the brokers renew it, or correct this machine's clock.",
        )
    if problem.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        return SetupError(
            "The brokers' certificate is for another address.",
            told,
            "Name the brokers as their certificate does: --bootstrap-servers",
        )
    return SetupError(
        "The brokers' certificate is of an authority that is not trusted here.",
        told,
        "Set ssl.ca.location to the certificate of the brokers' authority.",
    )


def _of_login(options: Mapping[str, Any], look_s: float) -> CoordError | None:
    told: list[KafkaError] = []
    listening: dict[str, Any] = {**options, "log_level": 0, "error_cb": told.append}
    admin = AdminClient(listening)
    admin.describe_cluster(request_timeout=look_s)
    return _first_reason(lambda: admin.poll(0.05), told, options, look_s)


def _first_reason(
    poll: Callable[[], Any], told: list[KafkaError], options: Mapping[str, Any], look_s: float
) -> CoordError | None:
    deadline = time.monotonic() + look_s
    while time.monotonic() < deadline:
        poll()
        for error in told:
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
