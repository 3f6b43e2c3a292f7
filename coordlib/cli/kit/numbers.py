"""Numbers that options take: how they are written, and their bounds. All else is wrong usage, exit
code 2.

Numbers are decimal, of the digits 0 to 9. Python and cyclopts would take more (0x10, 1_0, digits of
other scripts) and round fractions: a topic of 1.5 shards would get two for ever.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from coordlib.limits import INT32_MAX

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
Partition = Annotated[int, _integer(0, INT32_MAX)]
Rate = Annotated[float, _positive(COUNT_MAX)]
Seconds = Annotated[float, _positive(SECONDS_MAX)]
#: In milliseconds.
Duration = Annotated[int, Parameter(converter=duration)]
