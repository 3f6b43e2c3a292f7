"""What each role does, as far as it asks brokers for something, by the code that does it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from coordlib.cli.main.main import main
from coordlib.cli.transactions.view import find_id
from coordlib.client import BrokerAgent, CoordinatedConsumer, CoordinatedProducer, exactly_once
from coordlib.client.admin import Admin
from coordlib.client.claims import ConsumerOptions, Marshaler
from coordlib.client.claims.admin import Survey
from coordlib.client.spark.progress import Publication
from coordlib.core.wire import api
from coordlib.core.wire.cells import ShardRange
from coordlib.core.wire.offsets import COORDINATOR, KAFKA
from coordlib.core.wire.stored import Layout
from coordlib.core.wire.transactions import COMMIT, TRANSACTION
from coordlib.errors import CoordError, NotAllowed
from coordlib.history.topics_read import ArchivedTopics
from coordlib.job.pipelines import Pipeline, claims, groups
from coordlib.job.progress import OtherCells
from coordlib.job.rebuild import KafkaInput
from coordlib.job.sink import TransactionalSink, open_producer
from coordlib.kafka import coordination, topics
from coordlib.kafka.reading import newest_by_key, newest_decided, read_to_end
from coordlib.kafka.roles import Right, Role, options_of, rights
from coordlib.kafka.transactions import fence
from coordlib.local.home import write_private
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.secured.principals import Principals

#: The topic that members share, and a prefix at which no job runs.
TOPIC: Final = "orders"
TRIAL: Final = "trial"
RECORDS: Final = 20
GROUP: Final = "billing"
#: The coordination topic that the job follows; one of operators alone; groups that share by claims.
COORDINATION: Final = "__marshal.6s"
OPERATED: Final = "__operated.6s"
CLAIMING: Final = "claiming-"
CLUSTER: Final = "shop"
#: What members write in transactions, and how their transactional ids begin.
OUTPUT: Final = "copied-orders"
COPYING: Final = "copying-"
_PATIENCE_S: Final = 60.0
_numbers: Final = count(1)

Options = Mapping[str, str]


def rights_of(role: Role) -> tuple[Right, ...]:
    """All rows of a role, as these tests need them."""
    taken = options_of(role)
    prefix = TRIAL if role in (Role.JOB, Role.CLAIMS) else "coord"
    mirrors = role is Role.JOB  # nothing, here
    return rights(
        role,
        prefix,
        [TOPIC] if "--topics" in taken and not mirrors else [],
        [f"{CLAIMING}*"] if "--groups" in taken and not mirrors else [],
        (OPERATED if role is Role.OPERATOR else COORDINATION) if "--claims" in taken else None,
        transactional_ids=[f"{COPYING}*"] if "--transactional-ids" in taken else [],
        outputs=[OUTPUT] if "--outputs" in taken else [],
    )


@dataclass(frozen=True)
class Scene:
    """A secured stack on which roles do their work."""

    stack: Stack
    principals: Principals

    def rights_of(self, role: Role) -> tuple[Right, ...]:
        """All rows of a role, as this stack's tests need them."""
        return rights_of(role)

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
    sink = _opened(groups(TRIAL), options)
    sink.tell_loading(1)
    newest_by_key(options, f"{TRIAL}.responses", 0)
    start_cell(options)
    _follow(scene, options)


def start_cell(options: Options) -> None:
    """A job with a range of shards, as far as it asks for more: it takes them from all others."""
    sink = _opened(groups(TRIAL, ShardRange(0, 0)), options)
    sink.take_over(1)


def _follow(scene: Scene, options: Options) -> None:
    """The start of a query of claims."""
    found, _ = coordination.require(options, TRIAL, COORDINATION)
    log = KafkaInput(options, "m", COORDINATION, found.shards)
    log.starts()
    sink = _opened(claims(TRIAL, COORDINATION), options)
    ids = dict(found.topic_ids)
    layout = Layout(shards=found.shards, reply_partitions=0, topic_ids=ids, input=COORDINATION)
    sink.write_layout(layout)
    newest_by_key(options, f"{TRIAL}.claims.progress", 0)
    assert list(log.read(0, 0, 1))


def _opened(pipeline: Pipeline, options: Options) -> TransactionalSink:
    sink = TransactionalSink(
        pipeline,
        partial(open_producer, pipeline, dict(options), 60_000),
        partial(newest_by_key, options),
        client_options=dict(options),
        others=OtherCells(partial(fence, options), partial(newest_decided, options)),
    )
    sink.read_progress()
    sink.open()
    return sink


def _archive(scene: Scene, options: Options) -> None:
    found = ArchivedTopics(options, scene.stack.prefix).bounds()
    assert "claims.events" in {place.topic for place in found}
    for topic in ("events", "groups", "committed", "lag", "claims.events", "claims.lag"):
        _read(scene, options, topic)


def _member(scene: Scene, options: Options) -> None:
    """Join a group, read a record, and commit; then copy one, whoever decides."""
    config = {**options, "group.id": f"{GROUP}-{next(_numbers)}", "auto.offset.reset": "earliest"}
    own = {"session.timeout.ms": 9_000, "enable.auto.commit": False}
    with CoordinatedConsumer({**config, **own}) as consumer:
        consumer.subscribe([TOPIC])
        wait_until(
            "a record is read",
            lambda: (got := consumer.poll(1.0)) is not None and got.error() is None,
        )
        consumer.commit()
        for decider in (KAFKA, COORDINATOR):
            copy(consumer, options, decider, f"{COPYING}{next(_numbers)}")


def copy(consumer: CoordinatedConsumer, options: Options, decider: str, name: str) -> None:
    """One record, in a transaction of the producer of this name."""
    config = {**options, "transactional.id": name, "coord.decided.by": decider, "log_level": 0}
    with CoordinatedProducer(config) as producer:
        producer.init_transactions(_PATIENCE_S)
        with exactly_once(consumer, producer, _PATIENCE_S):
            found = list[Any]()

            def reads() -> bool:
                found.extend(m for m in consumer.consume(1, 1.0) if m.error() is None)
                return bool(found)

            wait_until("records are read", reads)
            producer.produce(OUTPUT, found[0].value())


def _agent(scene: Scene, options: Options) -> None:
    """A broker of a cluster comes, and stops in order."""
    with open_broker(options, scene.stack.prefix, broker=1_000 + next(_numbers)):
        pass


@contextmanager
def open_broker(options: Options, prefix: str, *, broker: int) -> Iterator[BrokerAgent]:
    """A broker of the cluster that is Active."""
    endpoints = [api.Endpoint("in", "localhost", 9_092)]
    with BrokerAgent(
        CLUSTER, options, prefix=prefix, broker=broker, endpoints=endpoints, stop_timeout_s=5.0
    ) as agent:
        agent.ready()
        wait_until("it is Active", lambda: agent.poll(0.5) and agent.state == "Active")
        yield agent


def _publisher(scene: Scene, options: Options) -> None:
    publication = Publication(options, f"query-{next(_numbers)}", scene.stack.prefix)
    ends = {TOPIC: {"0": 3}}
    source = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": ends}
    publication.hear({"batchId": 1, "sources": [source]})
    assert publication.close(30), "the log did not take the positions"


def _reader(scene: Scene, options: Options) -> None:
    of_claims = ("assignments", "committed", "events", "lag")
    for topic in ("assignments", "events", *(f"claims.{each}" for each in of_claims)):
        _read(scene, options, topic)
    # coord status reads it where it is listed, and leaves out what it would show of claims else.
    list(read_to_end(options, f"{scene.stack.prefix}.claims.progress", 0))
    scene.command(options, "groups", "list")
    scene.command(options, "groups", "describe", GROUP)
    scene.command(options, "cluster", "describe", CLUSTER)


def _operator(scene: Scene, options: Options) -> None:
    prefix = f"{scene.stack.prefix}.more-{next(_numbers)}"
    create = ("topics", "create", "--prefix", prefix, "--shards", "1", "--responses", "1")
    scene.command(options, *create, "--replication", "1")
    scene.command(options, "topics", "check")
    scene.command(options, "groups", "describe", GROUP)
    scene.command(options, "cluster", "partitions", CLUSTER)
    scene.command(options, "offsets", "delete", GROUP, "--topics", "nothing", "--yes")
    _operate_claims(scene, partial(scene.command, options))
    fenced = f"{COPYING}{next(_numbers)}"
    scene.command(options, "transactions", "abort", fenced, "--of-kafka", "--yes")
    scene.command(options, "transactions", "finish", _decided(scene), "--yes")


def _decided(scene: Scene) -> str:
    """A transactional id whose producer has ended behind its decision, without its marker."""
    name, servers = f"{COPYING}{next(_numbers)}", scene.stack.client()
    cluster = AdminClient(servers).list_topics(timeout=20).cluster_id
    rows = (api.TopicsOfCluster(cluster=str(cluster), topic=OUTPUT, partitions=(0,)),)
    with Admin(servers, scene.stack.prefix) as admin:

        def ask(kind: type[api.Request], **fields: Any) -> Any:
            (answer,) = admin._ask_in_space(name, TRANSACTION, kind, _PATIENCE_S, **fields)
            return answer

        given = ask(api.InitProducerId, timeout_ms=60_000)
        producer = {"producer_id": given.producer_id, "epoch": given.epoch}
        ask(api.AddPartitionsToTxn, **producer, partitions=rows)
        ask(api.EndTxn, **producer, result=COMMIT)
    wait_until("markers are missing", lambda: _has_unwritten(servers, scene.stack.prefix, name))
    return name


def _has_unwritten(options: Options, prefix: str, name: str) -> bool:
    """Whether the topics have it already: an answer comes a moment before."""
    with suppress(CoordError):
        seen = find_id(options, AdminClient(dict(options)).list_topics().topics, prefix, name)
        return seen.value is not None and bool(seen.value.unwritten)
    return False


def _operate_claims(scene: Scene, command: Callable[..., None]) -> None:
    """On a coordination topic of its own, which another run may have left there."""
    delete_topic(scene.stack.client(), OPERATED)
    group, of_topic = f"{CLAIMING}{next(_numbers)}", ("--claims-topic", OPERATED)
    command("claims", "create", OPERATED, "--replication", "1")
    command("claims", "check", *of_topic)
    command("claims", "pause", group, "--for", "1m", *of_topic)
    command("claims", "resume", group, *of_topic)
    aim = ("--topic", TOPIC, "--to-earliest", "--apply", "--yes")
    command("claims", "set-position", group, *aim, *of_topic)
    command("claims", "list", *of_topic)


def _claimant(scene: Scene, options: Options) -> None:
    """Claim a partition, read a record, and commit; and begin as a later process does."""
    group = f"{CLAIMING}{next(_numbers)}"
    config = {**options, "group.id": group, "client.id": "claimant", "log_level": 0}
    with (
        Marshaler(config, coordination_topic=COORDINATION) as marshaler,
        marshaler.consumer([TOPIC], ConsumerOptions(greedy_claims=True)) as consumer,
    ):
        messages = []

        def reads() -> bool:
            messages.extend(consumer.consume(1, 1.0))
            return bool(messages) and messages[-1].error() is None

        wait_until("records are read", reads)
        consumer.commit(messages[-1])
        consumer.flush(20)
    survey = Survey(options, COORDINATION, scene.stack.prefix)
    try:
        survey.snapshot(0)
    finally:
        survey.close()


def _read(scene: Scene, options: Options, topic: str) -> None:
    for shard in range(scene.stack.shards):
        list(read_to_end(options, f"{scene.stack.prefix}.{topic}", shard))


def delete_topic(options: Options, topic: str) -> None:
    """Delete a topic if it is there, and wait until it is gone."""
    admin = AdminClient(dict(options))
    if topic in admin.list_topics(timeout=20).topics:
        admin.delete_topics([topic])[topic].result(20)
    wait_until("it is gone", lambda: topic not in admin.list_topics(timeout=20).topics)


_WORKS: Final[dict[Role, Callable[[Scene, Options], None]]] = {
    Role.JOB: _job,
    Role.ARCHIVE: _archive,
    Role.MEMBER: _member,
    Role.AGENT: _agent,
    Role.PUBLISHER: _publisher,
    Role.READER: _reader,
    Role.OPERATOR: _operator,
    Role.CLAIMS: _follow,
    Role.CLAIMANT: _claimant,
}
