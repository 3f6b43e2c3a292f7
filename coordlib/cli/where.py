"""Which cluster a command speaks to: the local stack, or any by `--bootstrap-servers`.

Flag before environment before the local stack's own value.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from coordlib.cli.output import Format, say
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka_options import KafkaOptions

DEFAULT_PREFIX = "coord"
DEFAULT_STACK = "local"
#: A broker on the other side of the world answers within this; a wrong address never does.
REACH_TIMEOUT_S = 5.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How to print."""

    format: Annotated[Format, Parameter(env_var="COORD_FORMAT")] = "text"
    """text: columns. json: one object, keys named as the columns."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where(Output):
    """Where to look."""

    bootstrap_servers: Annotated[
        str | None, Parameter(env_var="COORD_BOOTSTRAP_SERVERS", alias="-b")
    ] = None
    """host:port[,host:port] of a Kafka cluster; without it the local stack's."""
    prefix: Annotated[str | None, Parameter(env_var="COORD_PREFIX")] = None
    """First part of the topic names; "coord" unless told."""
    kafka: Annotated[list[str], Parameter(alias="-X", negative="")] = field(default_factory=list)
    """key=value for the Kafka client, in librdkafka's spelling; ${ENV:NAME} hides a secret."""
    stack: Annotated[str, Parameter(env_var="COORD_STACK_NAME")] = DEFAULT_STACK
    """Name of the local stack."""

    @property
    def is_local(self) -> bool:
        """Whether the local stack is meant."""
        return self.bootstrap_servers is None

    def topic_prefix(self) -> str:
        """The prefix that is meant: told, or the local stack's own."""
        if self.prefix is None and self.is_local:
            return str(local_stack(self.stack).status().prefix)
        return self.prefix or DEFAULT_PREFIX

    def client(self) -> dict[str, str]:
        """librdkafka's options with `bootstrap.servers`.

        Raises:
            CannotReach: the local stack was never started.
        """
        servers = self.bootstrap_servers or self._local_servers()
        return KafkaOptions.parse(self.kafka).librdkafka() | {"bootstrap.servers": servers}

    def _local_servers(self) -> str:
        servers = local_stack(self.stack).status().bootstrap_servers
        if servers is None:
            raise CannotReach(
                "The local stack was never started",
                f"stack {self.stack}",
                "Run: coord up — or name a cluster: --bootstrap-servers HOST:PORT",
            )
        return str(servers)

    def reach(self) -> dict[str, Any]:
        """The cluster's topics by name, with their metadata.

        Raises:
            CannotReach: no broker answers within a few seconds.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient

        client = self.client()
        try:
            admin = AdminClient({**client, "log_level": "0"})
            return dict(admin.list_topics(timeout=REACH_TIMEOUT_S).topics)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError._INVALID_ARG:
                raise SetupError(
                    "A Kafka option is wrong", error.str(), "Options are librdkafka's: --kafka k=v"
                ) from problem
            raise CannotReach(
                "No Kafka broker answers",
                f"{client['bootstrap.servers']}: {error.str()}",
                "Run: coord up" if self.is_local else "Check --bootstrap-servers and --kafka.",
            ) from problem


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhereTables(Where):
    """Where to look, with the history's tables."""

    tables: Annotated[str | None, Parameter(env_var="COORD_TABLES")] = None
    """Folder or URI of the Delta tables; without it the local stack's."""

    def tables_dir(self) -> str:
        """The tables that are meant.

        Raises:
            SetupError: a cluster was named, and no tables.
        """
        if self.tables is not None:
            return self.tables
        if not self.is_local:
            raise SetupError(
                "It is not known where this cluster's history lies",
                f"--bootstrap-servers {self.bootstrap_servers}",
                "Name the folder that the archive writes to: --tables FOLDER",
            )
        return str(local_stack(self.stack).tables)


def progress() -> Callable[[str], None]:
    """Where commands that take long tell what they do: stderr."""
    return say


def local_stack(name: str) -> Any:
    """The stack on this machine, running or not."""
    from coordlib.local.stack import Stack

    return Stack(name)


#: Defaults of the commands: the local stack, as text.
HERE = Where()
TABLES_HERE = WhereTables()
