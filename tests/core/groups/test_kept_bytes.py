"""A shard's state has a bound in bytes, whatever its groups and offsets are made of.  # INV-43

The blob is rewritten every batch and held whole by Spark: a legal flood of large metadata could
stop the job.
"""

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, GROUPS
from coordlib.core.engine.tables import Entries, name_bytes
from coordlib.core.groups.classic.group import JOIN_BYTES_MAX, Group
from coordlib.core.groups.offsets.tables import OFFSETS, offset_bytes
from coordlib.core.wire import api
from coordlib.core.wire.stored import CommittedValue
from tests.tools.core import Shard, facts_of, offsets_of, restore
from tests.tools.driving import (
    LEADER,
    Conversation,
    commit,
    completing,
    join,
    leave,
    settings,
    settled,
    sync,
)

KB = 1_000


def bounded(**group: object) -> object:
    return settings(initial_rebalance_delay_ms=60_000, **group)


def size_of(talk: Conversation) -> int:
    """What the shard counts, which must be what counting anew gives."""
    counted = talk.shard._agenda.size_bytes
    assert counted == sum(
        facts_of(cell, talk.shard).size_bytes + offsets_of(cell).size_bytes
        for cell in talk.shard.groups.values()
        if cell.value is not None
    )
    return counted


def row(partition: int, metadata: str = "", topic: str = "t") -> api.CommittedOffset:
    return api.CommittedOffset(topic, partition, 1, metadata=metadata)


def failed(lines: list[str]) -> int:
    """Rows that were refused because they are too large for what is kept."""
    answers = [line for line in lines if line.startswith("answer")]
    return str(answers).count("INVALID_COMMIT_OFFSET_SIZE")


def test_offsets_of_a_group_have_a_bound_in_bytes_row_by_row() -> None:
    """A client that keeps its own state as metadata: 4 KiB times 100,000 would be 400 MB."""
    one, topic = offset_bytes("m" * 1_000, ""), name_bytes("t")
    talk = Conversation(settings(offsets_bytes_per_group_max=3 * one + topic))

    lines = talk.send(commit("tool", offsets=tuple(row(p, "m" * 1_000) for p in range(5))))

    assert failed(lines) == 2
    assert [place[1] for place in offsets_of(talk.shard.groups["g"])] == [0, 1, 2]
    assert failed(talk.send(commit("tool", offsets=(row(3),)))) == 1
    assert offsets_of(talk.shard.groups["g"]).size_bytes == 3 * one + topic


def test_a_full_group_stores_what_makes_it_no_larger() -> None:
    """Positions go on; and shorter metadata makes room for others."""
    one = offset_bytes("m" * 100, "")
    talk = Conversation(settings(offsets_bytes_per_group_max=2 * one + name_bytes("t")))
    talk.send(commit("tool", offsets=(row(0, "m" * 100), row(1, "m" * 100))))

    assert failed(talk.send(commit("tool", offsets=(row(0, "n" * 100), row(1, "m" * 101))))) == 1
    assert failed(talk.send(commit("tool", offsets=(row(0, ""), row(1, "m" * 200))))) == 0
    assert failed(talk.send(commit("tool", offsets=(row(1, "m" * 201),)))) == 1


def test_rows_of_one_request_use_up_the_room_together() -> None:
    """A topic's name counts once."""
    room = offset_bytes("mm", "") + offset_bytes("", "") + name_bytes("t")
    talk = Conversation(settings(offsets_bytes_per_group_max=room))

    lines = talk.send(commit("tool", offsets=(row(0, "mm"), row(1), row(2))))

    assert failed(lines) == 1
    assert offsets_of(talk.shard.groups["g"]).size_bytes == room


def test_a_lowered_bound_takes_nothing_away() -> None:
    """An operator lowered it below what a group has: it goes on, and grows no more."""
    talk = Conversation()
    talk.send(commit("tool", offsets=(row(0, "m" * 100), row(1, "m" * 100))))
    talk.settings = settings(offsets_bytes_per_group_max=50, bytes_max=50)
    talk.end_batch()

    assert failed(talk.send(commit("tool", offsets=(row(0, "m" * 100), row(1, "m" * 101))))) == 1
    assert len(list(offsets_of(talk.shard.groups["g"]))) == 2


def test_a_full_shard_takes_no_new_group_and_no_new_member() -> None:
    """Ever-new groups with large metadata: each by name, and nothing of them stays."""
    talk = Conversation(bounded(bytes_max=200 * KB))
    answers = [
        talk.send(join(f"m{number}", group=f"g{number}", protocols={"range": b"m" * 60 * KB}))
        for number in range(5)
    ]

    assert [f"answer[g{n}]" in str(lines) for n, lines in enumerate(answers)] == [False] * 3 + [
        True
    ] * 2
    assert "GROUP_MAX_SIZE_REACHED" in answers[3][0]
    assert "bytes_max" in answers[3][1]
    assert list(talk.shard.groups) == ["g0", "g1", "g2"]
    assert "GROUP_MAX_SIZE_REACHED" in str(
        talk.send(join("more", group="g0", protocols={"range": b"m" * 60 * KB}))
    )
    assert list(talk.group("g0").members) == ["m0-t-0-0"]
    assert size_of(talk) <= 200 * KB


def test_a_full_shard_takes_no_positions_of_strangers() -> None:
    """Nobody who is no member fills the part that is kept for members."""
    talk = Conversation(settings(bytes_max=10 * KB))
    lines = talk.send(commit("tool", offsets=tuple(row(p, "m" * 1_000) for p in range(20))))
    assert 10 <= failed(lines) <= 12

    assert talk.send(commit("tool", group="h", offsets=(row(0),)))[0].startswith(
        "answer[h] tool#c OffsetCommit COORDINATOR_NOT_AVAILABLE"
    ) == (10 * KB - size_of(talk) < Group(group="h").kept_bytes)
    assert size_of(talk) <= 10 * KB


def test_members_of_a_full_shard_go_on() -> None:
    """A flood filled the shard; members that were there rejoin, sync and commit meanwhile."""
    talk = settled()
    full = size_of(talk)
    talk.settings = settings(bytes_max=full)
    talk.end_batch()
    assert "GROUP_MAX_SIZE_REACHED" in str(talk.send(join("c")))

    lines = talk.send(join("a", "j3", member=LEADER, generation=2, protocols={"range": b"m" * 50}))
    talk.send(commit("a", 2, LEADER, offsets=(row(0),)))

    assert "RebalanceStarted" in str(lines)
    assert [place[1] for place in offsets_of(talk.shard.groups["g"])] == [0]
    assert full < size_of(talk) <= full * 5 // 4


def test_members_have_a_bound_too() -> None:
    """A member that grows with every rejoin, and with what it commits."""
    talk = settled()
    full = size_of(talk)
    talk.settings = settings(bytes_max=full)
    talk.end_batch()

    grown = {"range": b"m" * full}
    lines = talk.send(join("a", "j3", member=LEADER, generation=2, protocols=grown))
    assert lines[0] == f"answer a#j3 JoinGroup GROUP_MAX_SIZE_REACHED member={LEADER}"
    assert failed(talk.send(commit("a", 2, LEADER, offsets=(row(0, "m" * full),)))) == 1
    assert size_of(talk) == full


def test_an_assignment_for_which_the_shard_has_no_room_starts_the_group_over() -> None:
    """As one that is too large for the group."""
    talk = completing()
    talk.settings = settings(bytes_max=size_of(talk))
    talk.end_batch()

    lines = talk.send(sync("a", 2, LEADER, assignments={LEADER: b"a" * size_of(talk)}))

    assert 'reason="assignment too large"' in str(lines)


def test_a_static_twin_of_a_full_shard_takes_its_place() -> None:
    """A crash loop of one process is no growth."""
    talk = Conversation(settings(initial_rebalance_delay_ms=0))
    talk.send(join("a", instance="i"))
    talk.settings = settings(bytes_max=size_of(talk) + 400)
    talk.end_batch()

    for number in range(5):
        talk.send(join("a", f"again{number}", instance="i"))
        assert len(talk.group().members) == 1


def test_a_deletion_makes_room() -> None:
    """The operator does what the refusal says."""
    talk = Conversation(settings(bytes_max=1_500))
    talk.send(commit("tool", offsets=(row(0, "m" * 500),)))
    assert "COORDINATOR_NOT_AVAILABLE" in str(talk.send(commit("tool", group="h")))

    talk.send(api.DeleteGroup(v=1, id="d", client="ops", group="g"))

    assert talk.shard._agenda.size_bytes == 0
    assert "GroupCreated" in str(talk.send(commit("tool", group="h")))


def mixed() -> Conversation:
    """Members, an announced id, a guard and offsets, in two alphabets."""
    talk = settled(settings(initial_rebalance_delay_ms=0))
    talk.send(commit("a", 2, LEADER, offsets=(row(0, "\u20ac" * 9), row(70, "", "\u00e9" * 40))))
    talk.send(leave("ops", LEADER))
    talk.send(join("\u20ac", "\u00e9", group="h", instance="\u00fc"))
    return talk


def test_the_count_is_the_same_in_other_batches_and_after_a_rebuild() -> None:
    """INV-02, INV-15: what is refused may not depend on where batches ended."""
    talk = mixed()
    counted = size_of(talk)
    talk.end_batch()
    assert size_of(talk) == counted

    newest = {(o.topic, o.key): o.value for o in talk.outputs if o.topic in (GROUPS, COMMITTED)}
    blob = restore(
        [value for (topic, _), value in newest.items() if topic == GROUPS and value],
        [(key, value) for (topic, key), value in newest.items() if topic == COMMITTED and value],
        talk.shard.status().position,
    )
    assert Shard(blob, talk.settings)._agenda.size_bytes == counted


@pytest.mark.parametrize("width", [1, 3, 60])
@pytest.mark.parametrize("text", ["x", "\u20ac", "\U0001f600"])
def test_the_blob_is_never_larger_than_was_counted(text: str, width: int) -> None:
    """Names of every alphabet and length, and the largest numbers."""
    name = text * width
    talk = Conversation(bounded())
    for number in range(20):
        talk.send(
            join(
                name[:30],
                f"{number}",
                group=name,
                instance=f"{number}{name}",
                protocols={name: b"m" * number},
                session_timeout_ms=1_800_000,
                rebalance_timeout_ms=86_400_000,
            )
        )
    rows = tuple(
        api.CommittedOffset(name, 64 * p + 2**30, 2**62, 2**30, metadata=name) for p in range(50)
    )
    talk.send(commit("tool", group="offsets", offsets=rows))
    counted = size_of(talk)
    talk.end_batch()

    assert len(talk.shard.encode()) <= counted + 100
    assert counted <= 4 * len(talk.shard.encode())


def test_no_join_adds_more_than_its_bound() -> None:
    """Where there is room for that much, a join is not measured."""
    talk = Conversation(bounded())
    longest = "n" * limits.NAME_LENGTH_MAX
    metadata = bytes(limits.REQUEST_BYTES_MAX * 3 // 4 - 16 * KB)
    names = {longest[:-2] + f"{number:02}": b"" for number in range(limits.PROTOCOLS_MAX - 1)}
    talk.send(
        join(
            "c" * limits.CLIENT_LENGTH_MAX,
            "i" * limits.CORRELATION_ID_LENGTH_MAX,
            group=longest,
            instance=longest,
            protocol_type=longest,
            protocols={"range": metadata, **names},
        )
    )

    assert len(talk.shard.groups) == 1
    assert limits.REQUEST_BYTES_MAX // 2 < size_of(talk) <= JOIN_BYTES_MAX


def test_a_table_counts_its_bytes_as_a_new_one_would() -> None:
    """What is stored again or forgotten leaves nothing in the count."""
    table = Entries(OFFSETS)
    value = CommittedValue(
        offset=1,
        leader_epoch=-1,
        metadata="\u20ac",
        commit_ms=1,
        commit_clock_ms=1,
        generation=1,
        member="m",
    )
    table.apply(("t", 0), value)
    table.apply(("t", 0), msgspec.structs.replace(value, metadata=""))
    assert table.size_bytes == offset_bytes("", "m") + name_bytes("t")
    table.apply(("t", 1), value)
    table.apply(("t", 0), None)
    assert table.size_bytes == offset_bytes("\u20ac", "m") + name_bytes("t")
    table.apply(("t", 1), None)

    assert table.size_bytes == 0


def test_membership_changes_read_no_offsets_to_know_their_bytes() -> None:
    """A group's offsets stay encoded while its members come and go."""
    talk = settled()
    talk.send(commit("a", 2, LEADER))
    counted = talk.shard.groups["g"].entry_bytes
    talk.end_batch()

    talk.send(join("c"))

    assert not talk.shard.groups["g"]._entries
    assert talk.shard.groups["g"].entry_bytes == counted > 0
