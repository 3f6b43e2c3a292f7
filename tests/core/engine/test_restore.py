"""INV-38. What a rebuilt shard believes: topics that groups tell, offsets whose group is there.

That groups and offsets come back as they were is held by the property tests.
"""

import itertools
from collections.abc import Iterable

import msgspec
import pytest
from structlog.testing import capture_logs

from coordlib.core.engine.effects import COMMITTED, GROUPS
from coordlib.core.wire import codec
from coordlib.core.wire.stored import CommittedValue, Marker, ShardPosition
from coordlib.job import pipelines
from coordlib.job.rebuild import GROUPS_NAMED_MAX, seed_blobs
from tests.tools.assigned_groups import group_of, owned_in, subscribe, topics
from tests.tools.core import Shard, orphans, restore
from tests.tools.defects import Defect, in_force
from tests.tools.driving import SETTINGS, Conversation, commit, leave, release

NOWHERE = ShardPosition(clock_ms=1, previous_ms=1, offsets={"r": 5}, published=5)
OFFSET = codec.encode(
    CommittedValue(
        offset=7, leader_epoch=-1, metadata="", commit_ms=1, commit_clock_ms=1, generation=-1,
        member="",
    )
)  # fmt: skip


def set_aside(talk: Conversation, group: str) -> None:
    """A LeaveGroup breaks, and the group is quarantined as it was."""
    with in_force([Defect(group, "LeaveGroup", talk.next_offset)]):
        talk.send(leave("x", "nobody", group=group))
    assert talk.group(group).is_quarantined


def saved(talk: Conversation) -> list[bytes]:
    """The newest value of each group."""
    talk.end_batch()
    newest = {o.key: o.value for o in talk.outputs if o.topic == GROUPS}
    return [value for value in newest.values() if value]


def topics_after(values: Iterable[bytes]) -> dict[str, int]:
    return Shard(restore(values, [], NOWHERE), SETTINGS).topics


def with_one_set_aside() -> Conversation:
    """q is quarantined when t has 3 partitions; two others are told that it has 6 now."""
    talk = Conversation()
    talk.send(topics({"t": 3, "u": 1}))
    for group in ("a-group", "q-group", "z-group"):
        talk.send(subscribe("m", group=group, topics=("t", "u")))
    set_aside(talk, "q-group")
    talk.send(topics({"t": 6, "u": 1}))
    return talk


def test_a_quarantined_group_is_not_believed_about_topics() -> None:
    """It is told of no change: its old count must not win, wherever it stands in the topic."""
    values = saved(with_one_set_aside())

    for order in itertools.permutations(values):
        assert topics_after(order) == {"t": 6, "u": 1}


def test_nobody_loses_partitions_after_such_a_rebuild() -> None:
    """The next join divided by the old count: new partitions were asked back, and nobody's."""
    talk = with_one_set_aside()
    values = saved(talk)
    talk.load(restore(values, [], talk.shard.status().position))

    talk.send(subscribe("n", "j2", group="a-group", topics=("t",)))

    owned = owned_in(talk, "a-group")
    assert owned["m"]["t"] == (0, 1, 2, 3, 4, 5)
    targets = [member.target["t"] for member in group_of(talk, "a-group").members.values()]
    assert sorted(itertools.chain(*targets)) == [0, 1, 2, 3, 4, 5]


def test_what_only_a_quarantined_group_knows_is_better_than_nothing() -> None:
    """It is released before the driver has listed the topics again: its members keep their own."""
    talk = Conversation()
    talk.send(topics({"t": 2}))
    talk.send(subscribe("m", group="q-group"))
    set_aside(talk, "q-group")
    values = saved(talk)
    talk.load(restore(values, [], talk.shard.status().position))

    assert talk.shard.topics == {"t": 2}
    lines = talk.send(release("ops", group="q-group"))
    assert "ReleaseDemanded" not in str(lines)


@pytest.mark.parametrize("newest", ["a", "z"])
def test_of_two_quarantined_groups_the_one_that_changed_last_is_believed(newest: str) -> None:
    """Neither can be right for certain; whichever stands last in the topic must not decide."""
    talk = Conversation()
    oldest = {"a": "z", "z": "a"}[newest]
    talk.send(topics({"t": 2}))
    talk.send(subscribe("m", group=oldest))
    set_aside(talk, oldest)
    talk.send(topics({"t": 5}), after_ms=1_000)
    talk.send(subscribe("m", group=newest))
    set_aside(talk, newest)
    values = saved(talk)

    assert topics_after(values) == topics_after(reversed(values)) == {"t": 5}


def key(group: str, partition: int = 0) -> bytes:
    return codec.encode([group, "t", partition])


def test_offsets_without_their_group_are_left_out_and_named() -> None:
    """Somebody wrote into coord.committed, or deleted a group's record by hand: the rebuild, which
    may be the only way to go on, ended with a KeyError."""
    talk = Conversation()
    talk.send(commit("tool", offset=7))
    values = saved(talk)
    committed = {key("g"): OFFSET, key("z"): OFFSET, key("h", 1): OFFSET, key("h"): OFFSET}

    shard = Shard(restore(values, committed.items(), NOWHERE), SETTINGS)

    assert list(shard.groups) == ["g"]
    assert sum(shard.groups["g"].counts.values()) == 1
    assert orphans({b"g"}, committed) == ["h", "z"]
    assert orphans({b"g"}, [key("g")]) == []


@pytest.mark.parametrize("count", [0, 1, GROUPS_NAMED_MAX + 1])
def test_the_job_warns_of_offsets_that_it_left_out(count: int) -> None:
    """An operator must learn of it, in one line, however many they are."""
    talk = Conversation()
    talk.send(commit("tool", offset=7))
    (value,) = saved(talk)
    committed = {o.key: o.value for o in talk.outputs if o.topic == COMMITTED}
    committed |= {key(f"h{number:02}"): OFFSET for number in range(count)}
    newest = {"coord.groups": {b"g": value}, "coord.committed": committed}
    marker = Marker(
        checkpoint="c", batch=1, ranges={}, digest="", next_offsets={}, shards={"0": NOWHERE}
    )

    with capture_logs() as lines:
        blobs = seed_blobs(
            lambda topic, _: newest.get(topic, {}), {}, pipelines.groups("coord"), 1, marker
        )

    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["groups"], line["first"]) for line in warnings] == (
        [(count, [f"h{number:02}" for number in range(min(count, GROUPS_NAMED_MAX))])]
        if count
        else []
    )
    assert list(Shard(blobs[0], SETTINGS).groups) == ["g"]


def test_a_foreign_key_refuses_the_rebuild() -> None:
    """What is no key of ours cannot be told from one that newer code writes."""
    with pytest.raises(msgspec.MsgspecError):
        restore([], [(b"not ours", OFFSET)], NOWHERE)
