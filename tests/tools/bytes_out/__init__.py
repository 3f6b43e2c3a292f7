"""Bytes out per byte in, of every request type, at the worst input that admission accepts.

    python -m tests.tools.bytes_out        write the table anew (tests/BYTES.md)

Each case brings a shard into a state, small enough for a test, and says what comes next. What grows
with a state or a request is the same for each row of it: `times` says how many more there can be.
Names are the longest, of characters that JSON writes twice as long, wherever the request has them
once and the outputs in each row.
"""

from collections.abc import Iterator
from typing import Final

from tests.tools.bytes_out import brokers, claims, groups, offsets, transactions
from tests.tools.bytes_out.measure import CASES, CLAIMED, PAGE, Case, types

#: Each module keeps its cases when it is imported.
__all__ = [
    "CASES",
    "PAGE",
    "Case",
    "brokers",
    "claims",
    "groups",
    "offsets",
    "page",
    "transactions",
    "types",
]
HEAD: Final = """# Bytes out per byte in

Written by `python -m tests.tools.bytes_out`; `tests/core/engine/test_bytes_out.py` plays
each row, and fails where a type has none. The inputs are the worst that are accepted: the longest
names, of characters that JSON writes twice as long, and no field that may be left out. Bytes are
rounded.

What bounds the outputs of a batch (`coordlib/job/batch.py`,
`coordlib/core/engine/effects.py`):

- **the plan**: so many outputs are planned for each record;
- **it waits**: what is beyond the plan is counted until readers can see it. Where a shard has said
  too much, the step is put off whole: the test plays each of these rows once more in a shard that
  has said twice what it may. One step may exceed the bound, with the largest state that a shard
  keeps by as much as the column says;
- what members are asked for by a date, and what the job tells of topics, never waits: it is bounded
  by the bytes of the groups, of which a shard keeps `shard.bytes_max` and a quarter more.

Beside them the saved state of each group that has changed is written once per batch.

| type | input | bytes in | bytes out | out per in | in one step, at most | bounded by |
|---|---|---|---|---|---|---|
"""


def rounded(number: float) -> str:
    """With two digits that count."""
    return f"{float(f'{number:.2g}'):,.10g}"


def lines() -> Iterator[str]:
    """The rows of the table, by type."""
    order = {name: place for place, name in enumerate(types())}
    for each in sorted(CASES, key=lambda one: order[one.type]):
        judged = each.judged()
        wrote = judged.wrote + (judged.saved if each.topic == CLAIMED else 0)
        most = f"{rounded(wrote * each.times / 1e6)} MB" if each.times > 1 else ""
        sizes = rounded(judged.came), rounded(wrote), rounded(wrote / judged.came)
        cells = each.type, each.what, *sizes, most, each.bound(judged) or "NOTHING"
        yield f"| {' | '.join(cells)} |"


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(lines()) + "\n"
