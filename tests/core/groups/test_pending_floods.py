"""A producer leaves a thousand commits undecided: one more must not cost what all of them do."""

import msgspec
import pytest

from coordlib.core.engine.step import NOT_INDEXED
from coordlib.core.engine.tables import Entries
from coordlib.core.groups.offsets import pending
from coordlib.core.groups.offsets.tables import PENDING, KeptPending
from coordlib.core.wire import api
from tests.tools.driving import Conversation, commit, pending_commit, settings


def test_a_commit_reads_no_other_entry_for_what_the_driver_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand commits in a transaction that stays open made batches of seconds."""
    talk = Conversation()
    talk.send(pending_commit("a"))
    monkeypatch.setattr(Entries, "__iter__", lambda _: pytest.fail("all entries were read"))

    for _ in range(3):
        talk.send(pending_commit("a"))

    assert talk.shard.status().undecided == (0, 1, 2, 3)


def test_what_is_reported_after_a_change_is_what_all_entries_give() -> None:
    """An entry comes, is decided while its group is set aside, is forgotten, and comes again."""
    entries, reported = Entries(PENDING), NOT_INDEXED
    told: list[tuple[int, ...]] = []
    for name, entry in (
        ("r0-7", kept("kafka")),
        ("r0-300", kept("kafka")),
        ("r0-9", kept("delta")),
        ("5-1", kept("coordinator")),
        ("r0-7", kept("kafka", "commit")),
        ("r0-300", None),
        ("5-1", None),
        ("r0-7", None),
        ("r0-300", kept("kafka")),
    ):
        place = (name, 0)
        reported = pending.report_after(reported, entries, [(place, entries.set(place, entry))])
        told.append(pending.undecided(reported))
        assert reported == pending.report(entries)

    assert told == [(7,), (7, 300), (7, 300), (7, 300), (300,), (), (), (), (300,)]


def kept(decided_by: str, decision: str = "") -> KeptPending:
    return KeptPending(
        decided_by=decided_by,
        client="a",
        id="i",
        member="",
        generation=-1,
        since_ms=0,
        table="",
        decision=decision,
        partitions=0,
        reserved_bytes=0,
        rows=msgspec.Raw(msgspec.msgpack.encode(())),
    )


def test_a_commit_of_a_partition_that_has_an_offset_reads_no_pending_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Near the bound of a group's offsets each commit read all pending rows, 40 ms of them."""
    talk = Conversation(settings(offsets_per_group_max=3))
    talk.send_all(commit("a"), pending_commit("a", offsets=rows("u", 2)))
    monkeypatch.setattr(pending, "new_places", lambda _: pytest.fail("all rows were read"))

    again = talk.send(commit("a", offset=6))
    also = talk.send(pending_commit("a", offset=7))

    assert not [line for line in (*again, *also) if "INVALID_COMMIT_OFFSET_SIZE" in line]


def test_one_commit_reads_pending_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name ten thousand partitions for which there is no room."""
    talk = Conversation(settings(offsets_per_group_max=3))
    talk.send_all(commit("a"), pending_commit("a", offsets=rows("t", 2)))
    looks: list[int] = []
    found = pending.new_places
    monkeypatch.setattr(pending, "new_places", lambda *entries: looks.append(1) or found(*entries))

    said = talk.send(commit("a", offsets=rows("v", 9)))

    assert len(looks) == 1
    (answer,) = (line for line in said if line.startswith("answer"))
    assert answer.count("INVALID_COMMIT_OFFSET_SIZE") == 8  # t/1 waits, so one has room


def rows(topic: str, count: int) -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset(topic, partition, 5) for partition in range(count))
