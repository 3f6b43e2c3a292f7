"""Bounds of the numbers that options take: a number outside them is wrong usage, exit code 2."""

from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

#: Far beyond what a machine can do, and far below what overflows a field of Kafka's or a sum.
COUNT_MAX: Final = 1_000_000
PARTITIONS_MAX: Final = 10_000  # of one topic; a cluster has a few hundred thousand
REPLICATION_MAX: Final = 1_000
SECONDS_MAX: Final = 7 * 24 * 3600.0
SEED_MAX: Final = 2**63 - 1

Count = Annotated[int, Parameter(validator=Number(gte=1, lte=COUNT_MAX))]
Partitions = Annotated[int, Parameter(validator=Number(gte=1, lte=PARTITIONS_MAX))]
Replication = Annotated[int, Parameter(validator=Number(gte=1, lte=REPLICATION_MAX))]
Seed = Annotated[int, Parameter(validator=Number(gte=0, lte=SEED_MAX))]
Millis = Annotated[int, Parameter(validator=Number(gte=1, lte=SECONDS_MAX * 1000))]
NotNegative = Annotated[int, Parameter(validator=Number(gte=0, lte=2**63 - 1))]
Rate = Annotated[float, Parameter(validator=Number(gt=0, lte=COUNT_MAX))]
Seconds = Annotated[float, Parameter(validator=Number(gt=0, lte=SECONDS_MAX))]
