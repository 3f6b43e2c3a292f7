"""What is remembered of expressions from one division to the next, and that nobody can tell."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib import limits
from coordlib.core.groups.assigned import division
from coordlib.core.groups.assigned.subscriptions import EXPRESSION_WORDS, Expression, Matches
from coordlib.core.wire.topics import Pattern, compile_pattern, resolve
from tests.tools.assigned_groups import group_of, stable, subscribe, topics
from tests.tools.core import fold
from tests.tools.driving import SETTINGS, Conversation

ALL: Expression = (".*", None)
ORDERS: Expression = ("orders.*", None)
NO_TESTS: Expression = ("orders.*", ".*test")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often RE2 was asked, by expression and name."""
    count: Counter[tuple[str, str]] = Counter()
    matches = Pattern.matches

    def counted(pattern: Pattern, name: str) -> bool:
        count[pattern.text, name] += 1
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", counted)
    return count


def known(names: Iterable[str]) -> dict[str, int]:
    """What a shard knows: partition counts, which no expression looks at."""
    return dict.fromkeys(sorted(names), 1)


def plainly(expression: Expression, names: Iterable[str]) -> tuple[str, ...]:
    """As if nothing had been asked before."""
    pattern, exclude = expression
    return resolve(compile_pattern(pattern), compile_pattern(exclude) if exclude else None, names)


def test_what_cannot_have_changed_is_not_matched_again(asked: Counter[tuple[str, str]]) -> None:
    """A hundred members join, one after the other: all topics would be matched each time."""
    matches, names = Matches(), ["orders", "orders-test", "clicks"]
    first = matches.resolve([ORDERS, NO_TESTS], known(names))
    asked.clear()

    # The next batch reads the shard from its blob: equal names, and not the same ones.
    again = matches.resolve([NO_TESTS, ORDERS], known(name.encode().decode() for name in names))

    assert again == first == {ORDERS: ("orders", "orders-test"), NO_TESTS: ("orders",)}
    assert not asked


def test_of_other_topics_only_what_came_or_went_is_matched(
    asked: Counter[tuple[str, str]],
) -> None:
    """Somebody makes a topic while a cluster has twenty thousand."""
    matches = Matches()
    matches.resolve([ORDERS], known(["clicks", "orders"]))
    asked.clear()

    assert matches.resolve([ORDERS], known(["clicks", "orders", "orders-eu"])) == {
        ORDERS: ("orders", "orders-eu")
    }
    assert matches.resolve([ORDERS], known(["clicks", "orders-eu"])) == {ORDERS: ("orders-eu",)}
    assert asked == {("orders.*", "orders-eu"): 1, ("orders.*", "orders"): 1}


def test_who_was_not_asked_for_catches_up_with_all_changes(
    asked: Counter[tuple[str, str]],
) -> None:
    """Two shards of one process: one is told of several topics before the other has its turn."""
    matches = Matches()
    matches.resolve([ORDERS, ALL], known(["a", "orders"]))
    for names in (["a", "b", "orders"], ["b", "orders"], ["a", "b"]):
        matches.resolve([ALL], known(names))
    asked.clear()

    assert matches.resolve([ORDERS], known(["a", "orders"])) == {ORDERS: ("orders",)}
    assert sorted(name for _, name in asked) == ["a", "b", "orders"]


def test_what_is_remembered_has_a_bound(asked: Counter[tuple[str, str]]) -> None:
    """Hostile members come with ever new expressions; those asked for last are kept."""
    matches = Matches(words_max=3 * EXPRESSION_WORDS + 3)
    crowd = [(f"orders|{number}", None) for number in range(10)]
    for one in crowd:
        matches.resolve([ORDERS, one], known(["orders"]))
    asked.clear()

    matches.resolve([ORDERS, crowd[-1]], known(["orders"]))
    assert not asked
    assert matches.words <= 3 * EXPRESSION_WORDS + 3

    matches.resolve([crowd[0]], known(["orders"]))
    assert asked == {("orders|0", "orders"): 1}


def test_changes_are_forgotten_when_they_are_more_than_topics(
    asked: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics come and go for months in one process."""
    monkeypatch.setattr(limits, "TOPICS_MAX", 4)
    matches = Matches()
    matches.resolve([ALL, ORDERS], known(["a"]))
    for number in range(20):
        matches.resolve([ORDERS], known(["a", f"t{number}"]))
    asked.clear()

    assert matches.resolve([ORDERS], known(["a", "t19"])) == {ORDERS: ()}
    assert not asked
    assert matches.resolve([ALL], known(["a", "t19"])) == {ALL: ("a", "t19")}
    assert matches.changes_kept <= 4


NAMES = st.sampled_from(["orders", "orders-eu", "orders-test", "a", "b", "__own", "λ"])
EXPRESSIONS = st.tuples(
    st.sampled_from([".*", "orders.*", "a|b", "_.*", "none"]),
    st.sampled_from([None, ".*test", "a"]),
)


@given(st.lists(st.tuples(st.lists(EXPRESSIONS, max_size=3), st.sets(NAMES))))
def test_nobody_can_tell_what_is_remembered(
    calls: list[tuple[list[Expression], set[str]]],
) -> None:
    """INV-02: a worker that has seen much, and one that has just begun, judge alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "TOPICS_MAX", 4)
        matches = Matches(words_max=2 * EXPRESSION_WORDS + 6)
        for expressions, names in calls:
            found = matches.resolve(expressions, known(names))

            assert found == {each: plainly(each, sorted(names)) for each in expressions}


def _talk() -> Conversation:
    talk = stable()
    talk.send(subscribe("x", pattern="t.*", exclude=".*2"))
    for counts in ({"t": 4, "t1": 1}, {"t": 4, "t1": 1, "t2": 1, "t3": 2}, {"t1": 2, "t3": 2}):
        talk.send(topics(counts))
        talk.end_batch()
    return talk


def test_the_same_bytes_come_from_a_worker_that_remembers_and_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-02: after a crash a batch runs again in a new process, or in one that went further."""
    talk = _talk()
    log = talk.log
    remembering = fold(None, log, SETTINGS)
    cuts = [fold(None, log[:end], SETTINGS).blob for end in range(1, len(log))]

    for blob, record in zip(cuts, log[1:], strict=True):
        warm = fold(blob, [record], SETTINGS)
        monkeypatch.setattr(division, "MATCHES", Matches())
        assert fold(blob, [record], SETTINGS) == warm
    monkeypatch.setattr(division, "MATCHES", Matches())
    assert fold(None, log, SETTINGS) == remembering
    assert group_of(talk).topics == {"t1": 2, "t3": 2}


def test_a_join_matches_nothing_that_others_had_matched(
    asked: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hundred and first member is answered as fast as the second."""
    monkeypatch.setattr(division, "MATCHES", Matches())
    talk = Conversation()
    talk.send(topics({"orders": 1, "clicks": 1}))
    talk.send(subscribe("a", pattern="orders.*"))
    talk.end_batch()
    asked.clear()

    talk.send(subscribe("b", pattern="clicks.*"))
    assert asked == {("clicks.*", "orders"): 1, ("clicks.*", "clicks"): 1}
    asked.clear()

    talk.send(topics({"orders": 1, "clicks": 1, "more": 1}))
    assert asked == {("clicks.*", "more"): 1, ("orders.*", "more"): 1}


# ---- in a group ---------------------------------------------------------------------------------


def test_a_member_that_names_another_expression_is_given_what_that_matches() -> None:
    """A program was changed and subscribes again under its member id; the old topics are let go."""
    talk = Conversation(SETTINGS)
    talk.send(topics({"clicks-eu": 1, "clicks-us": 1, "orders-eu": 1, "orders-us": 1}))
    talk.send(subscribe("a", pattern="clicks-.*", exclude=".*-us"))
    (member,) = group_of(talk).members.values()
    assert member.owned == {"clicks-eu": (0,)}
    talk.tick()

    again = {"member": member.member, "generation": group_of(talk).generation}
    talk.send(subscribe("a", "j2", pattern="orders-.*", exclude=".*-eu", **again))

    (member,) = group_of(talk).members.values()
    assert (member.pattern, member.exclude) == ("orders-.*", ".*-eu")
    assert member.target == {"orders-us": (0,)}
    assert [demand.partitions for demand in member.demands] == [{"clicks-eu": (0,)}]
