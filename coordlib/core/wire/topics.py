"""Topics: the coordinator's own, and topics by expression.

The lists here are the source for all code that needs one. Which topics no expression matches, the
coordinator's own and Kafka's, is one rule for both kinds of groups. A member of a classic group
looks at the cluster itself; for server-assigned groups the job's driver does, and leaves these out
of what it tells its shards, so that they are not given by name either.

Expressions are RE2's, which take time linear in the name, whatever the expression. They come from
members, so they may be hostile: look-ahead and back-references do not exist in RE2, and what would
need much memory, or many steps for each character of a name, is refused when it is compiled. At
worst RE2 takes a step of each instruction for each byte of a name, so an expression is held against
no more names than it has time for (`Pattern.check`). An expression is of the whole name, so
`orders` does not match `orders-2`. Names that begin with `__` are Kafka's own and match no
expression.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import re2

from coordlib.limits import PATTERN_LENGTH_MAX

#: Kafka's own topics (`__consumer_offsets`) and what follows their custom.
INTERNAL: Final = "__"
#: The job reads them.
INPUTS: Final = ("requests", "offsets")
#: The job writes them, each batch in one transaction, together with `progress`.
OUTPUTS: Final = (
    "responses",
    "assignments",
    "groups",
    "committed",
    "clusters",
    "metadata",
    "transactions",
    "outbox",
    "events",
)
#: Written beside the batches; nothing is decided by it.
LAG: Final = "lag"
#: The coordinator's own topics, below its prefix: those of coordlib/conf/topics.toml. Users may
#: have others there.
OWN: Final = (*INPUTS, *OUTPUTS, LAG, "progress")
#: The claims plane has topics of its own below `<prefix>.claims`; it reads a topic of others.
CLAIMS: Final = "claims"
CLAIMS_OUTPUTS: Final = ("assignments", "committed", "events", "snapshots")
CLAIMS_OWN: Final = (*CLAIMS_OUTPUTS, LAG, "progress")
CLAIMS_EVENTS: Final = f"{CLAIMS}.events"
CLAIMS_LAG: Final = f"{CLAIMS}.{LAG}"
#: The coordination topic of claims, where nothing else is said: Marshal's.
COORDINATION_TOPIC: Final = "__marshal"
#: Read by the archive, where claims are followed.
CLAIMS_ARCHIVED: Final = (CLAIMS_EVENTS, CLAIMS_LAG)
#: What the archive reads; events first, which a prefix always has.
ARCHIVED: Final = ("events", "groups", "committed", LAG, *CLAIMS_ARCHIVED)


def claims_prefix(prefix: str) -> str:
    """The prefix of the claims pipeline's topics."""
    return f"{prefix}.{CLAIMS}"


def own_topics(prefix: str) -> frozenset[str]:
    """The coordinator's own topics under this prefix, those of the claims pipeline among them."""
    claims = (f"{claims_prefix(prefix)}.{name}" for name in CLAIMS_OWN)
    return frozenset((*(f"{prefix}.{name}" for name in OWN), *claims))


def is_users(topic: str, own: frozenset[str]) -> bool:
    """Whether users may share it by an expression; `own`: the coordinator's topics."""
    return topic not in own and not topic.startswith(INTERNAL)


#: Of one compiled expression: a third is its program, the rest are states found while matching.
MEMORY_BYTES_MAX: Final = 1 << 21
#: RE2 instructions: at worst each is a step for each byte of a name. A list of names as long as an
#: expression may be needs fewer; all letters of Unicode need more, and no topic is named with them.
PROGRAM_SIZE_MAX: Final = 1_100
#: Instructions times characters of all names: at worst some 15 ns each, so 2 s of a worker's time.
#: 20,000 names of 30 characters leave 223 instructions, 4,000 names all of PROGRAM_SIZE_MAX.
STEPS_MAX: Final = 1 << 27
#: Compiled expressions that are kept: at most 256 MiB, where hostile ones fill all of theirs.
CACHED_MAX: Final = 128


class BadPattern(ValueError):
    """This is no expression of RE2's, or too costly a one: a sentence says why."""


class Pattern:
    """A compiled expression."""

    __slots__ = ("_compiled", "_steps", "text")

    def __init__(self, text: str, compiled: "re2._Regexp") -> None:
        self.text, self._compiled = text, compiled

    def check(self, names: Iterable[str]) -> None:
        """Raise BadPattern if to match all these names could take seconds."""
        steps = self._compiled.programsize
        characters = sum(map(len, names))
        if steps * characters > STEPS_MAX:
            raise BadPattern(
                f"The expression needs {steps} steps for each of the {characters} characters of "
                f"all topics' names, {STEPS_MAX} are allowed: make it shorter, or name the topics."
            )

    def matches(self, name: str) -> bool:
        """Whether it matches the whole name."""
        # Bytes spare RE2's wrapper from counting characters. A lone surrogate is one, too.
        return self._compiled.fullmatch(name.encode("utf-8", "surrogatepass")) is not None


@lru_cache(maxsize=CACHED_MAX)
def compile_pattern(text: str) -> Pattern:
    """Compile an expression, or take it from those compiled before.

    Raises:
        BadPattern: it is empty or too long, RE2 cannot read it, or it is too costly.
    """
    if not text:
        raise BadPattern("The expression is empty: it matches no topic.")
    if len(text) > PATTERN_LENGTH_MAX:
        raise BadPattern(f"The expression is longer than {PATTERN_LENGTH_MAX} characters.")
    try:
        compiled = re2.compile(text, _options())
    except UnicodeEncodeError as problem:
        where = f"at character {problem.start}"
        raise BadPattern(f"The expression is no valid Unicode {where}.") from problem
    except re2.error as problem:
        raise BadPattern(f"RE2 refuses the expression: {_reason(problem)}.") from problem
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise BadPattern(
            f"The expression needs {compiled.programsize} steps, {PROGRAM_SIZE_MAX} are allowed."
        )
    return Pattern(text, compiled)


def _options() -> "re2.Options":
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False  # what a client sent is its matter and not the job's log's
    options.never_capture = True  # groups of many brackets would be searched for in every name
    return options


def _reason(problem: Exception) -> str:
    """RE2's own words, which come as bytes."""
    words = problem.args[0] if problem.args else b""
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)


def resolve(pattern: Pattern, exclude: Pattern | None, topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that are wanted: matched, not excluded, not Kafka's own; in ascending order."""
    return tuple(
        sorted(
            name
            for name in topics
            if not name.startswith(INTERNAL)
            and pattern.matches(name)
            and not (exclude is not None and exclude.matches(name))
        )
    )
