"""What must hold for every log. Each property names the invariant that it checks."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlib import limits
from coordlib.core.engine.effects import (
    ASSIGNMENTS,
    COMMITTED,
    EVENTS,
    GROUPS,
    REQUESTS,
    RESPONSES,
    Output,
)
from coordlib.core.engine.tables import name_bytes
from coordlib.core.engine.time import NEVER
from coordlib.core.groups import kind
from coordlib.core.groups.classic.group import Group
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.offsets.tables import KeptOffset, offset_bytes
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import Refusal
from tests.tools import random_logs as logs
from tests.tools.core import (
    InputRecord,
    Shard,
    ShardSettings,
    assert_as_new,
    config_of,
    fold,
    of_groups,
    offsets_of,
    restore,
    with_groups,
)
from tests.tools.driving import START_MS
from tests.tools.examples import examples

SETTINGS = ShardSettings(
    shard=0,
    shards=1,
    reply_partitions=3,
    incarnation="t",
    families=of_groups(initial_rebalance_delay_ms=0, max_size=4, groups_per_shard_max=2),
    checks_invariants=True,
)
DELAYED = with_groups(SETTINGS, initial_rebalance_delay_ms=3_000)
#: Offsets and empty groups go within seconds.
FORGETFUL = with_groups(
    SETTINGS,
    initial_rebalance_delay_ms=0,
    max_size=4,
    groups_per_shard_max=2,
    offsets_retention_ms=15_000,
    check_interval_ms=4_000,
    # Some joins and commits find the shard full.
    bytes_max=6_000,
    offsets_bytes_per_group_max=250,
)
SEEDS = st.integers(0, 2**32)
PROFILE = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
LENGTH = 150


ANNOUNCED = with_groups(SETTINGS, requires_member_id=True)


def settings_of(seed: int) -> ShardSettings:
    if seed % 4 == 0:
        return FORGETFUL
    return (SETTINGS, DELAYED, ANNOUNCED)[seed % 4 - 1]


def run_in_batches(records: list[InputRecord], cuts: list[int], how: ShardSettings):  # type: ignore[no-untyped-def]
    """Fold a log cut at these places: the last blob, and everything that was written."""
    blob: bytes | None = None
    outputs: list[Output] = []
    edges = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        done = fold(blob, records[start:end], how)
        blob = done.blob
        outputs += done.outputs
    return blob, outputs


def is_once_per_batch(output: Output) -> bool:
    return output.topic == GROUPS or (output.topic == RESPONSES and output.key == b"")


def said(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if not is_once_per_batch(output)]


def compacted(outputs: list[Output]) -> dict[tuple[str, int, bytes], bytes | None]:
    """What a compacted topic keeps."""
    kept = (ASSIGNMENTS, COMMITTED, GROUPS)
    return {(o.topic, o.partition, o.key): o.value for o in outputs if o.topic in kept}


@PROFILE
@given(SEEDS, st.lists(st.integers(0, LENGTH), max_size=12))
def test_the_cut_into_batches_shows_nowhere(seed: int, cuts: list[int]) -> None:
    """INV-02: Spark cuts the same log differently after every restart and under every load."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how)

    blob, outputs = run_in_batches(records, [], how)
    other_blob, other_outputs = run_in_batches(records, cuts, how)

    assert said(outputs) == said(other_outputs)
    assert compacted(outputs) == compacted(other_outputs)
    assert blob == other_blob


@PROFILE
@given(SEEDS)
def test_a_shard_that_is_loaded_anew_for_every_record_is_the_same(seed: int) -> None:
    """INV-02, INV-03: after every record, not only where a log happens to end."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how)
    kept, blob, outputs = Shard(None, how), None, []
    for record in records:
        kept.judge(record)
        fresh = Shard(blob, how)
        fresh.judge(record)
        outputs += fresh.outputs
        blob = fresh.encode()

        assert blob == kept.encode()
    assert outputs == kept.outputs


@PROFILE
@given(SEEDS)
def test_the_same_batch_twice_gives_the_same_bytes(seed: int) -> None:
    """INV-07: a batch that is run again after a crash must write what it wrote before."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how, positions=True)

    assert fold(None, records, how) == fold(None, list(reversed(records)), how)


@PROFILE
@given(SEEDS)
def test_offsets_that_were_judged_do_nothing(seed: int) -> None:
    """INV-04: the same records again, as after a source that went back."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, 60, how, positions=True)
    done = fold(None, records, how)

    again = fold(done.blob, records, how)

    assert again.blob == done.blob
    assert again.outputs == []


def test_the_hash_seed_shows_nowhere() -> None:
    """INV-01: executors draw PYTHONHASHSEED anew; sets and dicts of text must not reach output."""
    script = (
        "import hashlib, runpy\n"
        f"m = runpy.run_path({str(Path(__file__))!r})\n"
        "h = hashlib.sha256()\n"
        "for seed in range(12):\n"
        "    how = m['settings_of'](seed)\n"
        "    log, _ = m['logs'].draw_log(seed, 150, how)\n"
        "    h.update(repr(m['fold'](None, log, how)).encode())\n"
        "print(h.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(digests) == 1


@PROFILE
@given(SEEDS)
def test_every_step_leaves_a_sound_shard(seed: int) -> None:
    """INV-06, INV-11, INV-12, INV-13, INV-14, INV-15, INV-33, INV-42 after every single record."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how, positions=True)
    shard = Shard(None, how)
    before = {}
    for record in records:
        clock_ms, count = shard.clock_ms, len(shard.outputs)
        shard.judge(record)
        new = shard.outputs[count:]
        assert shard.clock_ms >= clock_ms
        check_numbers(shard)
        groups = {name: cell.value for name, cell in shard.groups.items()}
        for name, group in groups.items():
            came_again = any(b'"GroupDeleted"' in o.value for o in new if o.key == name.encode())
            earlier = None if came_again else before.get(name)
            if earlier is not None and group is not None:
                assert group.generation >= earlier.generation
                assert group.fence >= earlier.fence
        before = groups

    assert not [o for o in shard.outputs if o.topic == EVENTS and b"Quarantined" in o.value]


def check_numbers(shard: Shard) -> None:
    """INV-15: what a row knows by heart equals its recomputation."""
    timeouts: Counter[int] = Counter()
    retention_ms = config_of(shard.settings).offsets_retention_ms
    for name, cell in shard.groups.items():
        group, facts, key = cell.value, cell.facts, ("group", name)
        assert group is not None
        CLASSIC.check(group)
        assert list(cell.heard) == list(group.members)
        due = CLASSIC.next_due(group, cell.heard)
        assert facts.next_due_ms <= due.due_ms
        assert (facts.next_due_ms == NEVER) == (due.due_ms == NEVER)
        assert due.due_ms > shard.clock_ms  # INV-33
        if facts.next_due_ms < NEVER:
            assert (facts.next_due_ms, key) in shard._agenda.due
        assert (key in shard._agenda.uncovered) == (facts.first_unread_offset >= 0)
        assert facts.first_unread_offset < 0 or facts.first_unread_offset > shard.published
        offsets = list(offsets_of(cell))
        assert sum(cell.counts.values()) == len(offsets) == len({place[:2] for place in offsets})
        assert facts.next_maintenance_ms <= kind.first_expiry(group, offsets_of(cell), retention_ms)
        if facts.next_maintenance_ms < NEVER:
            assert (shard._agenda.check_of(facts), key) in shard._agenda.looks
        assert_as_new(cell, shard)
        assert cell.entry_bytes == counted_anew(offsets)
        timeouts[facts.timeout_ms] += bool(facts.timeout_ms)
    assert shard._agenda.size_bytes == sum(
        cell.facts.size_bytes + cell.entry_bytes for cell in shard.groups.values()
    )
    shortest = min((ms for ms in timeouts if ms), default=0)
    assert shard.status().cap_ms == (shortest // 5 if shortest else limits.CLOCK_CAP_IDLE_MS)


def counted_anew(offsets: list[tuple[str, int, KeptOffset]]) -> int:
    of_topics = sum(name_bytes(topic) for topic in {row[0] for row in offsets})
    return of_topics + sum(offset_bytes(kept.metadata, kept.member) for _, _, kept in offsets)


@PROFILE
@given(SEEDS)
def test_generations_rise_by_one_when_a_join_phase_ends(seed: int) -> None:
    """INV-11, INV-16: history shows every generation once, and every member id once."""
    how = settings_of(seed)
    _, talk = logs.draw_log(seed, LENGTH, how)
    events = [msgspec.json.decode(o.value) for o in talk.outputs if o.topic == EVENTS]
    for name in logs.GROUPS:
        ends = []
        for event in events:
            if event["group"] == name and event["type"] == "GroupDeleted":
                ends = []
            if event["group"] == name and event["type"] in ("GenerationStarted", "GroupEmptied"):
                ends.append(event["generation"])
            assert ends == list(range(1, len(ends) + 1))
    joined = [event["member"] for event in events if event["type"] == "MemberJoined"]
    assert len(set(joined)) == len(joined)
    ids = [event["event_id"] for event in events]
    assert len(set(ids)) == len(ids)


@PROFILE
@given(SEEDS)
def test_every_request_gets_one_terminal_answer(seed: int) -> None:
    """INV-17: an unanswered request makes a client wait for ever, a second one confuses it."""
    records, talk = logs.draw_log(seed, LENGTH, settings_of(seed))
    answers = [msgspec.json.decode(o.value) for o in talk.outputs if o.topic == RESPONSES]
    causes = Counter(answer["cause"] for answer in answers if "id" in answer)
    groups = [cell.value for cell in talk.shard.groups.values()]
    parked = {m.parked.cause for group in groups for m in group.members.values() if m.parked}
    assert set(causes.values()) <= {1}
    assert not parked & causes.keys()

    newest = {}
    for record in records:
        request, cause = logs.decoded(record), f"r0-{record.offset}"
        if isinstance(request, api.JoinGroup | api.SyncGroup):
            # The same request once more takes the place of the one that waits.
            newest[type(request), request.client, request.group, request.id] = cause
        elif isinstance(request, Refusal):
            assert causes[cause] == (request.id is not None)
        elif not isinstance(request, api.Heartbeat | api.Tick):
            assert causes[cause] == 1
    assert [cause for cause in newest.values() if causes[cause] + (cause in parked) != 1] == []


def without_waits(group: Group | None) -> Group | None:
    """A group without what changes silently: a refused heartbeat of a former owner renews its

    guard, and deadlines end a wait of which others remain."""
    if group is None:
        return None
    waits: dict[str, Any] = {"guards": {}, "pending": {}, "join_timer": None, "is_overdue": False}
    return msgspec.structs.replace(group, **waits)


@PROFILE
@given(SEEDS)
def test_a_refused_request_changes_nothing(seed: int) -> None:
    """INV-18, INV-24: only members of the current generation act, and who is refused leaves no
    trace but an answer and a line of history."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how)
    shard = Shard(None, how)
    for record in records:
        before = {name: (cell.value, list(offsets_of(cell))) for name, cell in shard.groups.items()}
        count = len(shard.outputs)
        shard.judge(record)
        request, new = logs.decoded(record), shard.outputs[count:]
        if not isinstance(request, api.SyncGroup | api.OffsetCommit | api.Heartbeat):
            continue
        group, offsets = before.get(request.group, (None, []))
        belongs = (
            group is not None
            and request.member in group.members
            and request.generation == group.generation
        )
        # An initial delay is extended without a word.
        by_deadlines = any(b"deadline:" in (output.value or b"") for output in new) or (
            group is not None and group.is_initial
        )
        is_admin = isinstance(request, api.OffsetCommit) and request.generation < 0
        if not (belongs or by_deadlines or is_admin):
            after = shard.groups.get(request.group)
            kept = (after.value, list(offsets_of(after))) if after else (None, [])
            assert (without_waits(kept[0]), kept[1]) == (without_waits(group), offsets)
            assert {output.topic for output in new} <= {RESPONSES, EVENTS}
            assert sum(b'"error":"NONE"' in (output.value or b"") for output in new) == 0


@PROFILE
@given(SEEDS)
def test_the_compacted_topics_give_the_shard_back(seed: int) -> None:
    """INV-38: a lost checkpoint is an inconvenience; sessions are re-armed and nothing else."""
    how = settings_of(seed)
    records, _ = logs.draw_log(seed, LENGTH, how, positions=True)
    done = fold(None, records, how)
    newest = compacted(done.outputs)
    saved = [v for (topic, _, _), v in newest.items() if topic == GROUPS and v]
    committed = [(k, v) for (topic, _, k), v in newest.items() if topic == COMMITTED and v]

    rebuilt = Shard(restore(saved, committed, done.status.position), how)
    shard = Shard(done.blob, how)

    assert rebuilt.status().position == shard.status().position
    assert rebuilt.status().owed == shard.status().owed
    assert rebuilt.status().cap_ms == shard.status().cap_ms
    assert rebuilt.groups.keys() == shard.groups.keys()
    for name, cell in shard.groups.items():
        assert rebuilt.groups[name].value == cell.value
        assert list(offsets_of(rebuilt.groups[name])) == list(offsets_of(cell))
        assert sum(rebuilt.groups[name].counts.values()) == sum(cell.counts.values())
        assert set(rebuilt.groups[name].heard.values()) <= {shard.clock_ms}
    for topic, _, key in (place for place, value in newest.items() if value is not None):
        if topic == ASSIGNMENTS:  # of nobody who is gone, in no group that is
            name, member = msgspec.json.decode(key)
            assert member in shard.groups[name].value.members
    check_numbers(rebuilt)


@PROFILE
@given(SEEDS)
def test_a_rebuilt_shard_forgets_at_the_same_time(seed: int) -> None:
    """INV-38: its bounds of expiry are other ones; only when it looks depends on them."""
    how = FORGETFUL
    records, _ = logs.draw_log(seed, LENGTH, how)
    done = fold(None, records, how)
    newest = compacted(done.outputs)
    saved = [v for (topic, _, _), v in newest.items() if topic == GROUPS and v]
    committed = [(k, v) for (topic, _, k), v in newest.items() if topic == COMMITTED and v]
    shards = Shard(done.blob, how), Shard(restore(saved, committed, done.status.position), how)
    empty = {name for name, cell in shards[0].groups.items() if cell.value.state == "Empty"}

    for offset in range(len(records), len(records) + 40):
        time_ms = shards[0].previous_ms + 700
        tick = InputRecord(REQUESTS, offset, time_ms, b'{"v":1,"type":"Tick","published":-1}')
        for shard in shards:
            shard.outputs.clear()
            shard.judge(tick)
        first, second = ([o for o in s.outputs if o.topic == COMMITTED] for s in shards)
        assert [o for o in first if msgspec.json.decode(o.key)[0] in empty] == [
            o for o in second if msgspec.json.decode(o.key)[0] in empty
        ]
        assert empty & shards[0].groups.keys() == empty & shards[1].groups.keys()
    assert not empty & shards[0].groups.keys()


@PROFILE
@given(SEEDS)
def test_offsets_expire_neither_early_nor_subscribed(seed: int) -> None:
    """Whoever lost a position would read a topic from its beginning, or skip to its end."""
    how = FORGETFUL
    records, _ = logs.draw_log(seed, LENGTH, how, positions=True)
    shard = Shard(None, how)
    committed_at: dict[tuple[str, str, int], int] = {}
    for record in records:
        count = len(shard.outputs)
        before = {name: cell.value for name, cell in shard.groups.items()}
        shard.judge(record)
        new = shard.outputs[count:]
        expired = [
            msgspec.json.decode(o.value) for o in new if b"OffsetsExpired" in (o.value or b"")
        ]
        for event in expired:
            group = before[event["group"]]
            by_deadline = any(b"deadline:s" in (o.value or b"") for o in new)  # it emptied now
            assert group.state in ("Empty", "Stable") or by_deadline
            for row in event["detail"]["offsets"]:
                at_ms = committed_at.pop((event["group"], row["topic"], row["partition"]))
                assert shard.clock_ms - at_ms >= config_of(FORGETFUL).offsets_retention_ms
                assert event["reason"] == "group empty" or (
                    group.protocol_type == "consumer" and row["topic"] == "u"
                )
        for output in new:
            if output.topic == COMMITTED and output.value is not None:
                # Before the first request there is no clock, which must not make it old.
                at_ms = shard.clock_ms or START_MS
                committed_at[tuple(msgspec.json.decode(output.key))] = at_ms


@PROFILE
@given(SEEDS)
def test_groups_do_not_know_of_each_other(seed: int) -> None:
    """INV-44: apart from the clock, which all share, one group's log decides its state.

    Here the clock is kept the same by turning other groups' requests into heartbeats of nobody.
    """
    how = with_groups(SETTINGS, groups_per_shard_max=9)
    records, _ = logs.draw_log(seed, LENGTH, how)
    slow = [  # steps far below any CAP, so that timeouts of others do not show in the clock
        InputRecord(REQUESTS, r.offset, 1_000_000 + 700 * r.offset, r.value) for r in records
    ]
    alone = []
    for record in slow:
        request = logs.decoded(record)
        theirs = isinstance(request, api.Request) and request.group != "g"
        alone.append(
            InputRecord(
                REQUESTS, record.offset, record.timestamp_ms, b"" if theirs else record.value
            )
        )

    def of_group(outputs: list[Output]) -> list[Output]:
        return [o for o in said(outputs) if o.key == b"g" or o.key.startswith(b'["g"')]

    def without_ordinal(output: Output) -> Output:
        if output.topic != EVENTS:
            return output
        event = msgspec.json.decode(output.value)
        event["event_id"] = event["event_id"].rsplit("-", 1)[0]
        return Output(output.topic, output.partition, output.key, msgspec.json.encode(event))

    together = [without_ordinal(o) for o in of_group(fold(None, slow, how).outputs)]
    by_itself = [without_ordinal(o) for o in of_group(fold(None, alone, how).outputs)]

    assert together == by_itself


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(value: bytes) -> None:
    """INV-40: a record is written by anybody who can reach the topic."""
    decoded = codec.decode_request(value)

    assert isinstance(decoded, Refusal | api.Request | api.Tick)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SEEDS, st.integers(0, 400), st.binary(max_size=4), st.integers(0, 6))
def test_mutated_requests_decode_or_are_refused_and_can_be_answered(
    seed: int, place: int, inserted: bytes, dropped: int
) -> None:
    """INV-40, INV-41: one flipped byte on a proxy; one event, and at most one answer."""
    rnd = Random(seed)
    client = logs.Client("a", "g")
    value = codec.encode(client.say(rnd))
    place %= len(value)
    mutated = value[:place] + inserted + value[place + dropped :]
    shard = Shard(None, SETTINGS)
    shard.judge(InputRecord(REQUESTS, 0, 5, mutated))

    if isinstance(codec.decode_request(mutated), Refusal):
        assert shard.rows == {}
        assert [o.topic for o in shard.outputs] in ([EVENTS], [RESPONSES, EVENTS])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from([*api.JoinGroup.__struct_fields__, "offsets", "topics", "members", "type"])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SEEDS, FIELDS, JSON)
def test_any_field_of_any_type_is_judged_and_answered(seed: int, field: str, value: object) -> None:
    """INV-40: a client in another language, an older version, a hostile one."""
    import json

    request = json.loads(codec.encode(logs.Client("a", "g").say(Random(seed))))
    request[field] = value
    raw = json.dumps(request).encode()
    shard = Shard(None, SETTINGS)

    shard.judge(InputRecord(REQUESTS, 0, 5, raw))

    assert not [o for o in shard.outputs if b"Quarantined" in (o.value or b"")]


if __name__ == "__main__":
    pytest.main([__file__])
