"""How many examples a property test draws: a third usually, all of them in `make nightly`."""

import os
from typing import Final

#: In the environment: draw all of them.
ALL_VARIABLE: Final = "COORD_ALL_EXAMPLES"


def examples(count: int) -> int:
    """For a property whose examples take milliseconds each and more: cheap ones name a number."""
    return count if os.environ.get(ALL_VARIABLE) else max(1, count // 3)
