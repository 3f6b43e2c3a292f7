"""The cluster that a command works on, and the coordination topic or coordinator that it asks."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from cyclopts import Parameter

from coordlib.cli.kit.options import require_topic
from coordlib.cli.kit.output import Format, confirm, now, print_json, print_table, visible
from coordlib.core.wire.topics import COORDINATION_TOPIC
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError, SetupError
from coordlib.folders import folder_named
from coordlib.kafka.options import SERVERS, KafkaOptions, read_options
from coordlib.kafka.roles import Role
from coordlib.local.home import DEFAULT_STACK, STACK_VARIABLE, command_for, stack_home

if TYPE_CHECKING:
    from coordlib.client.admin import Admin
    from coordlib.client.claims.admin import Survey
    from coordlib.client.claims.transport import LogView

T = TypeVar("T")
DEFAULT_PREFIX = "coord"
SERVERS_VARIABLE = "COORD_BOOTSTRAP_SERVERS"
FILE_VARIABLE = "COORD_KAFKA_FILE"
#: A broker on the other side of the world answers within this; a wrong address never does.
REACH_TIMEOUT_S = 5.0


def servers_named(_: Any, tokens: Sequence[Any]) -> str | None:
    """The brokers that were named; a variable without text is an unset one.

    Raises:
        SetupError: the option has no text. A shell makes it of a variable that is not set, and
            the local stack was not meant then.
    """
    (token,) = tokens
    if token.value.strip():
        return str(token.value)
    if token.keyword == SERVERS_VARIABLE:
        return None
    raise SetupError(
        "No cluster is named.",
        f"--bootstrap-servers {token.value[:200]!r}",
        "Give HOST:PORT, or leave the option out for the local stack.",
    )


def file_named(_: Any, tokens: Sequence[Any]) -> str | None:
    """The file that was named; a variable without text is an unset one."""
    (token,) = tokens
    is_unset = token.keyword == FILE_VARIABLE and not token.value.strip()
    return None if is_unset else str(token.value)


def require_topic_prefix(_: Any, prefix: str | None) -> None:
    """Raises SetupError for what Kafka takes as no part of a topic's name."""
    from coordlib.kafka.topics import require_prefix

    if prefix is not None:
        require_prefix(prefix)


def require_stack_name(_: Any, name: str) -> None:
    """Raises SetupError for what is no name, but may be a path."""
    stack_home(name)


def require_stack_folder(_: Any, folder: str | None) -> None:
    """Raises SetupError for what names no folder."""
    if folder is not None:
        folder_named(folder, "--stack-folder")


def require_folder_or_uri(_: Any, tables: str | None) -> None:
    """Raises SetupError for what names no folder; the root of a disk would be taken for one."""
    if tables is not None:
        folder_named(tables, "--tables", may_be_uri=True)


StackName = Annotated[
    str, Parameter(name="--stack", env_var=STACK_VARIABLE, validator=require_stack_name)
]
StackFolder = Annotated[
    str | None, Parameter(name="--stack-folder", validator=require_stack_folder)
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How to print."""

    format: Annotated[Format, Parameter(env_var="COORD_FORMAT")] = "text"
    """text: columns; json: one object, keys named as the columns."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where(Output):
    """Where to look."""

    bootstrap_servers: Annotated[
        str | None,
        Parameter(env_var=SERVERS_VARIABLE, alias="-b", converter=servers_named),
    ] = None
    """host:port[,host:port] of a Kafka cluster; by default the file's or the local stack's."""
    prefix: Annotated[
        str | None, Parameter(env_var="COORD_PREFIX", validator=require_topic_prefix)
    ] = None
    """First part of the topic names; by default the local stack's, or "coord"."""
    kafka: Annotated[list[str], Parameter(alias="-X", negative="", show_default=False)] = field(
        default_factory=list
    )
    """key=value for librdkafka; ${ENV:NAME} takes a secret from the environment."""
    kafka_file: Annotated[str | None, Parameter(env_var=FILE_VARIABLE, converter=file_named)] = None
    """File with such options, a line each; by default that of a secured local stack's operator."""
    stack: StackName = DEFAULT_STACK
    """Name of the local stack: its folder below .coord/stacks."""
    stack_folder: StackFolder = None
    """Folder of a local stack elsewhere."""

    @property
    def is_local(self) -> bool:
        """Whether the local stack is meant."""
        return self.servers is None

    @property
    def servers(self) -> str | None:
        """The brokers that were named, as an option or in the file; None: those of a local stack.

        Raises SetupError: the file cannot be read, or there is one and no brokers are named. Who
        names options of a cluster does not mean the local stack.
        """
        if self.bootstrap_servers is not None or self.kafka_file is None or self.names_stack:
            return self.bootstrap_servers
        found = read_options(self.kafka_file).get(SERVERS)
        if not found:
            raise SetupError(
                "No cluster is named: the file of options has no bootstrap.servers.",
                f"--kafka-file {self.kafka_file}",
                "Give --bootstrap-servers HOST:PORT, or write bootstrap.servers=HOST:PORT into the "
                f"file. For the local stack leave the file out, and unset {FILE_VARIABLE}.",
            )
        return found

    @property
    def names_stack(self) -> bool:
        """Whether another stack than the default one is named."""
        return self.stack != DEFAULT_STACK or self.stack_folder is not None

    def local(self) -> Any:
        """The local stack, running or not."""
        return local_stack(self.stack, self.stack_folder)

    def topic_prefix(self) -> str:
        """The prefix that was given, or the local stack's own."""
        if self.prefix is not None:
            return self.prefix
        return str(self.local().status().prefix) if self.is_local else DEFAULT_PREFIX

    def client(self, user: str = Role.OPERATOR) -> dict[str, str]:
        """librdkafka's options with `bootstrap.servers`.

        Args:
            user: who is meant in a secured local stack.

        Raises:
            CannotReach: the local stack was never started.
        """
        servers = self.servers
        if servers is None:
            servers = self._local_servers()
        options = KafkaOptions.parse(self.kafka, file=self._file(user)).librdkafka()
        return options | {"bootstrap.servers": servers}

    def _file(self, user: str) -> str | None:
        """The file that was named, or that of the user in a secured local stack."""
        if self.kafka_file is not None or not self.is_local:
            return self.kafka_file
        secured = self.local().secured
        return None if secured is None else str(secured.file_of(user))

    def _local_servers(self) -> str:
        local = self.local()
        servers = local.status().bootstrap_servers
        if servers is None:
            raise CannotReach(
                "The local stack was never started.",
                f"stack {local.home}",
                f"Run: {command_for(local.home, 'up')} — or name a cluster: --bootstrap-servers "
                "HOST:PORT",
            )
        return str(servers)

    def _hint(self) -> str:
        if not self.is_local:
            return "Check --bootstrap-servers, --kafka and --kafka-file."
        return f"Run: {command_for(self.local().home, 'up')}"

    def reach(self, user: str = Role.OPERATOR) -> dict[str, Any]:
        """The cluster's topics by name, with their metadata; `user` as for `client`.

        Raises:
            CannotReach: no broker answers within a few seconds.
            SetupError: an option is wrong.
        """
        from coordlib.kafka.cluster import topics_of

        return topics_of(self.client(user), REACH_TIMEOUT_S, self._hint())

    def read(self, reader: Callable[..., T], *arguments: object) -> tuple[T, datetime]:
        """What a reader finds in the topics, and when it began to look.

        Args:
            reader: takes librdkafka's options, the cluster's topics, the prefix and `arguments`.
        """
        topics, as_of_time = self.reach(), now()
        return reader(self.client(), topics, self.topic_prefix(), *arguments), as_of_time


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhereTables(Where):
    """Where to look, with the history's tables."""

    tables: Annotated[
        str | None, Parameter(env_var="COORD_TABLES", validator=require_folder_or_uri)
    ] = None
    """Folder or URI of the Delta tables; by default the local stack's."""

    def tables_dir(self) -> str:
        """The tables that are meant.

        Raises:
            SetupError: a cluster was named, and no tables.
        """
        if self.tables is not None:
            is_uri = "://" in self.tables
            return self.tables if is_uri else str(folder_named(self.tables, "--tables"))
        if not self.is_local:
            raise SetupError(
                "The history of this cluster is in an unknown place.",
                f"--bootstrap-servers {self.servers}",
                "Name the folder that the archive writes to: --tables FOLDER",
            )
        return str(self.local().tables)


def local_stack(name: str, folder: str | None = None) -> Any:
    """The stack on this machine, running or not.

    Raises:
        SetupError: the name or the folder is none, or both are given.
    """
    from coordlib.local.stack import Stack

    return Stack(named_stack(name, folder))


def named_stack(name: str, folder: str | None) -> str | Path:
    """A name, or the folder that was named in its place.

    Raises:
        SetupError: both are given. A name from the environment gives way to a folder.
    """
    if folder is None:
        return name
    if name not in (DEFAULT_STACK, os.environ.get(STACK_VARIABLE)):
        raise SetupError(
            "Two stacks are named.",
            f"--stack {name[:200]!r} --stack-folder {folder[:200]!r}",
            "Name one of them.",
        )
    return folder_named(folder, "--stack-folder")


#: Defaults of the commands: the local stack, as text.
HERE = Where()
TABLES_HERE = WhereTables()


RESULT_COLUMNS: Final = ("TOPIC", "PARTITION", "ERROR", "MESSAGE")


@contextmanager
def asking(where: Where) -> "Iterator[Admin]":
    """A client of the coordinator. Raises CannotReach, SetupError."""
    from coordlib.client.admin import Admin

    where.reach()
    with Admin(where.client(), where.topic_prefix()) as admin:
        yield admin


@contextmanager
def agreed(where: Where, what: str, place: str, yes: bool) -> "Iterator[Admin]":
    """The same, once the user has agreed; nobody is asked where no broker answers.

    Raises CannotReach, SetupError; and as `confirm`.
    """
    from coordlib.client.admin import Admin

    where.reach()
    confirm(what, place, yes)
    with Admin(where.client(), where.topic_prefix()) as admin:
        yield admin


def tell_results(
    where: Where, command: str, cluster: str, rows: Sequence[Any], **fields: object
) -> int:
    """Print each refused row, or in JSON all of them.

    Returns the number of rows that were accepted.
    """
    lines = [_line(row) for row in rows]
    refused = [line for line in lines if line["error"] != ErrorCode.NONE.name]
    if where.format == "json":
        print_json(command, now(), cluster=cluster, results=lines, **fields)
    elif refused:
        columns = [name for name in RESULT_COLUMNS if any(name.lower() in each for each in refused)]
        print_table(columns, [[each.get(name.lower()) for name in columns] for each in refused])
    return len(lines) - len(refused)


def _line(row: Any) -> Mapping[str, object]:
    """A row; those about topics have no partition."""
    line: dict[str, object] = {"topic": row.topic}
    if hasattr(row, "partition"):
        line["partition"] = row.partition
    line["error"] = row.error
    if isinstance(row.message, str):
        line["message"] = row.message
    return line


def pointer(name: str) -> str:
    """What to do with a cluster's name."""
    return f"This is a cluster of brokers. See: coord cluster describe {visible(name)}"


@contextmanager
def of_a_group(where: Where, name: str) -> Iterator[None]:
    """A group that is not found may be a cluster: then the error says so.

    Raises:
        GroupError: as the block raised it, perhaps with another hint.
    """
    try:
        yield
    except GroupError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND and is_a_cluster(where, name):
            raise GroupError(problem.code, problem.where, pointer(name)) from problem
        raise


def is_a_cluster(where: Where, name: str) -> bool:
    """Whether the topics have a cluster of this name; no, where they cannot be read."""
    from coordlib.cli.kit.reading import is_cluster

    with suppress(CoordError):  # what is to be told has gone wrong already
        return is_cluster(where.client(), where.reach(), where.topic_prefix(), name)
    return False


TOPIC_VARIABLE: Final = "COORD_CLAIMS_TOPIC"
_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def require_claims_topic(_: Any, name: str | None) -> None:
    """Raises SetupError for what is no topic, or names an interval beyond the bounds."""
    if name is None:
        return
    from coordlib.core.wire.claims import heartbeat_interval_ms

    require_topic(_, name)
    try:
        heartbeat_interval_ms(name)
    except ValueError as problem:
        raise SetupError(
            str(problem), f"--claims-topic {name[:200]!r}", "Name another."
        ) from problem


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhereClaims(Where):
    """Where to look, with the coordination topic."""

    claims_topic: Annotated[
        str, Parameter(env_var=TOPIC_VARIABLE, validator=require_claims_topic)
    ] = COORDINATION_TOPIC
    """The coordination topic."""

    @contextmanager
    def survey(self) -> "Iterator[Survey]":
        """The coordination topic, opened. Raises CannotReach, SetupError."""
        from coordlib.client.claims.admin import Survey

        self.reach()
        survey = Survey(self.quiet_client(), self.claims_topic, self.topic_prefix())
        try:
            yield survey
        finally:
            survey.close()

    def quiet_client(self) -> dict[str, Any]:
        """librdkafka's options, without its own lines on stderr: ours say the same."""
        return {**self.client(), "log_level": 0}


CLAIMS_HERE: Final = WhereClaims()


def duration_s(_: Any, tokens: Any) -> int:
    """`90s`, `10m`, `2h`, `1d` as seconds. Raises ValueError for what is none."""
    (token,) = tokens
    found = _DURATION.fullmatch(token.value)
    if found is None:
        raise ValueError(f'"{token.value[:100]}" is not a time like 90s, 10m, 2h or 1d.')
    return int(found[1]) * _SECONDS[found[2]]


Duration = Annotated[int, Parameter(converter=duration_s)]


def as_of(views: "dict[int, LogView]") -> str:
    """`m0-12 m3-84213`: the newest record that was judged of each coordination partition."""
    read = [(number, view.position - 1) for number, view in sorted(views.items()) if view.position]
    return " ".join(f"m{number}-{offset}" for number, offset in read) or "an empty log"
