"""How many examples a property test draws: a third usually, all of them in `make nightly`.

And of numbered courses: few usually, the others in `make chaos`.
"""

import os
from typing import Any, Final

import pytest

#: In the environment: draw all of them.
ALL_VARIABLE: Final = "COORD_ALL_EXAMPLES"


def examples(count: int) -> int:
    """For a property whose examples take milliseconds each and more: cheap ones name a number."""
    return count if os.environ.get(ALL_VARIABLE) else max(1, count // 3)


def seeds(few: int, count: int) -> list[Any]:
    """So many parameters, of which `make test` runs the first few."""
    more = (pytest.param(seed, marks=pytest.mark.chaos) for seed in range(few, count))
    return [*range(few), *more]
