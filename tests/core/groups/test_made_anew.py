"""INV-130. Topics that were deleted and made anew: what was committed of the one before is none."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, EVENTS, RESPONSES, Output
from coordlib.core.groups.group import learn_topic_ids as learn_ids
from coordlib.core.groups.group import present_id
from coordlib.core.groups.protocol import COMMITS, Groups
from coordlib.core.wire import api
from coordlib.job.sink import ShownIds
from tests.tools import core
from tests.tools.assigned_groups import topic_id, topics
from tests.tools.driving import (
    Conversation,
    commit,
    ended,
    fetch,
    pending_commit,
    release,
    with_writes,
)
from tests.tools.stored_transactions import set_aside

OLD, NEW, NEWER = topic_id(1), topic_id(2), topic_id(3)


def listing(topic_id: Any, topic: str = "t", partitions: int = 2) -> api.TopicMetadata:
    return topics({topic: partitions}, ids={topic: topic_id})


def row(offset: int, topic_id: Any = UNSET, partition: int = 0, topic: str = "t") -> Any:
    return api.CommittedOffset(topic, partition, offset, topic_id=topic_id)


def values(talk: Conversation, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each.value or b"{}") for each in talk.outputs if each.topic == topic]


def answer(talk: Conversation) -> dict[str, Any]:
    return values(talk, RESPONSES)[-1]


def lines(talk: Conversation, kind: str) -> list[dict[str, Any]]:
    return [each for each in values(talk, EVENTS) if each["type"] == kind]


def read(talk: Conversation, **fields: Any) -> list[tuple[int, int, str | None]]:
    """Partition, offset and id of what the group has."""
    talk.send(fetch("tool", **fields))
    return [
        (each["partition"], each["offset"], each.get("topic_id"))
        for each in answer(talk)["offsets"]
    ]


def told() -> Conversation:
    talk = Conversation()
    talk.send(listing(OLD))
    return talk


def test_an_offset_keeps_the_id_of_its_topic() -> None:
    """The next owner must be able to tell whether it is of the topic that it is about to read."""
    talk = told()
    talk.send(commit("tool", offsets=(row(5, OLD), row(6, partition=1))))

    assert read(talk) == [(0, 5, OLD), (1, 6, None)]
    assert [each.get("topic_id") for each in values(talk, COMMITTED)] == [OLD, None]


def test_offsets_go_when_a_listing_shows_another_id() -> None:
    """strimzi-kafka-operator#9269: the new topic's first records were skipped, and lag was 0."""
    talk = told()
    talk.send(commit("tool", offsets=(row(20, OLD), row(6, partition=1), row(7, topic="u"))))
    talk.send(listing(NEW))

    (line,) = lines(talk, "OffsetsDeleted")
    assert line["reason"] == "topic made anew"
    assert line["detail"]["offsets"] == [
        {"topic": "t", "partition": 0, "topic_id": OLD, "present_id": NEW}
    ]
    gone = [each.key for each in talk.outputs if each.topic == COMMITTED and each.value is None]
    assert gone == [b'["g","t",0]']
    assert read(talk) == [(1, 6, None), (0, 7, None)]


def test_absence_alone_deletes_nothing() -> None:
    """A right was taken away for a moment, or a listing was cut short: it looks the same."""
    talk = told()
    talk.send(commit("tool", offsets=(row(20, OLD),)))
    talk.send(topics({}))
    assert read(talk) == [(0, 20, OLD)]

    talk.send(listing(OLD))
    assert read(talk) == [(0, 20, OLD)]
    talk.send(topics({}))
    talk.send(listing(NEW))
    assert read(talk) == []


def test_an_id_that_no_listing_has_shown_is_kept_until_one_has() -> None:
    """The client has asked a broker, and the driver looks every few seconds."""
    talk = told()
    talk.send(commit("tool", offsets=(row(3, NEW),)))
    assert read(talk) == [(0, 3, NEW)]

    talk.send(listing(NEW))
    assert read(talk) == [(0, 3, NEW)]
    talk.send(listing(NEWER))
    assert read(talk) == []


def test_a_commit_under_an_old_id_is_refused() -> None:
    """A member was cut off while the topic was made anew, and says what it did before."""
    talk = told()
    talk.send(listing(NEW))
    talk.send(commit("tool", offsets=(row(20, OLD), row(2, NEW, partition=1))))

    assert answer(talk)["failed"] == [{"topic": "t", "partition": 0, "error": "UNKNOWN_TOPIC_ID"}]
    (line,) = lines(talk, "CommitRefused")
    assert line["reason"] == "UNKNOWN_TOPIC_ID"
    assert read(talk) == [(1, 2, NEW)]


def test_a_position_under_an_old_id_is_judged_when_it_is_read() -> None:
    """It has no place among the listings: when it was stored must not depend on the batch's cut."""
    talk = told()
    talk.send(listing(NEW))
    talk.send(commit("tool", offsets=(row(20, OLD),)), topic=COMMITS)
    assert "failed" not in answer(talk) or not answer(talk)["failed"]
    assert lines(talk, "OffsetsDeleted") == []

    assert read(talk, topics=(api.TopicPartitions("t", (0, 1)),)) == [(0, -1, None), (1, -1, None)]
    (line,) = lines(talk, "OffsetsDeleted")
    assert line["detail"]["offsets"][0]["topic_id"] == OLD
    assert talk.shard.groups["g"].entries  # the group is there
    assert read(talk) == []
    assert len(lines(talk, "OffsetsDeleted")) == 1


def test_a_listing_without_ids_changes_nothing() -> None:
    """Brokers that give none, or an older driver."""
    talk = told()
    talk.send(commit("tool", offsets=(row(20, OLD),)))
    talk.send(topics({"t": 3}))

    assert read(talk) == [(0, 20, OLD)]


def test_a_broker_that_is_behind_does_not_bring_an_id_back() -> None:
    """Two brokers answer the driver in turn, and one has not heard of the new topic yet."""
    talk = told()
    talk.send(listing(NEW))
    talk.send(commit("tool", offsets=(row(4, NEW),)))
    talk.send(listing(OLD))

    assert read(talk) == [(0, 4, NEW)]
    talk.send(listing(NEW))
    assert read(talk) == [(0, 4, NEW)]


def change(topic_id: str) -> api.TopicMetadata:
    """Of one topic alone."""
    return api.TopicMetadata(v=1, after=None, through="t", topics=(api.Topic("t", 2, topic_id),))


@pytest.mark.parametrize("is_restored", [False, True])
def test_an_id_that_whole_listings_show_again_is_the_present_one(is_restored: bool) -> None:
    """The shard knew the new id alone, and a broker that was behind showed the one before: a live
    id would be old for ever, and nobody could commit."""
    talk = Conversation()
    talk.send(listing(NEW))
    talk.send(change(OLD))
    talk.send(change(NEW))
    talk.send(commit("tool", offsets=(row(3, NEW),)), topic=COMMITS)
    talk.send(listing(NEW))
    if is_restored:
        talk.load(talk.shard.encode())
    talk.send(commit("tool", offsets=(row(4, NEW),)))
    assert answer(talk)["failed"][0]["error"] == "UNKNOWN_TOPIC_ID"
    talk.send(listing(NEW))

    assert read(talk) == [(0, 3, NEW)], "kept under it, and not read meanwhile"
    talk.send(commit("tool", offsets=(row(5, NEW), row(6, OLD, partition=1))))
    assert [each["partition"] for each in answer(talk)["failed"]] == [1]
    assert read(talk) == [(0, 5, NEW)]


def test_whole_listings_that_do_not_follow_each_other_bring_no_id_back() -> None:
    """Late records of an older driver, among those of the driver of now."""
    talk = told()
    talk.send(listing(NEW))
    talk.send(commit("tool", offsets=(row(4, NEW),)))
    for _ in range(3):
        talk.send(listing(OLD))
        talk.send(change(OLD))
        talk.send(listing(NEW))

    assert read(talk) == [(0, 4, NEW)]


def test_one_listing_deletes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-68: a hundred bytes must not make a batch of gigabytes. The rest is none all the same."""
    monkeypatch.setattr(limits, "OFFSETS_PER_EVENT_MAX", 3)
    talk = told()
    for group in ("a", "b"):
        rows = (row(20, OLD), row(21, OLD, 1))
        talk.send(commit("tool", group=group, offsets=rows))
    talk.send(listing(NEW))

    gone = [each.key for each in talk.outputs if each.topic == COMMITTED and each.value is None]
    assert gone == [b'["a","t",0]', b'["a","t",1]', b'["b","t",0]']
    assert read(talk, group="b") == []
    assert read(talk, group="a") == []


@pytest.mark.parametrize("how", [pending_commit, with_writes])
def test_offsets_that_wait_are_refused_under_an_old_id(how: Any) -> None:
    """Half of a unit would be none: the whole is refused, and its transaction aborted."""
    talk = told()
    talk.send(listing(NEW))
    talk.send(how("tool", offsets=(row(20, OLD), row(2, NEW, partition=1))))

    assert answer(talk)["error"] == "UNKNOWN_TOPIC_ID"
    assert answer(talk)["failed"] == [{"topic": "t", "partition": 0, "error": "UNKNOWN_TOPIC_ID"}]
    assert lines(talk, "OffsetsPending") == []


def test_offsets_that_waited_while_their_topic_was_made_anew_are_void() -> None:
    """The transaction is committed, and what it has read is of a topic that is gone."""
    talk = told()
    talk.send(pending_commit("tool", offsets=(row(20, OLD), row(2, partition=1))))
    talk.send(listing(NEW))
    talk.send(ended(committed=[talk.next_offset - 2]))

    assert read(talk) == [(1, 2, None)]
    (line,) = lines(talk, "OffsetsDeleted")
    assert line["detail"]["offsets"][0]["present_id"] == NEW


def test_a_quarantined_group_keeps_its_offsets_until_they_are_read() -> None:
    """Nothing of it may change; when it is released, nobody may go on at what it has."""
    talk = told()
    talk.send(commit("tool", offsets=(row(20, OLD),)))
    set_aside(talk, "group", "g")
    talk.send(listing(NEW))
    assert lines(talk, "OffsetsDeleted") == []

    talk.send(release("ops"))
    assert read(talk) == []
    assert len(lines(talk, "OffsetsDeleted")) == 1


def test_ids_are_bounded() -> None:
    """A topic that is made anew each minute, and names that come and go for ever."""
    ids: Any = {}
    for number in range(3 * limits.TOPIC_IDS_MAX):
        ids, anew = learn_ids(ids, listing(topic_id(number)), {"t"})
        assert anew == (() if number == 0 else ("t",))
    assert len(ids["t"]) == limits.TOPIC_IDS_MAX
    assert present_id(ids, "t", ids["t"][0]) == ids["t"][-1]
    assert present_id(ids, "t", ids["t"][-1]) == ""


def test_topics_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard keeps so many; those of now come first."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    ids: Any = {"gone-1": (OLD,), "gone-2": (OLD,)}
    ids, _ = learn_ids(ids, listing(NEW), {"t"})

    assert list(ids) == ["gone-2", "t"]


def test_the_ids_are_in_the_state() -> None:
    """INV-03: a listing is not repeated for each batch."""
    talk = told()
    talk.send(listing(NEW))
    talk.load(talk.shard.encode())
    talk.send(commit("tool", offsets=(row(20, OLD),)))

    assert answer(talk)["failed"][0]["error"] == "UNKNOWN_TOPIC_ID"


def test_a_rebuild_keeps_which_ids_were_replaced() -> None:
    """INV-150: the checkpoint is lost, and the topic is made anew, in any order. Offsets do not
    tell: an id in them may be of a topic of another cluster, and it has no place among the rest."""
    elsewhere = topic_id(9)
    for shown in ([OLD], [OLD, NEW], [NEWER, OLD, NEW]):
        talk, kept = Conversation(), ShownIds({})
        for each in shown:
            kept.note(listing(each), {"t"})
        talk.send(commit("tool", offsets=(row(20, OLD), row(6, elsewhere, partition=1))))
        talk.end_batch_raw()
        pages = [Output("progress", 0, *each) for each in kept.take()]
        talk.load(core.restored([*talk.outputs, *pages], talk.shard.status().position))
        talk.send(listing(NEW))

        assert read(talk) == [(1, 6, elsewhere)], shown
        talk.send(commit("tool", offsets=(row(21, OLD),)))
        assert answer(talk)["failed"][0]["error"] == "UNKNOWN_TOPIC_ID"


def test_ids_of_a_rebuild_have_the_bound_of_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """More topics than a shard keeps are listed; those count first that were made anew."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    kept = ShownIds({})
    kept.note(topics(dict.fromkeys("abct", 1), ids=dict.fromkeys("abct", OLD)), "abct")
    kept.note(listing(NEW), "abct")
    state = Groups.restored({}, dict(kept.take()))

    assert state.ids == {"a": (OLD,), "t": (OLD, NEW)}


@pytest.mark.parametrize("told_id", ['""', '"short"', "null", '"with spaces in it, 22 c"', "7"])
def test_what_can_be_no_id_is_refused(told_id: str) -> None:
    """It is kept beside each offset: its length is bounded, and nobody else's words get in."""
    text = f'{{"topic":"t","partition":0,"offset":5,"topic_id":{told_id}}}'
    talk = Conversation()
    talk.send(
        f'{{"v":1,"type":"OffsetCommit","id":"c","client":"a","group":"g","offsets":[{text}]}}'.encode()
    )

    assert answer(talk)["error"] == "INVALID_REQUEST"
    assert "topic_id" in answer(talk)["message"]
