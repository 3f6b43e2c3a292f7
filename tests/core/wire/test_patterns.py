"""Topics by expression: which match, and which expressions are refused."""

import pytest

from coordlib import limits
from coordlib.core.wire import topics as patterns
from coordlib.core.wire.topics import STEPS_MAX, BadPattern, compile_pattern, resolve
from tests.tools.assigned_groups import group_of, subscribe, topics
from tests.tools.driving import Conversation

#: What people subscribe by, and a list of names.
REASONABLE = [
    ".*",
    r"orders\..*",
    "(orders|clicks|payments)-(eu|us)-[0-9]+",
    "(dev|test|prod)[.](eu-west-1|eu-central-1|us-east-1)[.](orders|payments|clicks)[.]v[0-9]+",
    r"[^.]+\.[^.]+\.events",
    ".*(orders|clicks|payments|sessions|users|carts).*",
    ".*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "[a-z]{1,40}-[a-z]{1,40}",
    "|".join(f"team{n}-service{7 * n % 13}-events" for n in range(12)),
]
#: 3 to 20 s of the shard's process for 20,000 names of 249 characters.
COSTLY = [
    ".*(a|b)*a.{120}.*",
    "([ab]*a[ab]{30}){8}x",
    ".*a[ab]{250}.*b.*a[ab]{230}",
    ".*a.{60}",
    ".*a.{12}",
]


@pytest.mark.parametrize(
    ("text", "matched", "not_matched"),
    [
        ("orders", ["orders"], ["orders-2", "my-orders", "order", ""]),
        ("orders.*", ["orders", "orders-2"], ["my-orders"]),
        ("clicks-[a-z]+", ["clicks-eu"], ["clicks-", "clicks-EU", "clicks-eu\n"]),
        ("a|b", ["a", "b"], ["ab", "ac"]),
        ("^orders$", ["orders"], ["orders-2", "orders\n"]),
        ("(?i)orders", ["Orders"], ["order"]),
        ("Bestellungen-größ.r?", ["Bestellungen-größe", "Bestellungen-größer"], ["Bestellungen"]),
        (r"\p{Greek}+", ["λόγος"], ["logos"]),
        (".", ["λ", "𝄞"], ["ab", "\n"]),
        ("a.", ["a\ud800"], ["\ud800"]),
    ],
)
def test_an_expression_is_of_the_whole_name(
    text: str, matched: list[str], not_matched: list[str]
) -> None:
    """Whoever writes `orders` must not be given `orders-dead-letters` too."""
    pattern = compile_pattern(text)

    assert pattern.text == text
    assert [name for name in matched + not_matched if pattern.matches(name)] == matched


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The expression is empty"),
        ("a" * (limits.PATTERN_LENGTH_MAX + 1), "longer than 1000 characters"),
        ("a(b", r"RE2 refuses the expression: missing \): a\(b\."),
        ("*", "RE2 refuses the expression: no argument for repetition"),
        ("(?=orders).*", "RE2 refuses the expression: invalid perl operator"),
        ("(?<!test)orders", "RE2 refuses the expression: "),
        (r"(a)\1", "RE2 refuses the expression: invalid escape sequence"),
        ("a{1000}{1000}", "RE2 refuses the expression: bad repetition operator"),
        ("((a{100}){100}){100}", "RE2 refuses the expression: invalid repetition size"),
        (r"(\pL{1,30}){1,30}", "RE2 refuses the expression: pattern too large"),
        (".{1000}", "needs 8004 steps, 1100 are allowed"),
        (r"[\pL\pN]+", r"needs \d+ steps, 1100 are allowed"),
        ("orders-\ud800", "no valid Unicode at character 7"),
    ],
)
def test_what_is_no_expression_or_too_costly_is_refused(text: str, sentence: str) -> None:
    """INVALID_REGULAR_EXPRESSION, with a sentence for whoever wrote it."""
    with pytest.raises(BadPattern, match=sentence):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(.*a){20}", "(x+x+)+y", "(a?){100}a{100}"])
def test_an_expression_that_is_a_catastrophe_elsewhere_is_none_here(text: str) -> None:
    """Python's own `re` would take longer than the universe's age: this test would not end."""
    pattern = compile_pattern(text)

    assert not pattern.matches("a" * 248 + "!")


def test_a_refusal_is_written_to_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 writes to the process's standard error by itself, as often as a client is refused."""
    with pytest.raises(BadPattern):
        compile_pattern("a(b")

    assert capfd.readouterr() == ("", "")


def test_compiled_expressions_are_kept_and_bounded() -> None:
    """A thousand members with one expression compile it once; ever new ones push old ones out."""
    assert compile_pattern("orders-1.*") is compile_pattern("orders-1.*")

    for number in range(patterns.CACHED_MAX + 10):
        compile_pattern(f"many-{number}")

    assert compile_pattern.cache_info().currsize == patterns.CACHED_MAX


def test_topics_are_resolved_in_order_without_excluded_ones() -> None:
    """Two coordinators list a cluster's topics in different orders."""
    topics = ["orders-eu", "orders-test", "clicks", "orders", "orders-ap"]
    wanted, tests = compile_pattern("orders.*"), compile_pattern(".*test")

    assert resolve(wanted, None, topics) == ("orders", "orders-ap", "orders-eu", "orders-test")
    assert resolve(wanted, tests, reversed(topics)) == ("orders", "orders-ap", "orders-eu")
    assert resolve(wanted, wanted, topics) == ()


def test_kafkas_own_topics_match_nothing() -> None:
    """A member that wants everything must not read the brokers' offsets."""
    topics = ["__consumer_offsets", "__", "_schemas", "a__b"]

    assert resolve(compile_pattern(".*"), None, topics) == ("_schemas", "a__b")
    assert resolve(compile_pattern("__consumer_offsets"), None, topics) == ()


@pytest.mark.parametrize("text", REASONABLE)
def test_what_people_subscribe_by_is_accepted_in_a_large_cluster(text: str) -> None:
    """Whoever bounds hostile expressions must not turn away everybody's."""
    compile_pattern(text).check(["x" * 30] * limits.TOPICS_MAX)


@pytest.mark.parametrize("text", COSTLY)
def test_what_holds_up_a_shard_is_refused(text: str) -> None:
    """One Subscribe kept all other groups of its shard waiting, and the next one could again."""
    few, many = ["x" * 249] * 400, ["x" * 249] * limits.TOPICS_MAX
    compile_pattern(text).check(few)

    with pytest.raises(BadPattern, match=f"steps for each of the 4980000 .* {STEPS_MAX} are"):
        compile_pattern(text).check(many)


def test_a_costly_expression_is_refused_to_whoever_subscribes() -> None:
    """By the log alone: what counts is which topics the shard has been told of."""
    names = {f"{n:05d}".ljust(249, "x"): 1 for n in range(2_000)}
    talk = Conversation()
    talk.send(topics(names))

    lines = talk.send(subscribe("a", pattern=".*a.{60}"))

    assert lines[0].startswith("answer a#j1 Subscribe INVALID_REGULAR_EXPRESSION")
    assert "RequestRejected" in lines[1]
    assert "g" not in talk.shard.groups
    assert talk.send(subscribe("a", pattern="0.*", exclude=".*a.{60}"))[0].startswith(
        "answer a#j1 Subscribe INVALID_REGULAR_EXPRESSION"
    )
    talk.send(subscribe("a", pattern="0000.*"))
    assert len(group_of(talk).topics) == 10
