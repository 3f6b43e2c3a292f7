"""The input of those who are no members: `coord.offsets`.

A program that divides its partitions itself commits here. No time passes with its records, so that
a flood of them moves no deadline.
"""

from typing import Final

from coordlib.core.engine.family import Input
from coordlib.core.wire import requests as rq

#: The input's letter.
COMMITS: Final = "o"


def _fault(request: rq.Request | rq.Control) -> str | None:
    if isinstance(request, rq.OffsetCommit) and request.generation == -1:
        return None
    return "Write it to the requests: only OffsetCommit with generation -1 belongs here."


POSITIONS: Final = Input(COMMITS, "offsets", _fault)
