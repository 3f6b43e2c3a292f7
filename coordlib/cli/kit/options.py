"""Options of commands: names, numbers, dates. What cannot be one is wrong usage, exit code 2."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib import limits
from coordlib.cli.kit.output import say
from coordlib.errors import SetupError
from coordlib.limits import INT32_MAX

if TYPE_CHECKING:
    from coordlib.history.sql import Answer

#: Kafka's own rule (org.apache.kafka.common.internals.Topic).
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,10}")
_SHOWN_MAX: Final = 200


def require_name(kind: str, option: str, name: str) -> None:
    """Check a name by the rule that the coordinator has for all names of a request.

    Raises:
        SetupError: it is none.
    """
    from coordlib.core.wire.envelope import is_name

    if not is_name(name, limits.NAME_LENGTH_MAX):
        raise SetupError(
            f"This is no name of a {kind}.",
            f"{option} {name[:_SHOWN_MAX]!r}",
            f"Give 1 to {limits.NAME_LENGTH_MAX} bytes of UTF-8 without control characters.",
        )


def require_topic(_: Any, name: str | None, option: str = "--topic") -> None:
    """Raises SetupError for a topic's name that Kafka refuses."""
    if name is None:
        return
    if len(name) > limits.NAME_LENGTH_MAX or name in (".", "..") or _TOPIC.fullmatch(name) is None:
        raise SetupError(
            "This is no topic's name.",
            f"{option} {name[:_SHOWN_MAX]!r}",
            f"A name has 1 to {limits.NAME_LENGTH_MAX} letters, digits, dots, dashes and "
            "underscores.",
        )


def _named_topic(_: Any, name: str) -> None:
    require_topic(_, name, "TOPIC")


def _each(kind: str, option: str) -> Callable[[Any, Any], None]:
    """A validator of one name, or of a list of them."""

    def validate(_: Any, given: str | list[str] | None) -> None:
        for name in [given] if isinstance(given, str) else given or ():
            require_name(kind, option, name)

    return validate


def place_named(text: str, option: str = "--partition") -> tuple[str, int]:
    """`orders:3` as topic and partition.

    Raises:
        SetupError: it names no partition.
    """
    topic, _, number = text.rpartition(":")  # Kafka's topic names have none
    is_number = _DIGITS.fullmatch(number) and int(number) <= limits.INT32_MAX
    if not (is_number and _TOPIC.fullmatch(topic) and len(topic) <= limits.NAME_LENGTH_MAX):
        raise SetupError(
            "This names no partition.",
            f"{option} {text[:_SHOWN_MAX]!r}",
            f"For example {option} orders:3",
        )
    return topic, int(number)


def states_named(texts: Sequence[str], known: Iterable[str], of: str) -> set[str]:
    """The states that are meant, in whatever letters, several separated by commas.

    Args:
        of: whose states they are, for the error: `a group`.

    Raises:
        SetupError: one is no such state.
    """
    by_letters = {name.lower(): name for name in known}
    found = {by_letters.get(text.lower(), text) for each in texts for text in each.split(",")}
    for name in sorted(found - set(by_letters.values())):
        raise SetupError(
            f"{name[:_SHOWN_MAX]} is no state of {of}.",
            "--state",
            f"One of: {', '.join(by_letters.values())}",
        )
    return found


GroupName = Annotated[str, Parameter(validator=_each("group", "GROUP"))]
ClusterName = Annotated[str, Parameter(validator=_each("cluster", "CLUSTER"))]
TransactionalId = Annotated[str, Parameter(validator=_each("transactional id", "TRANSACTIONAL-ID"))]
#: Of pending offsets.
PendingKey = Annotated[str, Parameter(validator=_each("key", "KEY"))]
TopicName = Annotated[str, Parameter(validator=require_topic)]
#: Of a command that is about one topic.
ThisTopic = Annotated[str, Parameter(validator=_named_topic)]
Members = Annotated[list[str], Parameter(validator=_each("member", "--member"))]
Instances = Annotated[list[str], Parameter(validator=_each("member", "--instance"))]


#: Far beyond what a machine can do, and far below what overflows a field of Kafka's or a sum.
COUNT_MAX: Final = 1_000_000
PARTITIONS_MAX: Final = 10_000  # of one topic; a cluster has a few hundred thousand
REPLICATION_MAX: Final = 1_000
SECONDS_MAX: Final = 7 * 24 * 3600.0
SEED_MAX: Final = 2**63 - 1

_LENGTH_MAX: Final = 100  # of a number as text; the largest bound has 19 digits
#: A minus is taken, so that the bound is what the message names.
_WHOLE: Final = re.compile(r"-?[0-9]+")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"[0-9]{{1,9}}({'|'.join(_UNITS_MS)})")
_DECIMAL: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def whole(_: Any, tokens: Sequence[Any]) -> int:
    """A whole number. Raises ValueError for what is none."""
    return int(_matched(_WHOLE, tokens, "a whole number, of the digits 0 to 9"))


def decimal(_: Any, tokens: Sequence[Any]) -> float:
    """A number that may have a fraction. Raises ValueError for what is none."""
    return float(_matched(_DECIMAL, tokens, "a number like 2 or 0.5"))


def duration(_: Any, tokens: Sequence[Any]) -> int:
    """`500ms`, `30s`, `5m`, `2h` or `7d` as milliseconds. Raises ValueError for what is none."""
    text = _matched(_DURATION, tokens, "a duration like 30s, 5m or 2h")
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * _UNITS_MS[unit]


def _matched(pattern: re.Pattern[str], tokens: Sequence[Any], wanted: str) -> str:
    (token,) = tokens
    if len(token.value) > _LENGTH_MAX or not pattern.fullmatch(token.value):
        raise ValueError(f'"{token.value}" is not {wanted}.')
    return str(token.value)


def _integer(low: int, high: float) -> Parameter:
    return Parameter(converter=whole, validator=Number(gte=low, lte=high))


def _positive(high: float) -> Parameter:
    return Parameter(converter=decimal, validator=Number(gt=0, lte=high))


Count = Annotated[int, _integer(1, COUNT_MAX)]
Partitions = Annotated[int, _integer(1, PARTITIONS_MAX)]
Replication = Annotated[int, _integer(1, REPLICATION_MAX)]
Seed = Annotated[int, _integer(0, SEED_MAX)]
Millis = Annotated[int, _integer(1, SECONDS_MAX * 1000)]
NotNegative = Annotated[int, _integer(0, 2**63 - 1)]
#: Of a cluster's broker, and of a partition of its topics.
BrokerId = Annotated[int, _integer(0, INT32_MAX)]
PartitionNumber = Annotated[int, _integer(0, INT32_MAX)]
Rate = Annotated[float, _positive(COUNT_MAX)]
Seconds = Annotated[float, _positive(SECONDS_MAX)]
#: In milliseconds.
Duration = Annotated[int, Parameter(converter=duration)]


def exactly_one(*options: str) -> Callable[[Any], None]:
    """A validator for a group of options; `options`: how they are called in its error."""

    def validate(given: Any) -> None:
        if len(given.filter_by(value_set=True)) != 1:
            raise ValueError(f"Give one of {', '.join(options[:-1])} and {options[-1]}.")

    return validate


#: What commands read by default, back from the newest date that the tables have: history of a job
#: that is down is shown as well.
DAYS: Final = 30
_FORM: Final = "%Y-%m-%d"

Asking = tuple[str, Sequence[object]]
"""A query, and its parameters."""


def day(_: Any, tokens: Sequence[Any]) -> date:
    """A date. Raises ValueError for what is none."""
    (token,) = tokens
    try:
        if len(token.value) == len("2026-03-01"):  # strptime takes 2026-3-1, too
            return datetime.strptime(token.value, _FORM).date()
    except ValueError:
        pass
    raise ValueError(f'"{token.value[:100]}" is not a date like 2026-03-01.')


Since = Annotated[date | None, Parameter(converter=day, show_default=False)]


class Asked(NamedTuple):
    """What history has of a name."""

    answers: "list[Answer]"
    #: The time of its newest event; None: there is none in all of history.
    newest: datetime | None
    #: The first date that was read; None: all were.
    first: date | None

    def say_first(self) -> None:
        """What is not shown, where that may be something."""
        if self.first is not None:
            say(f"Read from {self.first} on; --since DATE reads further back.")


def ask(tables: str, since: date | None, newest: Asking, questions: Sequence[Asking]) -> Asked:
    """Ask about a name: of the dates from this one on.

    Args:
        since: None: the last `DAYS` that the tables have, or all where the first question has no
            answer in those.
        newest: a query for the time of its newest event, null where there is none.
    """
    from coordlib.history.sql import dates, query_all

    oldest, last = dates(tables) or (date.min, date.min)
    first = since if since is not None else max(oldest, last - min(_DAYS, last - date.min))
    asked = query_all(tables, questions, first)
    if first > oldest and since is None and not asked[0].rows:
        first = oldest
        asked = query_all(tables, questions)
    at = newest_of(tables, newest, (last, first, None))
    return Asked(asked, at, first if first > oldest else None)


def newest_of(tables: str, newest: Asking, sinces: Sequence[date | None]) -> datetime | None:
    """The time of a name's newest event: in nearly all cases the newest date has it.

    Args:
        sinces: the first dates to read from, one after the other; None: all are read.
    """
    from coordlib.history.sql import query_all

    for since in sinces:
        ((at,),) = query_all(tables, [newest], since)[0].rows
        if at is not None:
            return cast(datetime, at)
    return None


_DAYS: Final = timedelta(days=DAYS)
