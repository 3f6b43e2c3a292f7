"""Which expressions RE2 matches fast: those whose automaton is small. No test here takes time."""

from random import Random

import pytest
import re2

from coordlib import limits
from coordlib.coordinators.assigned.automaton import Unread, is_small, kind_of, read
from coordlib.coordinators.assigned.patterns import STEPS_MAX, BadPattern, compile_pattern
from coordlib.testing.assigned_groups import group_of, subscribe, topics
from coordlib.testing.driving import Conversation

#: What people subscribe by, and lists of names as long as an expression may be.
REASONABLE = [
    ".*",
    "clicks-[a-z]+",
    r"orders\..*",
    "(orders|clicks|payments)-(eu|us)-[0-9]+",
    "(dev|test|prod)[.](eu-west-1|eu-central-1|us-east-1)[.](orders|payments|clicks)[.]v[0-9]+",
    r"[^.]+\.[^.]+\.events",
    ".*(orders|clicks|payments|sessions|users|carts).*",
    ".*-[0-9]{4}-[0-9]{2}-[0-9]{2}",
    ".*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "[a-z]{1,40}-[a-z]{1,40}",
    r"\w+\.\w+\.v\d",
    "|".join(f"team{n}-service{7 * n % 13}-events" for n in range(40)),
    "|".join(f"{chr(97 + n % 26)}{n}-orders-x" for n in range(60)),
]
#: 3 to 20 s of the shard's process for 20,000 names of 249 characters, before they were refused.
COSTLY = [
    ".*(a|b)*a.{120}.*",
    "([ab]*a[ab]{30}){8}x",
    ".*a[ab]{250}.*b.*a[ab]{230}",
    ".*a.{60}",
    ".*a.{12}",
    "[ab]*(a[ab]{5}b|b[ab]{7}a)*[ab]*a[ab]{12}",
    "s".join(
        f"[{''.join(c for c in 'abcdefghijklmnopqrst' if c != x)}s]*" for x in "abcdefghijklmno"
    ),
]


@pytest.mark.parametrize("text", REASONABLE)
def test_what_people_subscribe_by_is_small(text: str) -> None:
    """It is accepted in a cluster of any size."""
    compile_pattern(text).check(["x" * 249] * limits.TOPICS_MAX)

    assert is_small(text)


@pytest.mark.parametrize("text", COSTLY)
def test_what_holds_up_a_shard_is_not(text: str) -> None:
    """One Subscribe kept all other groups of its shard waiting, and the next one could again."""
    few, many = ["x" * 249] * 10, ["x" * 249] * limits.TOPICS_MAX
    compile_pattern(text).check(few)

    with pytest.raises(BadPattern, match=f"steps for each of the 4980000 .* {STEPS_MAX} are"):
        compile_pattern(text).check(many)


@pytest.mark.parametrize(
    "text",
    ["(?i)orders.*", r"\pN+", "[[:alpha:]]+", "^orders$", r"\bx", r"\Qa.b\E", "a{,3}", "a{1"],
)
def test_rare_syntax_is_not_read(text: str) -> None:
    """It is valid, and of unknown size: it is held against no more names than it has time for."""
    re2.compile(text)
    with pytest.raises(Unread):
        read(text)

    assert not is_small(text)
    compile_pattern(text).check(["x" * 249] * 100)


def drawn(luck: Random, depth: int = 3) -> str:
    """An expression of the syntax that is read."""
    if depth == 0:
        atoms = [
            "a",
            "b",
            "-",
            ".",
            "[ab]",
            "[^a]",
            r"\.",
            r"\d",
            r"\W",
            "[a-c-]",
            "\u20ac",
            "(?:)",
        ]
        return luck.choice(atoms)
    parts = []
    for _ in range(luck.randint(1, 3)):
        part = drawn(luck, depth - 1)
        quantifier = luck.choice(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}", "*?"])
        parts.append(f"({part}){quantifier}" if luck.random() < 0.5 else f"(?:{part}){quantifier}")
    return luck.choice(["", "|"]).join(parts)


def takes(text: str, name: str) -> bool:
    """Whether the positions of an expression take a whole name."""
    found = read(text)
    state, is_at_end = found.whole.first, found.whole.is_empty
    for character in name:
        bit = kind_of(ord(character))
        at = [place for place, bits in enumerate(found.takes) if state >> place & 1 and bits & bit]
        state = 0
        for place in at:
            state |= found.follow[place]
        is_at_end = any(found.whole.last >> place & 1 for place in at)
    return is_at_end


def test_it_reads_what_re2_reads() -> None:
    """A size that is found for another language than RE2 matches would prove nothing."""
    luck = Random(7)
    agreed = 0
    for _ in range(300):
        text = drawn(luck)
        expression = re2.compile(text)
        for _ in range(12):
            name = "".join(luck.choice("aabbc-.7\u20ac") for _ in range(luck.randint(0, 6)))
            is_matched = expression.fullmatch(name) is not None
            assert takes(text, name) == is_matched, (text, name)
            agreed += is_matched
    assert agreed > 300


def test_a_costly_expression_is_refused_to_whoever_subscribes() -> None:
    """By the log alone: what counts is which topics the shard has been told of."""
    names = {f"{n:05d}".ljust(249, "x"): 1 for n in range(2_000)}
    talk = Conversation()
    talk.send(topics(names))
    request = subscribe("a", pattern=".*a.{60}")

    lines = talk.send(request)

    assert lines[0].startswith("answer a#j1 Subscribe INVALID_REGULAR_EXPRESSION")
    assert "RequestRejected" in lines[1]
    assert "g" not in talk.shard.cells
    assert talk.send(subscribe("a", pattern="0.*", exclude=".*a.{60}"))[0].startswith(
        "answer a#j1 Subscribe INVALID_REGULAR_EXPRESSION"
    )
    talk.send(subscribe("a", pattern="0000.*"))
    assert len(group_of(talk).topics) == 10


def test_in_a_small_cluster_any_expression_may_be_used() -> None:
    """A second of work is not reached: nobody is refused who was not before."""
    talk = Conversation()
    talk.send(topics({"xa" + "b" * 60: 1, "orders": 2}))

    talk.send(subscribe("a", pattern=".*a.{60}"))

    assert list(group_of(talk).topics) == ["xa" + "b" * 60]
