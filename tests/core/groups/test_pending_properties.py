"""What must hold of pending offsets in every log. Each property names its invariant."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlib.core.engine.effects import COMMITTED, EVENTS, GROUPS, RESPONSES, TRANSACTIONS, Output
from coordlib.core.groups.offsets.tables import PENDING, rows_of
from coordlib.core.wire import api
from coordlib.core.wire.offsets import KAFKA
from tests.tools import pending_logs as logs
from tests.tools import random_logs
from tests.tools.core import (
    InputRecord,
    Shard,
    ShardSettings,
    assert_as_new,
    fold,
    of_groups,
    offsets_of,
    restored,
    with_groups,
)
from tests.tools.driving import Conversation

SETTINGS = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=2,
    incarnation="t",
    families=of_groups(initial_rebalance_delay_ms=0),
    checks_invariants=True,
)
#: Offsets and empty groups go within seconds, and there is little room.
FORGETFUL = with_groups(
    SETTINGS, offsets_retention_ms=15_000, check_interval_ms=4_000, offsets_per_group_max=5
)
SEEDS = st.integers(0, 2**32)
PROFILE = settings(
    max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
LENGTH = 100


def settings_of(seed: int) -> ShardSettings:
    return (SETTINGS, FORGETFUL)[seed % 2]


def in_batches(
    records: list[InputRecord], cuts: list[int], how: ShardSettings
) -> tuple[bytes | None, list[Output]]:
    blob, outputs = None, []
    edges = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        done = fold(blob, records[start:end], how)
        blob = done.blob
        outputs += done.outputs
    return blob, outputs


@PROFILE
@given(SEEDS, st.lists(st.integers(0, LENGTH), max_size=12))
def test_the_cut_into_batches_shows_nowhere(seed: int, cuts: list[int]) -> None:
    """INV-02: pending offsets, decisions and all that meets them."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how)

    blob, outputs = in_batches(records, [], how)
    other_blob, other_outputs = in_batches(records, cuts, how)

    def said(outputs: list[Output]) -> list[Output]:
        once = (o for o in outputs if o.topic == GROUPS or (o.topic == RESPONSES and not o.key))
        left_out = {id(each) for each in once}
        return [each for each in outputs if id(each) not in left_out]

    assert blob == other_blob
    assert said(outputs) == said(other_outputs)


@PROFILE
@given(SEEDS)
def test_what_was_written_gives_the_state_again(seed: int) -> None:
    """INV-38: entries and offsets of a job whose checkpoint was lost, after every log."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how)
    shard = Shard(None, how)
    for record in records:
        shard.judge(record)
    outputs = shard.close()

    again = Shard(restored(outputs, shard._position), how)

    assert again.groups.keys() == shard.groups.keys()
    for name, row in shard.groups.items():
        assert list(again.groups[name].entries(PENDING)) == list(row.entries(PENDING))
        assert list(offsets_of(again.groups[name])) == list(offsets_of(row))
    assert again.status().undecided == shard.status().undecided


@PROFILE
@given(SEEDS)
def test_every_step_leaves_a_sound_shard(seed: int) -> None:
    """INV-15, INV-42, INV-43: sizes and reports are those of the rows, and nothing breaks."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how, positions=True)
    shard = Shard(None, how)
    for record in records:
        shard.judge(record)
        for row in shard.groups.values():
            assert_as_new(row, shard)
            config = how.families["group"].config
            entries, offsets = row.entries(PENDING), offsets_of(row)
            assert row.entry_bytes == entries.size_bytes + offsets.size_bytes
            places = {each.place for _, _, entry in entries for each in rows_of(entry)}
            places |= {place[:2] for place in offsets}
            assert len(places) <= config.offsets_per_group_max
        assert shard._agenda.size_bytes == sum(
            row.facts.size_bytes + row.entry_bytes for row in shard.groups.values()
        )

    events = [output.value or b"" for output in shard.outputs if output.topic == EVENTS]
    assert not [event for event in events if b"Quarantined" in event]


def _read(output: Output) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(output.value or b"")
    return read


class Oracle:
    """What Kafka's broker keeps: pending offsets beside committed ones, and the place in the log of

    each; of two that write one partition the later place holds.
    """

    def __init__(self) -> None:
        #: group, partition -> place in the log, offset; None: it was deleted there
        self.committed: dict[tuple[str, str, int], tuple[int, int | None]] = {}
        #: offset of the record -> the record
        self.pending: dict[int, api.PendingCommit] = {}

    @property
    def of_kafka(self) -> tuple[int, ...]:
        return tuple(sorted(at for at, each in self.pending.items() if each.decided_by == KAFKA))

    def decide(self, offset: int, is_committed: bool) -> None:
        if (entry := self.pending.pop(offset, None)) and is_committed:
            self.write(entry.group, entry.offsets, offset)

    def write(self, group: str, rows: tuple[api.CommittedOffset, ...], place: int) -> None:
        for row in rows:
            key = (group, row.topic, row.partition)
            if self.committed.get(key, (-1, 0))[0] <= place:
                self.committed[key] = place, row.offset

    def take(self, record: InputRecord, outputs: list[Output]) -> None:
        for output in outputs:  # what has expired has done so before the record was judged
            if output.topic == COMMITTED and output.value is None:
                group, topic, partition = json.loads(output.key)
                self.committed[group, topic, partition] = record.offset, None
        request = random_logs.decoded(record)
        told = [o for o in outputs if o.topic == RESPONSES and o.key]
        own = f"r0-{record.offset}"  # others may be answered before, by what was due
        answers = [
            each
            for each in map(_read, told)
            if (each.get("cause"), each["type"]) == (own, type(request).__name__)
        ]
        is_taken = bool(answers) and answers[0]["error"] == "NONE"
        if isinstance(request, api.PendingCommit) and is_taken:
            if answers[0]["pending"] == f"r0-{record.offset}":  # else it came before
                self.pending[record.offset] = request
        elif isinstance(request, api.DecidePending) and is_taken:
            self.decide(int(request.pending[3:]), request.result == "commit")
        elif isinstance(request, api.OffsetCommit) and is_taken:
            failed = {(row["topic"], row["partition"]) for row in answers[0]["failed"]}
            kept = [row for row in request.offsets if (row.topic, row.partition) not in failed]
            self.write(request.group, tuple(kept), record.offset)
        elif isinstance(request, api.TxnDecided):
            # What a Delta table decides is not Kafka's, whatever record a driver names.
            for offset in set(self.of_kafka).intersection((*request.committed, *request.aborted)):
                self.decide(offset, offset in request.committed)


@PROFILE
@given(SEEDS)
def test_committed_offsets_are_those_of_the_later_record(seed: int) -> None:
    """INV-91: as a broker that keeps each offset's place in the log, which is not kept here."""
    how = settings_of(seed)
    _, drawn = logs.draw_log(seed, LENGTH, how)
    talk, oracle = Conversation(how), Oracle()
    for record in drawn.log:
        count = len(talk.shard.outputs)
        talk.shard.judge(record)
        oracle.take(record, talk.shard.outputs[count:])

        found = {
            (name, topic, partition): kept.offset
            for name, row in talk.shard.groups.items()
            for topic, partition, kept in offsets_of(row)
        }
        kept = {key: offset for key, (_, offset) in oracle.committed.items()}
        assert found == {key: offset for key, offset in kept.items() if offset is not None}
        assert talk.shard.status().undecided == oracle.of_kafka


def test_the_logs_meet_what_they_are_for() -> None:
    """No property above holds for want of a case."""
    seen = {"OffsetsPending": 0, "OffsetsCommitted": 0, "OffsetsDropped": 0, "UNSTABLE": 0}
    words = {"INVALID_TXN_STATE": 0, '"by_member"': 0, '"by":"ops"': 0}
    gone = 0
    for seed in range(20):
        _, talk = logs.draw_log(seed, LENGTH, settings_of(seed))
        for output in talk.outputs:
            gone += output.topic == TRANSACTIONS and output.value is None
            for counts in (seen, words):
                for word in counts:
                    counts[word] += word.encode() in (output.value or b"")

    assert min(*seen.values(), gone) > 50, (seen, gone)
    assert min(words.values()) > 0, words
