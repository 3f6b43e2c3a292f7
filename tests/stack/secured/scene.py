"""What each role does, as far as it asks brokers for something, by the code that does it."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Final

from coordlib.cli.main import main
from coordlib.client import CoordinatedConsumer
from coordlib.client.spark.progress import Publication
from coordlib.errors import CoordError, NotAllowed
from coordlib.history.topics_read import ArchivedTopics
from coordlib.kafka import topics
from coordlib.kafka.compacted import newest_by_key
from coordlib.kafka.reading import read_to_end
from coordlib.kafka.roles import Right, Role, rights
from coordlib.local.private_files import write_private
from coordlib.local.stack import Stack
from coordlib.streaming.plane import groups
from coordlib.streaming.sink import TransactionalSink
from coordlib.streaming.sink_producer import open_producer
from tests.stack.secured.principals import Principals

#: The topic that members share, and a prefix at which no job runs.
TOPIC: Final = "orders"
TRIAL: Final = "trial"
RECORDS: Final = 20
GROUP: Final = "billing"
_PATIENCE_S: Final = 60.0
_numbers: Final = count(1)

Options = Mapping[str, str]


@dataclass(frozen=True)
class Scene:
    """A secured stack on which roles do their work."""

    stack: Stack
    principals: Principals

    def rights_of(self, role: Role) -> tuple[Right, ...]:
        """All rows of a role, as this stack's tests need them."""
        prefix = TRIAL if role is Role.JOB else self.stack.prefix
        has_topics = role in (Role.MEMBER, Role.READER, Role.OPERATOR)
        return rights(role, prefix, [TOPIC] if has_topics else [])

    def lacking(self, role: Role, right: Right | None) -> Options:
        """Somebody with all rows of a role but this one."""
        return self.principals.new([each for each in self.rights_of(role) if each != right])

    def work(self, role: Role, options: Options) -> None:
        """Do what this role is for. Raises CoordError."""
        _WORKS[role](self, options)

    def command(self, options: Options, *words: str) -> None:
        """Run `coord` with these options from a file. Raises what it said, as CoordError."""
        file = Path(self.stack.home) / "clients" / f"test-{os.getpid()}-{next(_numbers)}.properties"
        write_private(file, "".join(f"{key}={value}\n" for key, value in options.items()))
        out, told = StringIO(), StringIO()
        servers = ("--bootstrap-servers", options["bootstrap.servers"])
        with redirect_stdout(out), redirect_stderr(told):
            code = main([*words, *servers, "--kafka-file", str(file)])
        if code != 0:
            kind = NotAllowed if "A right is missing" in told.getvalue() else CoordError
            raise kind(told.getvalue().strip(), f"exit code {code}")


def _job(scene: Scene, options: Options) -> None:
    """Its start, on a prefix of its own: another driver would fence the one that runs."""
    topics.require(options, TRIAL)
    plane = groups(TRIAL)
    sink = TransactionalSink(
        plane,
        partial(open_producer, plane, dict(options), 60_000),
        partial(newest_by_key, options),
        client_options=dict(options),
    )
    sink.read_progress()
    sink.open()
    sink.tell_loading(1)
    newest_by_key(options, f"{TRIAL}.responses", 0)


def _archive(scene: Scene, options: Options) -> None:
    ArchivedTopics(options, scene.stack.prefix).bounds()
    for topic in ("events", "groups", "committed", "lag"):
        _read(scene, options, topic)


def _member(scene: Scene, options: Options) -> None:
    """Join a group, read a record, and commit."""
    config = {**options, "group.id": f"{GROUP}-{next(_numbers)}", "auto.offset.reset": "earliest"}
    with CoordinatedConsumer({**config, "session.timeout.ms": 9_000}) as consumer:
        consumer.subscribe([TOPIC])
        _until(lambda: (got := consumer.poll(1.0)) is not None and got.error() is None)
        consumer.commit()


def _publisher(scene: Scene, options: Options) -> None:
    publication = Publication(options, f"query-{next(_numbers)}", scene.stack.prefix)
    ends = {TOPIC: {"0": 3}}
    source = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": ends}
    publication.hear({"batchId": 1, "sources": [source]})
    assert publication.close(30), "the log did not take the positions"


def _reader(scene: Scene, options: Options) -> None:
    for topic in ("assignments", "events"):
        _read(scene, options, topic)
    scene.command(options, "groups", "list")
    scene.command(options, "groups", "describe", GROUP)


def _operator(scene: Scene, options: Options) -> None:
    prefix = f"{scene.stack.prefix}.more-{next(_numbers)}"
    create = ("topics", "create", "--prefix", prefix, "--shards", "1", "--responses", "1")
    scene.command(options, *create, "--replication", "1")
    scene.command(options, "topics", "check")
    scene.command(options, "groups", "describe", GROUP)
    scene.command(options, "offsets", "delete", GROUP, "--topics", "nothing", "--yes")


def _read(scene: Scene, options: Options, topic: str) -> None:
    for shard in range(scene.stack.shards):
        list(read_to_end(options, f"{scene.stack.prefix}.{topic}", shard))


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"


_WORKS: Final[dict[Role, Callable[[Scene, Options], None]]] = {
    Role.JOB: _job,
    Role.ARCHIVE: _archive,
    Role.MEMBER: _member,
    Role.PUBLISHER: _publisher,
    Role.READER: _reader,
    Role.OPERATOR: _operator,
}
