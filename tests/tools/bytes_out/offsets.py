"""Offsets of groups, committed and pending."""

import msgspec

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.tools import assigned_groups as assigned
from tests.tools.bytes_out.groups import members_of, synced
from tests.tools.bytes_out.measure import (
    ALL_OFFSETS,
    ALL_ROWS,
    JOB,
    NAME,
    PRODUCTION,
    ROWS,
    Made,
    case,
    silence,
)
from tests.tools.driving import (
    Conversation,
    commit,
    decide,
    delete,
    ended,
    fetch,
    pending_commit,
    settings,
)


def some_rows(topic: str = "t") -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset(topic, n, 0) for n in range(ROWS))


def _with_offsets() -> Conversation:
    talk = Conversation(PRODUCTION)
    talk.send(commit("a", group=NAME, offsets=some_rows(NAME)))
    talk.tick()
    return talk


@case(
    "OffsetCommit",
    "rows with short names of a group with a long one",
    times=ALL_ROWS,
)
def _() -> Made:
    return Conversation(PRODUCTION), [commit("a", group=NAME, offsets=some_rows())]


@case("OffsetCommit", "the same of a member", times=ALL_ROWS)
def _() -> Made:
    talk = synced(1)
    return talk, [commit("a", 1, members_of(talk)[0], group=NAME, offsets=some_rows())]


@case("OffsetCommit", "no row is kept", times=ALL_ROWS)
def _() -> Made:
    how = settings(offsets_per_group_max=1)
    return Conversation(how), [commit("a", group=NAME, offsets=some_rows())]


@case("offsets: OffsetCommit", "the same", times=ALL_ROWS, topic=COMMITS)
def _() -> Made:
    return Conversation(PRODUCTION), [commit("a", group=NAME, offsets=some_rows())]


@case("offsets: OffsetCommit", "no row is kept", topic=COMMITS)
def _() -> Made:
    how = settings(offsets_per_group_max=1)
    return Conversation(how), [commit("a", group=NAME, offsets=some_rows())]


@case("PendingCommit", "rows with short names", times=ALL_ROWS)
def _() -> Made:
    return Conversation(PRODUCTION), [pending_commit("a", group=NAME, offsets=some_rows())]


def _pending() -> Conversation:
    talk = Conversation(PRODUCTION)
    talk.send(pending_commit("a", group=NAME, offsets=some_rows()))
    talk.tick()
    return talk


@case("DecidePending", "a commit of many rows", times=ALL_ROWS)
def _() -> Made:
    talk = _pending()
    key = f"{REQUESTS}0-0"
    return talk, [decide("a", key, "commit", group=NAME, reason="r")]


@case("OffsetFetch", "of all offsets")
def _() -> Made:
    return _with_offsets(), [fetch("a", group=NAME)]


@case("OffsetFetch", "of partitions without an offset")
def _() -> Made:
    named = (api.TopicPartitions(NAME, tuple(range(ROWS))),)
    return Conversation(PRODUCTION), [fetch("a", topics=named)]


@case("OffsetDelete", "of many partitions of one topic", times=ALL_ROWS)
def _() -> Made:
    named = (api.TopicPartitions(NAME, tuple(range(ROWS))),)
    return _with_offsets(), [api.OffsetDelete(v=1, client="a", id="o", group=NAME, topics=named)]


@case("DeleteGroup", "of a group with many offsets", times=ALL_OFFSETS)
def _() -> Made:
    return _with_offsets(), [delete("a", group=NAME)]


@case("TxnDecided", "a commit of many rows", times=ALL_ROWS)
def _() -> Made:
    return _pending(), [ended(committed=[0])]


@case(
    "TopicMetadata",
    "a topic made anew, of which a group has offsets",
    times=ALL_ROWS,
    otherwise=JOB,
    kept_times=20,
)
def _() -> Made:
    talk, ids = Conversation(PRODUCTION), ("a" * 22, "b" * 22)
    talk.send(assigned.topics({"t": 1}, {"t": ids[0]}))
    rows = tuple(api.CommittedOffset("t", n, 0, topic_id=ids[0]) for n in range(ROWS))
    talk.send(commit("a", group=NAME, offsets=rows))
    talk.tick()
    return talk, [assigned.topics({"t": 1}, {"t": ids[1]})]


@case(
    "Tick",
    "offsets of a group are kept no longer",
    times=ALL_ROWS,
    after_ms=60_000,
)
def _() -> Made:
    how = settings(offsets_retention_ms=10_000, check_interval_ms=1_000)
    talk = Conversation(msgspec.structs.replace(how, checks_invariants=False))
    talk.send(commit("a", group=NAME, offsets=some_rows(NAME)))
    talk.tick()
    return talk, silence(talk)
