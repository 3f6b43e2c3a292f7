"""Options of every Kafka client that the engine opens: whose keys they are, security, files."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from coordlib.errors import SetupError
from coordlib.redaction import REDACTED, SECRET, name_alone

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

#: Those that users set on a CoordinatedConsumer are its own: they never come here.
CONSUMERS: Final = frozenset(
    {
        *("group.id", "group.instance.id", "partition.assignment.strategy", "session.timeout.ms"),
        *("heartbeat.interval.ms", "group.protocol.type", "group.protocol"),
        *("group.remote.assignor", "coordinator.query.interval.ms", "max.poll.interval.ms"),
        *("enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store"),
        *("queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms"),
        *("fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes"),
        *("fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "offset.store.method"),
        *("isolation.level", "enable.partition.eof", "check.crcs", "auto.commit.enable"),
        *("auto.offset.reset", "offset.store.path", "offset.store.sync.interval.ms"),
        *(
            "consume.callback.max.messages",
            "max.poll.records",
            "allow.auto.create.topics",
            "on_commit",
        ),
    }
)
PRODUCERS: Final = frozenset(
    {
        *("transactional.id", "transaction.timeout.ms", "enable.idempotence"),
        *("enable.gapless.guarantee", "queue.buffering.max.messages"),
        *("queue.buffering.max.kbytes", "queue.buffering.max.ms", "linger.ms"),
        *("message.send.max.retries", "retries", "queue.buffering.backpressure.threshold"),
        *("compression.codec", "compression.type", "batch.num.messages", "batch.size"),
        *("delivery.report.only.error", "sticky.partitioning.linger.ms", "request.required.acks"),
        *("acks", "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"),
        *("queuing.strategy", "produce.offset.report", "partitioner", "compression.level"),
        *("on_delivery",),
    }
)
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")
_TRANSACTIONAL: Final = "transactional.id"


def shared(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that hold for every kind of client."""
    return {key: options[key] for key in options if key not in CONSUMERS and key not in PRODUCERS}


def for_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those of consumers."""
    return {key: options[key] for key in options if key not in CONSUMERS}


def require_servers(options: Mapping[str, Any]) -> None:
    """Raises SetupError: no brokers are named, so nobody would ever answer."""
    if not any(options.get(key) for key in _SERVERS):
        hint = 'For example {"bootstrap.servers": "localhost:9092"}.'
        raise SetupError("The options name no brokers.", _SERVERS[0], hint)


def refuse_transactional(options: Mapping[str, Any]) -> None:
    """Raises SetupError: a key that promises transactions, for a client that makes none."""
    if _TRANSACTIONAL in options:
        hint = "Leave it out here, and give it to the CoordinatedProducer."
        raise SetupError(
            f"{_TRANSACTIONAL} is a producer's key.", repr(options[_TRANSACTIONAL]), hint
        )


SERVERS = "bootstrap.servers"
_ENV = re.compile(r"\$\{ENV:(\w+)\}")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

#: Keys of only one of the two clients; all others that are not translated go to both.
_JAVA_ONLY = ("ssl.truststore.", "ssl.keystore.", "sasl.jaas.", "sasl.login.", "sasl.client.")
_LIBRDKAFKA_ONLY = (
    *("debug", "log_level", "log.", "statistics.", "broker.address.", "socket.keepalive."),
    *("socket.timeout.ms", "enable.ssl.certificate.verification", "ssl.ca.certificate.stores"),
)
#: librdkafka's key, and whether it names a file, to the key under which Java takes the content.
_PEM = {
    "ssl.ca.location": ("ssl.truststore.certificates", True),
    "ssl.ca.pem": ("ssl.truststore.certificates", False),
    "ssl.certificate.location": ("ssl.keystore.certificate.chain", True),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain", False),
    "ssl.key.location": ("ssl.keystore.key", True),
    "ssl.key.pem": ("ssl.keystore.key", False),
}
_JAAS = "sasl.jaas.config"
#: Java's key to librdkafka's, where the value is the same.
_FROM_JAVA = {java: key for key, (java, is_file) in _PEM.items() if not is_file} | {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
_STORES = {"ssl.truststore.location": "ssl.truststore", "ssl.keystore.location": "ssl.keystore"}
_STORE_TYPES = frozenset(f"{each}.type" for each in _STORES.values())
#: One PEM file of Java's has the certificate chain and the key.
_OF_STORE = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
}
_PEM_HINT = (
    "Use PEM: ssl.truststore.type=PEM with ssl.truststore.location, or "
    "ssl.truststore.certificates; ssl.keystore.* in the same way."
)
_JAAS_LINE = re.compile(r"\s*(?P<module>[\w.]+)\s+required\b(?P<options>.*?);?\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')
_LOGIN = frozenset(
    {
        *("sasl.username", "sasl.password", "sasl.mechanism", "sasl.mechanisms"),
        *("sasl.oauthbearer.method", "sasl.oauthbearer.client.id"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope"),
    }
)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options in librdkafka's spelling, without the bootstrap servers."""

    #: Environment references are resolved: the values are secrets in clear. Hence not in repr.
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls,
        arguments: Iterable[str] = (),
        table: Mapping[str, object] | None = None,
        file: str | Path | None = None,
    ) -> Self:
        """From repeated `key=value` arguments, which win, a file, and a `[kafka]` table.

        The file may name bootstrap.servers, as client programs need them; here they are left out.

        Raises:
            SetupError: an argument without "=", a variable that is not set, bootstrap.servers in
                arguments or table, transactional.id, or a file that cannot be read.
        """
        values = dict(_flatten(table or {}))
        if file is not None:
            values |= {k: v for k, v in _lines_of(file).items() if k != SERVERS}
        for argument in arguments:
            key, equals, value = argument.partition("=")
            if not equals or not key:
                raise SetupError(
                    "A Kafka option has the form key=value.",
                    f"--kafka {name_alone(argument)}",
                    "For example: --kafka security.protocol=SSL",
                )
            values[key] = value
        bare = {key.strip().removeprefix("kafka."): value for key, value in values.items()}
        _refuse_bootstrap(bare)
        refuse_transactional(bare)  # each of the job's producers would have it
        return cls({key: _from_environment(key, value) for key, value in bare.items()})

    @classmethod
    def from_java(cls, java: Mapping[str, str]) -> Self:
        """From the options of Kafka's Java clients, without their prefix in Spark.

        Raises:
            SetupError: librdkafka has nothing like a key or value, such as a JKS store.
        """
        values: dict[str, str] = {}
        for key, value in java.items():
            if key == _JAAS:
                values |= _from_jaas(value)
            elif key == "ssl.endpoint.identification.algorithm":
                values[key] = value or "none"
            elif key in _FROM_JAVA:
                values[_FROM_JAVA[key]] = value
            elif key in _STORE_TYPES:
                if value.upper() != "PEM":
                    raise SetupError("Only PEM stores are read.", f"{key}={value}", _PEM_HINT)
            elif key in _STORES:
                if java.get(f"{_STORES[key]}.type", "JKS").upper() != "PEM":
                    raise SetupError("Only PEM stores are read.", key, _PEM_HINT)
                values |= dict.fromkeys(_OF_STORE[key], value)
            elif key.startswith(_JAVA_ONLY):
                raise SetupError("librdkafka has no such option.", f"kafka.{key}", _PEM_HINT)
            else:
                values[key] = value
        return cls(values)

    def librdkafka(self) -> dict[str, str]:
        """For confluent_kafka's Producer, Consumer and AdminClient."""
        return {k: v for k, v in self.values.items() if not k.startswith(_JAVA_ONLY)}

    def spark(self) -> dict[str, str]:
        """For Spark's Kafka source and sink: keys start with `kafka.`.

        Raises:
            SetupError: a certificate or key file cannot be read.
        """
        java: dict[str, str] = {}
        for key, value in self.values.items():
            if key in _PEM:
                java |= _pem(key, value)
            elif key == "ssl.endpoint.identification.algorithm":
                java[key] = "" if value == "none" else value
            elif key not in _LOGIN and not key.startswith(_LIBRDKAFKA_ONLY):
                java[key] = value
        if self.values.get("enable.ssl.certificate.verification") == "false":
            java["ssl.endpoint.identification.algorithm"] = ""
        return {f"kafka.{key}": value for key, value in (_login(self.values) | java).items()}

    def redacted(self) -> dict[str, str]:
        """The options without secrets, to be printed."""
        return {k: REDACTED if SECRET.search(k) else v for k, v in self.values.items()}


def read_options(file: str | Path) -> dict[str, str]:
    """The keys and values of a file as `coord up --secure` writes them, for any client of Kafka's.

    One `key=value` in each line, in librdkafka's spelling; `#` begins a comment line. References
    to the environment are resolved.

    Raises:
        SetupError: it cannot be read, has another line, or names a variable that is not set.
    """
    return {key: _from_environment(key, value) for key, value in _lines_of(file).items()}


def _lines_of(file: str | Path) -> dict[str, str]:
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or type(problem).__name__
        raise SetupError(
            "The file with Kafka's options cannot be read.",
            f"--kafka-file {file}: {reason}",
            "Name a file of lines key=value that this user can read.",
        ) from problem
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.strip().partition("=")
        if not line.strip() or key.startswith("#"):
            continue
        if not equals or not key.strip():
            raise SetupError(
                "A line of the file with Kafka's options has not the form key=value.",
                f"--kafka-file {file}, line {number}",  # not what it says: it may be a password
                "For example: security.protocol=SASL_SSL",
            )
        found[key.strip().removeprefix("kafka.")] = value.strip()
    return found


def wrong_option(problem: "KafkaException") -> SetupError | None:
    """The reason of a client's constructor for an option that it refuses."""
    from confluent_kafka import KafkaError

    error = problem.args[0]
    if error.code() != KafkaError._INVALID_ARG:
        return None
    return SetupError(
        "A Kafka option is wrong.",
        error.str(),
        "Options are librdkafka's. In commands: --kafka k=v",
    )


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """TOML reads an unquoted `security.protocol` as a table in a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield f"{prefix}{key}", str(value).lower()
        else:
            yield f"{prefix}{key}", str(value)


def _refuse_bootstrap(values: Mapping[str, str]) -> None:
    if SERVERS in values:
        raise SetupError(
            "bootstrap.servers is not one of the Kafka options.",
            f"{SERVERS}={values[SERVERS]}",
            "Give it as --bootstrap-servers: then every client has the same.",
        )


def _from_environment(key: str, value: str) -> str:
    def look_up(found: re.Match[str]) -> str:
        name = found[1]
        if name not in os.environ:
            raise SetupError(
                f"The environment variable {name} is not set.",
                f"Kafka option {key}={REDACTED if _hides(key, value) else value}",
                f"Set it before the start, without writing it anywhere: read -rs {name}; "
                f"export {name}",
            )
        return os.environ[name]

    return _ENV.sub(look_up, value)


def _hides(key: str, value: str) -> bool:
    """Whether the value of a secret has more than the reference."""
    return SECRET.search(key) is not None and not _ENV.fullmatch(value)


def _pem(key: str, value: str) -> dict[str, str]:
    java_key, is_file = _PEM[key]
    store = ".".join(java_key.split(".")[:2])
    return {f"{store}.type": "PEM", java_key: _content(key, value) if is_file else value}


def _content(key: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"The file of {key} cannot be read as PEM text.",
            f"{path}: {error}",
            "Name a readable PEM file; a private key must be in PKCS#8 form for Spark.",
        ) from error


def _login(values: Mapping[str, str]) -> dict[str, str]:
    """Java's mechanism and JAAS line, out of librdkafka's user and password or OIDC client."""
    mechanism = values.get("sasl.mechanism") or values.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    java = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER" and "sasl.oauthbearer.client.id" in values:
        java["sasl.login.callback.handler.class"] = _OAUTH_LOGIN
        java["sasl.jaas.config"] = _jaas(
            _OAUTH,
            clientId=values["sasl.oauthbearer.client.id"],
            clientSecret=values.get("sasl.oauthbearer.client.secret", ""),
            scope=values.get("sasl.oauthbearer.scope", ""),
        )
    elif "sasl.username" in values:
        java["sasl.jaas.config"] = _jaas(
            _PLAIN if mechanism == "PLAIN" else _SCRAM,
            username=values["sasl.username"],
            password=values.get("sasl.password", ""),
        )
    return java


def _from_jaas(line: str) -> dict[str, str]:
    """User and password of Java's JAAS line, which is in no text of an error."""
    found = _JAAS_LINE.fullmatch(line)
    if found is None or found["module"] not in (_PLAIN, _SCRAM):
        hint = f"Use {_PLAIN} or {_SCRAM} with username and password."
        raise SetupError("This login is not known here.", f"kafka.{_JAAS}", hint)
    options = {
        key: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for key, quoted, bare in _JAAS_OPTION.findall(found["options"])
    }
    names = {"username": "sasl.username", "password": "sasl.password"}
    return {names[key]: value for key, value in options.items() if key in names}


def _jaas(module: str, **options: str) -> str:
    quoted = (f"{key}={_quote(value)}" for key, value in options.items() if value)
    return f"{module} required {' '.join(quoted)};"


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
