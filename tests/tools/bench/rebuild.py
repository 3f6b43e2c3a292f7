"""How long a lost checkpoint costs: from a start with --rebuild until a join is answered.

The topics are written as a job would have left them: members of a crowd join, sync and commit, the
pure core judges it in this process, and its outputs and the marker go to the broker. With
transactional ids, some of them have left a transaction open. Then the job starts with an empty
checkpoint folder, and a join that was there before it waits for its answer.
"""

import json
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from coordlib.core.engine.effects import REQUESTS, RESPONSES, Output
from coordlib.core.transactions.protocol import TransactionsSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import Marker
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.errors import CannotReach, SetupError
from coordlib.job.background.feeder import messages_of
from coordlib.job.progress import MARKER_KEY
from coordlib.kafka import topics
from coordlib.local.progress import phase, to_stderr
from coordlib.local.stack import Stack
from tests.tools.bench.crowd import Crowd, Record
from tests.tools.bench.crowd_ids import Ids
from tests.tools.bench.figures import tell, tell_machine
from tests.tools.bench.probes import Probes
from tests.tools.bench.stand import JOB_ARGS
from tests.tools.core import Fold, InputRecord, ShardSettings, fold, of_groups

NAME: Final = "bench-rebuild"
ANSWER_TIMEOUT_S: Final = 120.0
ROUNDS_MAX: Final = 20
TOKEN: Final = "rebuild"


class History:
    """Shards that judged a crowd, and everything that was written meanwhile."""

    def __init__(self, shards: int, reply_partitions: int, incarnation: str) -> None:
        self._settings = ShardSettings(
            shard=-1,
            shards=shards,
            reply_partitions=reply_partitions,
            incarnation=incarnation,
            # All of the crowd comes at once.
            families={
                **of_groups(initial_rebalance_delay_ms=0, new_groups_per_second_max=1_000_000),
                TRANSACTION: TransactionsSettings(new_per_second_max=1_000_000),
            },
        )
        self._now_ms = time.time_ns() // 1_000_000
        #: Requests by shard: a record's place is its offset.
        self.requests: dict[int, list[Record]] = {shard: [] for shard in range(shards)}
        self.folds: dict[int, Fold] = {}
        self.outputs: list[Output] = []

    def judge(self, written: Iterable[Record]) -> list[api.AnyResponse]:
        """A batch of every shard; its answers."""
        batches: dict[int, list[InputRecord]] = {}
        for record in written:
            log = self.requests[record.shard]
            entry = InputRecord(REQUESTS, len(log), self._now_ms, record.value)
            batches.setdefault(record.shard, []).append(entry)
            log.append(record)
        outputs: list[Output] = []
        for shard, batch in batches.items():
            before = self.folds.get(shard)
            how = msgspec.structs.replace(self._settings, shard=shard)
            self.folds[shard] = fold(before.blob if before else None, batch, how)
            outputs += self.folds[shard].outputs
        self.outputs += outputs
        said = [output for output in outputs if output.topic == RESPONSES and output.key]
        return [codec.decode_response(output.value or b"") for output in said]

    def messages(self, since: int) -> list[Record]:
        """What shards have told each other, from this output on, as the driver feeds it."""
        return [
            _told(to, api.FromShard(v=1, source=source, seq=number, body=msgspec.Raw(body)))
            for (source, to), number, body in messages_of(self.outputs[since:])
        ]

    def confirmations(self) -> list[Record]:
        """What became of all messages: without it the next driver would feed them again."""
        return [
            _told(
                source, api.Tick(v=1, published=len(self.requests[source]) - 1, heard={to: number})
            )
            for to, each in self.folds.items()
            for source, number in sorted(dict(each.status.heard).items())
        ]

    def marker(self, prefix: str) -> Marker:
        """The marker of a job that has judged all of it."""
        ends = {str(shard): len(log) for shard, log in self.requests.items()}
        return Marker(
            checkpoint="lost",
            batch=ROUNDS_MAX,
            ranges={},
            digest="",
            next_offsets={f"{prefix}.requests": ends},
            shards={str(shard): each.status.position for shard, each in self.folds.items()},
        )


def lived(history: History, crowd: Crowd, partitions: int) -> None:
    """Everybody joins, has a share and commits. Raises SetupError."""
    written = list(crowd.join_all())
    for _ in range(ROUNDS_MAX):
        written = [each for answer in history.judge(written) for each in crowd.hear(answer)]
    if not crowd.is_settled:
        raise SetupError("The crowd did not settle", f"{crowd.settled} of {len(crowd)}")
    history.judge(crowd.commit(number, partitions) for number in range(crowd.groups))


def transacted(history: History, ids: Ids) -> None:
    """Every id has a producer id, and some have offsets that wait. Raises SetupError."""
    written = list(ids.begin_all())
    for _ in range(ROUNDS_MAX):
        since = len(history.outputs)
        answers = history.judge(written)
        written = [each for answer in answers for each in ids.hear(answer)]
        written += history.messages(since)
    if not ids.is_settled:
        what = f"{ids.made} ids, {ids.pending} with pending offsets"
        raise SetupError("The transactions did not begin", f"{what}; {dict(ids.refused)}")
    history.judge(history.confirmations())


def _told(shard: int, record: api.Control) -> Record:
    return Record(codec.encode(record), b"", shard)


def write(config: dict[str, str], prefix: str, history: History) -> None:
    """What a job would have left in the topics. Raises CannotReach."""
    producer = Producer({**config, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for shard, log in history.requests.items():
        for record in log:
            producer.produce(f"{prefix}.requests", record.value, record.key, partition=shard)
    for output in history.outputs:
        topic = f"{prefix}.{output.topic}"
        producer.produce(topic, output.value, output.key, partition=output.partition)
    marker = codec.encode(history.marker(prefix))
    producer.produce(f"{prefix}.progress", marker, MARKER_KEY, partition=0)
    if producer.flush(120):
        raise CannotReach("The history cannot be written", config["bootstrap.servers"])
    producer.close()


class Answer:
    """A join that is written before the job starts, and the time at which it is answered."""

    def __init__(self, config: dict[str, str], stack: Stack) -> None:
        probes = Probes(stack.shards, reply_partitions=1, token=TOKEN)
        request = probes.next(now_s=0.0)
        self._consumer = Consumer(
            {**config, "group.id": "coordlib-unused", "isolation.level": "read_committed"}
        )
        place = TopicPartition(f"{stack.prefix}.responses", 0)
        _, place.offset = self._consumer.get_watermark_offsets(place, timeout=10)
        self._consumer.assign([place])
        producer = Producer(config)
        producer.produce(f"{stack.prefix}.requests", request.value, request.key, request.shard)
        producer.flush(10)
        producer.close()

    def written_s(self) -> float:
        """The broker's time of the answer. Raises CannotReach."""
        end = time.monotonic() + ANSWER_TIMEOUT_S
        while time.monotonic() < end:
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None or not message.key():
                continue
            heard = codec.decode_response(message.value() or b"")
            if isinstance(heard, api.JoinGroupResponse) and heard.client.startswith("probe-"):
                self._consumer.close()
                return message.timestamp()[1] / 1000
        raise CannotReach("The join was not answered", f"within {ANSWER_TIMEOUT_S:.0f} s")


def told(log: str) -> tuple[list[dict[str, Any]], float]:
    """The job's lines about each shard, and when (epoch seconds) all were rebuilt."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    shards = [line for line in lines if line.get("event") == "shard rebuilt"]
    done = next(line for line in lines if line.get("event") == "rebuilt from the topics")
    return shards, msgspec.convert(done["timestamp"], type=datetime).timestamp()


def run(*, groups: int, members: int, partitions: int, ids: int, pendings: int) -> int:
    """Make the topics, start the job, tell how long each part took."""
    tell_machine("rebuild")
    stack = Stack(NAME)
    if stack.home.exists():
        stack.down(wipe=True)
    try:
        stack.start_broker()
        config = {"bootstrap.servers": stack.bootstrap_servers}
        layout, _ = topics.require(config, stack.prefix)
        with phase(to_stderr, f"Making the history of {groups:,} groups"):
            crowd = Crowd(groups, members, stack.shards, stack.responses, TOKEN)
            history = History(stack.shards, stack.responses, layout.incarnation)
            lived(history, crowd, partitions)
            transacted(history, Ids(ids, pendings, stack.shards, stack.responses, TOKEN))
            write(config, stack.prefix, history)
        answer = Answer(config, stack)
        began_s = time.time()
        stack.start_job((*JOB_ARGS, "--without-archive", "--rebuild"))
        answered_s = answer.written_s()
        shards, rebuilt_s = told(stack.job.log.read_text())
        read_s = sum(line["read_s"] for line in shards)
        restored_s = sum(line["restored_s"] for line in shards)
        tell(
            "rebuild",
            "answered",
            groups=sum(line["groups"] for line in shards),
            members=len(crowd),
            ids=ids,
            pendings=min(ids, pendings),
            transactions=sum(line["transactions"] for line in shards),
            offsets=sum(line["committed"] for line in shards),
            state_bytes=sum(line["bytes"] for line in shards),
            total_s=round(answered_s - began_s, 2),
            starting_s=round(rebuilt_s - began_s - read_s - restored_s, 2),
            reading_s=round(read_s, 2),
            restoring_s=round(restored_s, 2),
            first_batch_s=round(answered_s - rebuilt_s, 2),
        )
    finally:
        stack.down(wipe=True)
    return 0
