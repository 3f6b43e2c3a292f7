"""Which groups judge a change of topics: those whose wishes it concerns, and no other is decoded.

That nothing is missed by this is held by the property tests (INV-15).
"""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import GROUPS
from coordlib.core.groups.assigned import subscriptions
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.assigned.subscriptions import MATCHES
from coordlib.core.groups.kind import NO_TOPICS, UNKNOWN_TOPICS
from coordlib.core.wire import topics as patterns
from tests.tools.assigned_groups import A, group_of, owned_in, subscribe, topics
from tests.tools.core import restore
from tests.tools.defects import Defect, in_force
from tests.tools.driving import Conversation, join, leave, release

COUNTS = {"__internal": 1, "orders": 2, "orders-eu": 2, "payments": 2}
WISHES: dict[str, dict[str, Any]] = {
    "by-name": {"topics": ("orders",)},
    "later": {"topics": ("not-yet",)},
    "by-pattern": {"pattern": "orders.*", "exclude": ".*-test"},
    "both": {"topics": ("payments",), "pattern": "p.*"},
    "everything": {"pattern": ".*"},
}


class Decoded(list[str]):
    """Names of the groups that were decoded, in order."""


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    found = Decoded()
    decode = ASSIGNED.decode

    def decode_and_note(value: Any, /) -> Any:
        group = decode(value)
        found.append(group.group)
        return group

    monkeypatch.setattr(ASSIGNED, "decode", decode_and_note)
    return found


def crowd() -> Conversation:
    """A group for each of the wishes, one that emptied, and a classic one; in a batch of before."""
    talk = Conversation()
    talk.send(topics(COUNTS))
    for name, wish in WISHES.items():
        talk.send(subscribe("a", group=name, **wish))
    talk.send(subscribe("a", group="emptied"))
    talk.send(leave("a", f"a-t-0-{talk.next_offset - 1}", group="emptied"))
    talk.send(join("a", group="classic"))
    talk.tick()
    talk.end_batch()
    return talk


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        ({"returns": 1}, ["everything"]),
        ({"__other": 1}, []),
        ({"__internal": 2}, []),
        ({"orders": 3}, ["by-name", "by-pattern", "everything"]),
        ({"orders": None}, ["by-name", "by-pattern", "everything"]),
        ({"orders-us": 1}, ["by-pattern", "everything"]),
        ({"orders-test": 1}, ["everything"]),
        ({"payments": None, "returns": 1}, ["both", "everything"]),
        ({"not-yet": 1}, ["everything", "later"]),
        ({}, []),
    ],
    ids=str,
)
def test_a_change_decodes_the_groups_that_it_concerns(
    decoded: Decoded, now: dict[str, int | None], asked: list[str]
) -> None:
    """Somebody makes, grows or deletes a topic anywhere on the cluster: 20,000 groups were decoded
    for it in every shard, where perhaps two read it."""
    talk = crowd()
    counts = {name: count for name, count in {**COUNTS, **now}.items() if count}

    lines = talk.send(topics(counts))

    assert decoded == asked
    started = [line for line in lines if " GenerationStarted " in line]
    assert [line.partition("]")[0][len("event[") :] for line in started] == asked


def test_wishes_follow_the_members() -> None:
    """One changes its mind, one comes, one goes."""
    talk = Conversation()
    talk.send(topics({"t": 1}))

    def wanted() -> Any:
        row = talk.shard.groups["g"].facts.index
        return row if row == NO_TOPICS else msgspec.msgpack.decode(row)

    talk.send(subscribe("a", topics=("t", "s")))
    assert wanted() == [["s", "t"], []]
    talk.send(subscribe("b", "j2", pattern="x", exclude="y", topics=("t",)))
    talk.send(subscribe("c", "j3", pattern="x"))
    assert wanted() == [["s", "t"], [["x", None], ["x", "y"]]]
    talk.send(subscribe("a", "j5", member=A, generation=3, topics=("u",)))
    assert wanted() == [["t", "u"], [["x", None], ["x", "y"]]]
    talk.send(leave("ops", *group_of(talk).members))
    assert wanted() == NO_TOPICS


def test_a_group_that_is_set_aside_is_not_decoded_and_hears_of_it_when_it_is_released(
    decoded: Decoded,
) -> None:
    """INV-42: it judges nothing; topics that changed meanwhile are its matter afterwards."""
    talk = crowd()
    with in_force([Defect("by-name", "LeaveGroup", talk.next_offset)]):
        talk.send(leave("x", "nobody", group="by-name"))
    talk.end_batch()
    decoded.clear()

    talk.send(topics({**COUNTS, "orders": 3}))
    assert decoded == ["by-pattern", "everything"]
    talk.end_batch()
    talk.send(release("ops", group="by-name"))
    assert owned_in(talk, "by-name") == {"a": {"orders": (0, 1, 2)}}
    talk.end_batch()
    decoded.clear()
    talk.send(topics({**COUNTS, "orders": 4}))
    assert decoded == ["by-name", "by-pattern", "everything"]


def test_a_rebuilt_shard_knows_whom_to_ask(decoded: Decoded) -> None:
    """INV-38: from the compacted topics, where nobody has written any wishes."""
    talk = crowd()
    newest = {output.key: output.value for output in talk.outputs if output.topic == GROUPS}
    position = talk.shard.status().position
    talk.load(restore([value for value in newest.values() if value], [], position))
    talk.send(topics(COUNTS))  # a driver that starts lists all
    decoded.clear()
    talk.end_batch()

    talk.send(topics({**COUNTS, "returns": 1, "payments": 3}))
    assert decoded == ["both", "everything"]


def test_wishes_that_are_too_large_are_not_kept_twice(decoded: Decoded) -> None:
    """INV-43: a Subscribe may name 10,000 topics. Its group is decoded at every change, as before
    there were wishes in rows."""
    talk = Conversation()
    some = tuple(f"topic-{number:05}" for number in range(limits.SUBSCRIBED_TOPICS_MAX))
    talk.send(subscribe("a", topics=some))
    talk.send(subscribe("a", group="small", topics=("u",)))
    assert talk.shard.groups["g"].facts.index == UNKNOWN_TOPICS
    talk.end_batch()

    for count in (1, 2):
        talk.send(topics({"t": count}))
        assert decoded == ["g"]
        talk.end_batch()
        decoded.clear()


@pytest.mark.parametrize("length", [1, 31, 32, 249])
@pytest.mark.parametrize("character", ["x", '"', "\u20ac", "\U0001f600"])
def test_a_row_keeps_no_more_than_it_is_counted_for(length: int, character: str) -> None:
    """INV-43: names of every alphabet, with and without what is excluded."""
    name = character * (length // len(character.encode()) or 1)
    talk = Conversation()
    for number, exclude in enumerate((None, "z", name)):
        wish = subscribe(
            "a", f"j{number}", topics=(name, f"{number}"), pattern="x", exclude=exclude
        )
        talk.send(wish)
    group = group_of(talk)

    assert len(bytes(subscriptions.index_of(group))) <= group.index_bytes


def of_history(lines: list[str], event: str) -> list[str]:
    """The groups that have such a line."""
    return [line.partition("]")[0][len("event[") :] for line in lines if f" {event} " in line]


def test_a_row_that_cannot_be_asked_sets_its_own_group_aside() -> None:
    """INV-42: other code wrote what the row keeps. One listing asks all groups of a shard, and the
    job would meet the row again after every restart."""
    talk = crowd()
    row = talk.shard.groups["by-name"].stored
    row.facts = replace(row.facts, index=msgspec.Raw(b"\x92\xc3\xc3"))

    lines = talk.send(topics({**COUNTS, "orders": 3}))
    assert of_history(lines, "GroupQuarantined") == ["by-name"]
    assert of_history(lines, "GenerationStarted") == ["by-pattern", "everything"]

    talk.end_batch()
    talk.send(release("ops", group="by-name"))
    assert owned_in(talk, "by-name") == {"a": {"orders": (0, 1, 2)}}
    assert of_history(talk.send(topics({**COUNTS, "orders": 4})), "GroupQuarantined") == []


def test_an_expression_that_this_code_cannot_read_concerns_its_own_group_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-42: RE2 was upgraded, and refuses what it took before."""
    talk = crowd()
    compile_pattern = patterns.compile_pattern

    def stricter(text: str) -> patterns.Pattern:
        if text == "orders.*":
            raise patterns.BadPattern("RE2 refuses the expression.")
        return compile_pattern(text)

    monkeypatch.setattr(subscriptions, "compile_pattern", stricter)
    monkeypatch.setattr("coordlib.core.groups.assigned.subscriptions.compile_pattern", stricter)
    monkeypatch.setattr("coordlib.core.groups.assigned.division.MATCHES", type(MATCHES)())
    lines = talk.send(topics({**COUNTS, "returns": 1}))

    quarantined = [line for line in lines if "Quarantined" in line]
    assert [line.split()[0] for line in quarantined] == ["event[by-pattern]"]
    assert owned_in(talk, "everything")["a"]["returns"] == (0,)


def test_an_expression_that_many_groups_share_is_matched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first listing of a cluster has 20,000 names."""
    talk = Conversation()
    for number in range(5):
        talk.send(subscribe("a", group=f"g{number}", pattern="nothing.*"))
    asked: list[str] = []
    compile_pattern = patterns.compile_pattern

    def noted(text: str) -> patterns.Pattern:
        asked.append(text)
        return compile_pattern(text)

    monkeypatch.setattr(subscriptions, "compile_pattern", noted)
    talk.send(topics(COUNTS))

    assert asked == ["nothing.*"]
