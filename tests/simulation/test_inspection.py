"""What is looked at while batches are judged: each of these checks can fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import REQUESTS, EffectTooLarge
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.errors import ErrorCode
from tests.simulation.test_checks import assert_breaks
from tests.tools.core import InputRecord, Shard, decode_blob, fold
from tests.tools.driving import SETTINGS, commit, describe, join, leave, settings
from tests.tools.simulation import inspection
from tests.tools.simulation.inspection import Inspector, WatchedShard, check_against_topics
from tests.tools.simulation.paged import Paged

PRODUCTION = msgspec.structs.replace(SETTINGS, checks_invariants=False)


def log(*requests: api.AnyRequest, topic: str = REQUESTS) -> list[InputRecord]:
    return [
        InputRecord(topic, number, 1_000_000 + number, codec.encode(request))
        for number, request in enumerate(requests)
    ]


def blob_of(*requests: api.AnyRequest) -> bytes:
    shard = Shard(None, SETTINGS)
    for record in log(*requests):
        shard.judge(record)
    shard.close()
    return shard.encode()


def test_pages_that_say_another_thing_are_seen() -> None:
    """INV-02: the job keeps its shards in pages; the same batch of a blob must come to the same."""
    records, done = log(join("a")), fold(None, log(join("a")), PRODUCTION)
    other = fold(None, log(join("b")), PRODUCTION)
    paged = Paged(Random(1))

    paged.check(None, records, PRODUCTION, done)
    paged.check(done.blob, [], PRODUCTION, fold(done.blob, [], PRODUCTION))

    for wrong in (other, msgspec.structs.replace(done, blob=other.blob)):
        assert_breaks("INV-02", partial(paged.check, None, records, PRODUCTION, wrong))


# ---- states, and what no state comes of ---------------------------------------------------------


def test_an_unsound_group_is_seen_though_the_core_checks_nothing() -> None:
    """INV-13: a leader that is no member stays unseen in production, until somebody needs it."""
    state = decode_blob(blob_of(join("a")))
    (row,) = state.rows
    machine = REGISTRY.kinds[row.kind]
    Inspector(looks_at_states=True).check_states(PRODUCTION, state)

    group = msgspec.structs.replace(machine.decode(row.head), leader="nobody")
    row.head = msgspec.Raw(machine.encode(group))

    inspector = Inspector(looks_at_states=True)
    assert_breaks("INV-13", lambda: inspector.check_states(PRODUCTION, state))


def test_states_are_looked_at_in_worlds_with_the_production_s_settings() -> None:
    """The same by way of a batch: the core is told to check nothing, and the inspector does."""
    looked: list[Any] = []
    inspector = Inspector(looks_at_states=True)
    inspector.check_states = lambda *each: looked.append(each)  # type: ignore[method-assign]

    inspector.judge(None, log(join("a")), PRODUCTION, [])

    assert len(looked) == 1


def test_a_shard_that_keeps_more_than_it_may_is_seen() -> None:
    """INV-43."""
    state = decode_blob(blob_of(join("a")))
    near = settings(bytes_max=64)

    assert_breaks("INV-43", lambda: Inspector(looks_at_states=True).check_states(near, state))


def test_a_group_that_waits_for_what_is_covered_is_seen() -> None:
    """Rule 3: a tick came while it was set aside, and its release has not gone by it."""
    state = decode_blob(blob_of(join("a")))
    (row,) = state.rows
    Inspector().check_states(PRODUCTION, state)
    assert row.facts.first_unread_offset == 0

    state.published = 0
    assert_breaks("rule 3", lambda: Inspector().check_states(PRODUCTION, state))


def watched_shard(*requests: api.AnyRequest) -> WatchedShard:
    shard = WatchedShard(None, SETTINGS)
    for record in log(*requests):
        shard.judge(record)
    return shard


@pytest.mark.parametrize("what", ["size_bytes", "cap_ms", "deadlines"])
def test_a_number_that_is_not_what_counting_gives_is_seen(what: str) -> None:
    """INV-15: at the end of a batch, whose next one counts anew and hides it."""
    watched_shard(join("a")).close()
    shard = watched_shard(join("a"))
    setattr(shard._agenda, what, getattr(shard._agenda, what) + 1)

    assert_breaks(f"INV-15: {what}", shard.close)


@pytest.mark.parametrize("what", ["due", "looks", "waits"])
def test_a_row_that_is_lost_from_an_index_is_seen(what: str) -> None:
    """INV-15: a deadline, a look, one that waits for a tick."""
    requests = (join("a"), commit("q", group="h"), api.Tick(v=1, published=0), join("b", group="i"))
    watched_shard(*requests).close()
    shard = watched_shard(*requests)
    index = getattr(shard._agenda, what)
    assert index
    index.clear()

    assert_breaks("INV-15", shard.close)


def test_a_deadline_that_did_not_fire_in_time_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-33: by the record that is judged all the same."""
    late = InputRecord(REQUESTS, 9, 2_000_000, codec.encode(api.Tick(v=1, published=8)))
    some = (join("a"), api.Tick(v=1, published=0))
    watched_shard(*some).judge(late)
    monkeypatch.setattr(WatchedShard, "_fire_due", lambda *_: None)
    shard = watched_shard(*some)
    # One step is shorter than a session.
    steps = [InputRecord(REQUESTS, n, 1_000_000 + n * 1_000, late.value) for n in range(9, 60)]

    def judge_all() -> None:
        for record in steps:
            shard.judge(record)

    assert_breaks("INV-33", judge_all)


def test_a_batch_that_cannot_be_judged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-67: what the sink cannot write ends the task, and so the same batch after any restart."""

    def raises(*args: object) -> None:
        raise EffectTooLarge("groups record of 10876527 bytes")

    monkeypatch.setattr(inspection, "output_rows", raises)

    assert_breaks("INV-67", lambda: Inspector().judge(None, log(join("a")), PRODUCTION, []))


def test_a_state_that_cannot_be_read_is_none_of_its_business() -> None:
    """A damaged state ends a driver, which is then started into a rebuild."""
    with pytest.raises(msgspec.MsgspecError):
        Inspector().judge(b"", log(join("a")), PRODUCTION, [])


def test_a_batch_of_too_many_bytes_is_seen() -> None:
    """INV-68: a request of 50 KB has had 309 MB of answers."""
    inspector, records = Inspector(sizes=1_000_000), log(describe("x"))
    few, many = [(0, 0, b"x" * 100, None)], [(0, 0, b"x" * 100_000, None)]

    inspector.check_size(PRODUCTION, records, few)
    assert_breaks("INV-68", lambda: inspector.check_size(PRODUCTION, records, many))


def test_sizes_are_divided_only_where_it_is_wanted() -> None:
    """Small worlds meet bounds that take megabytes otherwise; what clients know stays."""
    whole, request = limits.GROUP_BYTES_MAX, limits.REQUEST_BYTES_MAX

    with inspection.sizes_divided(32):
        assert whole == limits.GROUP_BYTES_MAX * 32
        assert request == limits.REQUEST_BYTES_MAX

    assert whole == limits.GROUP_BYTES_MAX


# ---- refused requests ---------------------------------------------------------------------------


@contextmanager
def commits_that_touch(code: ErrorCode, failed: bool = False) -> Iterator[None]:
    """A core in which a commit that is refused counts as a sign of life."""

    def judge(step: Any, request: api.OffsetCommit) -> None:
        step.touched += list(step.live.members)
        row = api.FailedPartition("t", 0, ErrorCode.PARTITION_NOT_OWNED.name)
        rows = {"failed": (row,)} if failed else {}
        if code is ErrorCode.NONE:
            step.answer(request, **rows)
        else:
            step.refuse(request, code)

    with patch.dict(REGISTRY.kinds["classic"].handlers, {api.OffsetCommit: judge}):
        yield


def watched(*requests: api.AnyRequest) -> None:
    shard = WatchedShard(None, PRODUCTION)
    for record in log(*requests):
        shard.judge(record)


@pytest.mark.parametrize(
    ("code", "failed"), [(ErrorCode.ILLEGAL_GENERATION, False), (ErrorCode.NONE, True)]
)
def test_a_refusal_that_counts_as_a_sign_of_life_is_seen(code: ErrorCode, failed: bool) -> None:
    """INV-24: positions under a member's name have kept dead members alive."""
    with commits_that_touch(code, failed):
        assert_breaks("INV-24.*sign of life", lambda: watched(join("a"), commit("b")))


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_what_is_taken_or_comes_too_early_is_a_sign_of_life(code: ErrorCode) -> None:
    """Rule 13: who is told that the group is busy has been heard."""
    with commits_that_touch(code):
        watched(join("a"), commit("b"))


# ---- what the topics say ------------------------------------------------------------------------


def topics_of(shard: Shard) -> dict[str, dict[bytes, bytes]]:
    newest = {(o.topic, o.key): o.value for o in shard.outputs}
    found: dict[str, dict[bytes, bytes]] = {"groups": {}, "committed": {}}
    for (topic, key), value in newest.items():
        if topic in found and value is not None:
            found[topic][key] = value
    return found


def test_an_offset_that_only_the_topics_have_is_seen() -> None:
    """INV-38: what went out and was not applied a rebuild has, and the job not."""
    shard = Shard(None, SETTINGS)
    for record in log(commit("a"), topic=COMMITS):
        shard.judge(record)
    shard.close()
    topics = topics_of(shard)
    check_against_topics(0, shard.encode(), topics)

    blank = Shard(None, SETTINGS)
    for record in log(commit("a"), topic=COMMITS):
        blank.judge(record)
    (cell,) = blank.rows.values()
    cell.apply(OFFSETS, [(("t", 0), None)])
    assert sum(cell.counts.values()) == 0

    assert_breaks("INV-38.*tables", lambda: check_against_topics(0, blank.encode(), topics))


def test_a_group_that_the_topics_lack_is_seen() -> None:
    """INV-38."""
    blob = blob_of(join("a"))

    assert_breaks("INV-38.*only", lambda: check_against_topics(0, blob, {}))


def test_a_rebuild_that_believes_old_counts_is_seen() -> None:
    """INV-38: a group that is set aside does not hear of topics that grow."""

    def knows(count: int) -> bytes:
        topics = api.TopicMetadata(v=1, topics=(api.Topic("orders", count),))
        return blob_of(topics, leave("x", "nobody"))

    inspector = Inspector()
    inspector.note_topics("checkpoint-1", 7, {0: knows(6)})
    inspector.note_topics("checkpoint-1", 8, {})
    inspector.check_rebuilt("checkpoint-1", 8, {0: knows(6)})

    assert_breaks("INV-38", lambda: inspector.check_rebuilt("checkpoint-1", 8, {0: knows(3)}))
