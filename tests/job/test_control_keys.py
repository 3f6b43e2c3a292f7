"""What a start settles before it may write control records: its number, its key, and since when."""

from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.config import CoordinatorConfig
from coordlib.core.engine.fold import fold
from coordlib.core.engine.state import InputRecord, ShardSettings
from coordlib.core.groups.group import GroupSettings
from coordlib.core.groups.protocol import Groups
from coordlib.core.registry import REGISTRY
from coordlib.core.transactions.protocol import Transactions, TransactionsSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire.cells import CELL, KEYS, CellValue, Owned, ShardRange, key_of
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.stored import ControlKey, ControlKeys, Layout, Marker, ShardPosition
from coordlib.errors import DriverFenced, StartRefused
from coordlib.job.control import NEVER, Authority, begin
from coordlib.job.pipelines import groups
from coordlib.job.progress import KEYS_KEY, MARKER_KEY
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.layout import LAYOUT_KEY
from coordlib.testing.signing import stand_in

INCARNATION = "YjVo5al4"
LAYOUT = Layout(shards=4, reply_partitions=1, topic_ids={})


class Topics:
    """`coord.progress`, and where the requests of two shards end. Drivers fence each other."""

    def __init__(self) -> None:
        self.progress: dict[bytes, bytes] = {}
        self.ends = {0: 10, 1: 20}
        self.epoch = 0
        self.asked = 0

    def sink(self, owned: Owned = None) -> TransactionalSink:
        sink = TransactionalSink(
            groups("coord", owned), lambda: Producer(self), lambda *_: dict(self.progress)
        )
        sink.open()
        return sink

    def ask(self) -> dict[int, int]:
        self.asked += 1
        return dict(self.ends)

    def keys(self) -> ControlKeys:
        return msgspec.json.decode(self.progress[KEYS_KEY], type=ControlKeys)


class Producer:
    """A transaction becomes visible as a whole, unless a newer driver has begun."""

    def __init__(self, topics: Topics) -> None:
        self._topics, self._epoch = topics, 0
        self._open: dict[bytes, bytes] = {}

    def init_transactions(self, timeout: float) -> None:
        self._topics.epoch += 1
        self._epoch = self._topics.epoch

    def begin_transaction(self) -> None:
        self._open = {}

    def produce(self, topic: str, value: bytes, key: bytes, *_: Any, **__: Any) -> None:
        self._open[key] = value

    def flush(self, timeout: float) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        if self._epoch != self._topics.epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        self._topics.progress |= self._open

    def abort_transaction(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))


class Folder:
    """A checkpoint's folder."""

    path = "folder"

    def __init__(self) -> None:
        self.kept: bytes | None = None

    def secret(self) -> bytes | None:
        return self.kept

    def keep_secret(self, secret: bytes) -> bytes:
        self.kept = self.kept or secret
        return self.kept


def start(
    topics: Topics,
    folder: Folder,
    secret: str = "first",
    sink: TransactionalSink | None = None,
    others: tuple[int, ...] = (),
) -> Authority:
    signatures = stand_in(secret.encode())
    return begin(sink or topics.sink(), folder, INCARNATION, topics.ask, signatures, others)


def judged(*shards: int) -> bytes:
    """A marker of these shards, of which all but the newest requests are judged."""
    position = ShardPosition(clock_ms=0, previous_ms=0, offsets={"r": 4}, published=4)
    positions = dict.fromkeys(map(str, shards), position)
    return codec.encode(
        Marker(checkpoint="c", batch=1, ranges={}, digest="", next_offsets={}, shards=positions)
    )


def number(authority: Authority) -> Any:
    read = codec.decode_request(authority.signer.value(0, api.Tick(v=1, published=0)))
    return read.n if isinstance(read, api.Tick) else read


def test_the_first_start_makes_a_key_that_counts_from_the_first_record() -> None:
    """Whoever may write requests wrote messages between shards before any job ran: no driver has
    written there, so nothing may be unsigned, wherever the log ends."""
    topics, folder = Topics(), Folder()
    start(topics, folder)

    (key,) = topics.keys().keys
    assert key.since == {"0": 0, "1": 0}


def test_messages_from_before_the_first_start_use_up_no_numbers_and_leave_no_offsets() -> None:
    """They named numbers of the channel between two shards: true messages with these numbers were
    taken for repeats, and a pending offset of an id that does not exist could not be ended."""
    topics = Topics()
    topics.ends = {0: 3, 1: 3}
    authority = start(topics, Folder())
    config = CoordinatorConfig()
    settings = ShardSettings(
        shard=1,
        shards=2,
        reply_partitions=1,
        incarnation=INCARNATION,
        bounds=config.shard,
        families={
            Groups.SPACE: GroupSettings(config.group, {}, config.transactions),
            Transactions.SPACE: TransactionsSettings(config.transactions, 100),
        },
        keys=authority.keys,
        verify=stand_in(b"").verify,
        checks_invariants=True,
    )
    group = next(name for name in map(str, range(99)) if shard_of(name, 2) == 1)

    def message(number: int, producer_id: int) -> api.FromShard:
        position = {"topic": "t", "partition": 0, "offset": 7}
        request = {
            "type": "TxnOffsetCommit",
            "v": 1,
            "id": f"c-{producer_id}",
            "client": "c",
            "transactional_id": "tx",
            "producer_id": producer_id,
            "epoch": 0,
            "reply": 0,
            "group": group,
            "number": 0,
            "generation": -1,
            "member": "",
            "offsets": [position],
        }
        body = msgspec.Raw(
            msgspec.json.encode({"type": "TxnOffsets", "group": group, "request": request})
        )
        return api.FromShard(v=1, source=0, seq=number, body=body)

    forged = [codec.encode(message(number, 666)) for number in (1, 2, 3)]
    true = [authority.signer.value(1, message(number, 7 + number)) for number in (1, 2, 3)]
    log = [
        InputRecord("r", offset, 1_700_000_000_000 + offset, value)
        for offset, value in enumerate([*forged, *true])
    ]
    outputs = fold(None, log, settings, REGISTRY).outputs

    answers = [msgspec.json.decode(o.value or b"") for o in outputs if o.topic == "responses"]
    told = {each["id"]: each["error"] for each in answers if "id" in each}
    assert told == {"c-8": "NONE", "c-9": "NONE", "c-10": "NONE"}


def test_a_key_of_a_shard_that_was_judged_counts_from_the_end_of_its_log() -> None:
    """A prefix of before: what stands in its log has no signature, and is judged as it was. A shard
    of which nothing was judged has no such log."""
    topics, folder = Topics(), Folder()
    topics.progress[MARKER_KEY] = judged(1)
    start(topics, folder)

    (key,) = topics.keys().keys
    assert key.since == {"0": 0, "1": 20}


def test_a_cell_whose_range_never_had_a_job_counts_from_the_first_record() -> None:
    """The other cell runs, and its key counts nowhere in this range; before this one started,
    somebody wrote there, too."""
    topics, other = Topics(), groups("coord", ShardRange(2, 3))
    topics.progress[MARKER_KEY + b"-2-3"] = judged(2, 3)
    key = ControlKey(key="of-2-3", public=b"", since={"0": NEVER, "1": NEVER, "2": 0, "3": 0})
    topics.progress[key_of(KEYS, other.owned)] = codec.encode(ControlKeys(starts=4, keys=(key,)))
    value = CellValue(since_ms=1)
    topics.progress[key_of(CELL, other.owned)] = codec.encode(value)
    topics.progress[LAYOUT_KEY] = codec.encode(LAYOUT)
    authority = start(topics, Folder(), sink=topics.sink(ShardRange(0, 1)), others=(2, 3))

    _, own = authority.keys
    assert own.since == {"0": 0, "1": 0, "2": NEVER, "3": NEVER}


def test_the_start_makes_a_key_that_shards_find() -> None:
    """The private half lies in the folder, the public half where shards are told of it."""
    topics, folder = Topics(), Folder()
    topics.progress[MARKER_KEY] = judged(0, 1)
    authority = start(topics, folder)

    (key,) = topics.keys().keys
    assert folder.kept == b"first"
    assert key.public == stand_in(b"").public_of(b"first")
    assert key.since == {"0": 10, "1": 20}
    assert authority.keys == (key,)
    assert (topics.keys().starts, number(authority)) == (1, (1, 0))


def test_a_start_on_the_same_folder_counts_and_makes_no_other_key() -> None:
    """Since when it counts must not change: what was judged is judged again."""
    topics, folder = Topics(), Folder()
    topics.progress[MARKER_KEY] = judged(0, 1)
    start(topics, folder)
    (before,) = topics.keys().keys
    topics.ends = {0: 99, 1: 99}
    authority = start(topics, folder, "another")

    assert topics.keys() == ControlKeys(starts=2, keys=(before,))
    assert topics.asked == 1
    assert number(authority) == (2, 0)


def test_a_rebuild_into_a_new_folder_adds_a_key_and_keeps_the_old_ones() -> None:
    """What the lost checkpoint's drivers have signed is still to be judged."""
    topics = Topics()
    topics.progress[MARKER_KEY] = judged(0, 1)
    start(topics, Folder())
    topics.ends = {0: 50, 1: 60}
    authority = start(topics, Folder(), "second")

    old, new = topics.keys().keys
    assert (old.since, new.since) == ({"0": 10, "1": 20}, {"0": 50, "1": 60})
    assert old.key != new.key
    assert authority.keys == (old, new)
    assert number(authority) == (2, 0)


def test_a_start_that_died_between_secret_and_keys_is_made_good_by_the_next() -> None:
    """The secret lies in the folder, and no shard knows its public half."""
    topics, folder = Topics(), Folder()
    folder.kept = b"first"
    authority = start(topics, folder, "another")

    assert [key.public for key in authority.keys] == [stand_in(b"").public_of(b"first")]


def test_a_driver_that_was_fenced_meanwhile_counts_nothing() -> None:
    """Two starts at once: the older one must not write a number or a key that nobody hears of."""
    topics, folder = Topics(), Folder()
    older = topics.sink()
    start(topics, folder)
    kept = dict(topics.progress)

    with pytest.raises(DriverFenced):
        start(topics, folder, sink=older)
    assert topics.progress == kept


def test_of_two_secrets_the_first_that_was_kept_signs() -> None:
    """Two starts at once, each with a secret of its own: one of them lies in the folder."""
    topics, folder = Topics(), Folder()
    folder.secret = lambda: None  # type: ignore[method-assign]  # asked before the other kept it
    folder.kept = b"first"
    authority = start(topics, folder, "second")

    assert [key.public for key in authority.keys] == [stand_in(b"").public_of(b"first")]


def test_a_lost_count_goes_on_behind_what_shards_have_obeyed() -> None:
    """Somebody deleted the key of the topic: a start with a lower number would count for nothing,
    and no deadline would ever begin."""
    topics, folder = Topics(), Folder()
    position = ShardPosition(
        clock_ms=0, previous_ms=0, offsets={"r": 9}, published=9, control=(7, 3)
    )
    marker = Marker(
        checkpoint="c", batch=1, ranges={}, digest="", next_offsets={}, shards={"1": position}
    )
    topics.progress[MARKER_KEY] = codec.encode(marker)

    assert number(start(topics, folder)) == (8, 0)


def test_keys_of_newer_code_are_refused() -> None:
    """Somebody went back: shards would judge by what this code does not read."""
    topics = Topics()
    topics.progress[KEYS_KEY] = b'{"v":2,"starts":3,"others":[]}'

    with pytest.raises(StartRefused, match="version 2, this code knows 1"):
        start(topics, Folder())
    assert topics.progress[KEYS_KEY].startswith(b'{"v":2'), "nothing is written"


def test_a_secret_that_is_none_is_refused_with_the_hint() -> None:
    """A disk was full, or somebody edited the file."""
    topics, folder = Topics(), Folder()
    folder.kept = b"short"
    signatures = stand_in(b"first")._replace(public_of=_no_secret)

    with pytest.raises(StartRefused, match="Remove control-key"):
        begin(topics.sink(), folder, INCARNATION, topics.ask, signatures)
    assert KEYS_KEY not in topics.progress


def _no_secret(_: bytes) -> bytes:
    raise ValueError("The seed must be exactly 32 bytes long")
