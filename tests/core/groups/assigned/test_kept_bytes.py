"""A shard's bound in bytes holds for server-assigned groups as for others.  # INV-43

See `tests/core/groups/test_kept_bytes.py`; here is what only this kind does.
"""

from typing import Any

import pytest

from coordlib.core.engine.effects import COMMITTED, GROUPS
from coordlib.core.engine.tables import name_bytes
from coordlib.core.groups.assigned import group
from coordlib.core.groups.offsets.tables import offset_bytes
from coordlib.core.wire import api
from tests.core.groups.test_kept_bytes import failed, row, size_of
from tests.tools.assigned_groups import (
    A,
    B,
    group_of,
    guarded,
    halved,
    let_go,
    owned_in,
    stable,
    subscribe,
    told,
    topics,
)
from tests.tools.core import Shard, offsets_of, restore
from tests.tools.driving import Conversation, commit, leave, settings


def filled(talk: Conversation, more_bytes: int = 0) -> int:
    """From now on the shard has room for so many bytes more, and how many it has."""
    full = size_of(talk)
    talk.settings = settings(bytes_max=full + more_bytes)
    talk.end_batch()
    return full


def refused(lines: list[str]) -> bool:
    """As a JoinGroup is, with what the operator can do."""
    return "GROUP_MAX_SIZE_REACHED" in lines[0] and "bytes_max" in str(lines)


def test_a_full_shard_takes_no_new_group_and_no_new_member() -> None:
    """Ever-new groups and members with long wishes: nothing of them stays."""
    talk = stable()
    full, before = filled(talk), group_of(talk)

    assert refused(talk.send(subscribe("x", group="h")))
    assert refused(talk.send(subscribe("c", topics=tuple(f"topic-{n}" for n in range(50)))))
    assert list(talk.shard.groups) == ["g"]
    assert group_of(talk) == before
    assert size_of(talk) == full


def test_what_a_newcomer_is_given_counts_before_it_is_in() -> None:
    """There is room for its name and its wish, and none for its share of a hundred partitions."""
    talk = told(t=100)
    talk.send(commit("tool", group="h", offsets=tuple(row(p, "m" * 4_000) for p in range(10))))
    full = filled(talk, group.Group(group="g").kept_bytes + 1_000)

    assert refused(talk.send(subscribe("a")))
    assert list(talk.shard.groups) == ["h"]
    assert size_of(talk) == full
    assert not refused(talk.send(subscribe("a", topics=("none",))))
    assert size_of(talk) <= talk.settings.bounds.bytes_max


def test_a_flood_into_a_full_shard_divides_nothing() -> None:
    """A division for each that is refused would cost more than to let them in."""
    talk = stable()
    filled(talk)
    talk.shard.topics = talk.shard.topics | {"t": -1}  # no strategy could divide this

    assert refused(talk.send(subscribe("c")))


def test_members_of_a_full_shard_go_on() -> None:
    """A flood filled the shard: they let go, commit, want something else and leave meanwhile."""
    talk = halved()
    full = filled(talk)

    lines = talk.send(let_go("a", 2, A, cause=3, offsets=(row(2), row(3))))
    assert failed(lines) == 0
    talk.send(commit("a", 2, A, offsets=(row(0),)))
    assert not refused(talk.send(subscribe("a", "j2", member=A, generation=2, capacity=2)))

    assert [place[1] for place in offsets_of(talk.shard.groups["g"])] == [0, 2, 3]
    assert group_of(talk).members[A].capacity == 2
    assert full < size_of(talk) <= full * 5 // 4
    talk.send(leave("b", B))
    assert list(group_of(talk).members) == [A]


def test_members_have_a_bound_too() -> None:
    """A member that wants ever more, and one that lets go with its own state as metadata."""
    talk = halved()
    full, before = filled(talk), group_of(talk)

    wishes = tuple(f"topic-{number}" for number in range(full))
    assert refused(talk.send(subscribe("b", "j2", member=B, generation=2, topics=wishes)))
    assert group_of(talk) == before
    lines = talk.send(let_go("a", 2, A, cause=3, offsets=(row(2, "m" * full), row(3))))

    assert failed(lines) == 1
    assert [place[1] for place in offsets_of(talk.shard.groups["g"])] == [3]
    assert owned_in(talk)["b"] == {"t": (2, 3)}


def test_offsets_of_a_release_have_the_group_s_bound() -> None:
    """The same rows as in a commit, and the same bound."""
    talk = halved()
    room = offset_bytes("", A) + name_bytes("t")
    talk.settings = settings(offsets_bytes_per_group_max=room)
    talk.end_batch()

    assert failed(talk.send(let_go("a", 2, A, cause=3, offsets=(row(2), row(3))))) == 1
    assert offsets_of(talk.shard.groups["g"]).size_bytes == room


def test_new_topics_for_which_the_shard_has_no_room_are_left_out() -> None:
    """Topics come by the thousand, and all groups want all: what was divided stays divided."""
    talk = told()
    talk.send(subscribe("a", pattern=".*"))
    filled(talk)
    lines = talk.send(topics({"s": 2_000, "t": 4}))

    assert "left_out" not in str(lines)  # nothing of what this group wants has changed
    assert group_of(talk).topics == {"t": 4}
    assert size_of(talk) <= talk.settings.bounds.bytes_max * 5 // 4
    talk.settings = settings()
    talk.end_batch()
    talk.send(topics({"s": 2_001, "t": 4}))
    assert group_of(talk).topics == {"s": 2_001, "t": 4}


def test_a_topic_that_was_divided_grows_in_a_full_shard() -> None:
    """It is not taken from its owner because somebody added a partition."""
    talk = told()
    talk.send(subscribe("a"))
    filled(talk)

    talk.send(topics({"t": 5}))

    assert owned_in(talk) == {"a": {"t": (0, 1, 2, 3, 4)}}


def test_the_count_is_the_same_in_other_batches_and_after_a_rebuild() -> None:
    """INV-02, INV-15: also with a guard, and with a group that was of the other kind before."""
    talk = guarded()
    talk.send(commit("tool", group="h"))
    talk.send(subscribe("\u20ac", group="h"))
    talk.send(commit("a", 2, A, offsets=(row(0, "\u20ac"),)))
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
@pytest.mark.parametrize("text", ["x", '"', "\u20ac", "\U0001f600"])
def test_the_blob_is_never_larger_than_was_counted(text: str, width: int) -> None:
    """Names of every alphabet and length, and the largest numbers."""
    name = text * width
    talk = Conversation(settings())
    fields: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 86_400_000}
    for number in range(20):
        talk.send(
            subscribe(
                name[:30],
                f"{number}",
                group=name,
                topics=(f"{number}", *(f"{name[:30]}{n}" for n in range(5))),
                capacity=1_000_000,
                **fields,
            )
        )
    counted = size_of(talk)
    talk.end_batch()

    assert len(group_of(talk, name).members) == 20
    assert len(talk.shard.encode()) <= counted + 100


def test_a_group_without_anything_has_room_in_what_it_counts() -> None:
    """Its row in the shard, too."""
    talk = told()
    talk.send(subscribe("a"))
    talk.send(leave("a", A))
    talk.send(api.TopicMetadata(v=1, topics=()))
    talk.end_batch()

    assert size_of(talk) == group_of(talk).kept_bytes
    assert len(talk.shard.encode()) <= size_of(talk) + 100
