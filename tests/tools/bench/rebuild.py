"""How long a lost checkpoint costs: from a start with --rebuild until a join is answered.

The topics are written as a job would have left them: members of a crowd join, sync and commit, the
pure core judges it in this process, and its outputs and the marker go to the broker. Then the job
starts with an empty checkpoint folder, and a join that was there before it waits for its answer.
"""

import json
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from coordlib.core.engine.effects import REQUESTS, RESPONSES, Output
from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import Marker
from coordlib.errors import CannotReach, SetupError
from coordlib.job.progress import MARKER_KEY
from coordlib.kafka import topics
from coordlib.local.progress import phase, to_stderr
from coordlib.local.stack import Stack
from tests.tools.bench.crowd import Crowd, Record
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
            families=of_groups(initial_rebalance_delay_ms=0, new_groups_per_second_max=1_000_000),
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


def run(*, groups: int, members: int, partitions: int) -> int:
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
