"""Heartbeats per second of this code and of another checkout's, by turns on the same machine.

    ours theirs | theirs ours | ours theirs | …

Each turn is a process of its own, so that neither side finds what the other has compiled. Load that
comes and goes meets both.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from coordlib.errors import CoordError, SetupError
from tests.tools.bench.figures import percentile, tell
from tests.tools.bench.settle import load_1m

ROOT: Final = Path(__file__).parents[3]
OURS: Final = "ours"
THEIRS: Final = "theirs"
TIMEOUT_S: Final = 600.0
_MEASURE: Final = (
    "import json, sys, coordlib; from tests.tools.bench.core import heartbeat_rate; "
    "print(json.dumps([coordlib.__file__, heartbeat_rate(*map(int, sys.argv[1:]))]))"
)


def heartbeats_of(checkout: Path, size: Sequence[int]) -> dict[str, float]:
    """What the code of this checkout makes of it. Raises CoordError."""
    command = [sys.executable, "-c", _MEASURE, *(str(each) for each in size)]
    ended = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if ended.returncode:
        raise CoordError(f"The other code failed: {ended.stderr[-500:]}", str(checkout))
    code, found = json.loads(ended.stdout)
    if not Path(code).is_relative_to(checkout):
        raise CoordError(f"Python took other code: {code}", str(checkout))
    return dict(found)


def order(turns: int) -> list[str]:
    """Whose turn it is: every second pair goes backwards."""
    pairs = [(OURS, THEIRS) if turn % 2 == 0 else (THEIRS, OURS) for turn in range(turns)]
    return [side for pair in pairs for side in pair]


def compare(measure: Callable[[str], dict[str, float]], turns: int) -> dict[str, Any]:
    """The median of each side's turns, and what share of theirs ours is."""
    rates: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for side in order(turns):
        rates[side].append(measure(side)["heartbeats_per_s"])
    medians = {side: percentile(found, 0.5) for side, found in rates.items()}
    return {
        "per_s": medians,
        "turns": rates,
        "share": round(medians[OURS] / medians[THEIRS], 3),
    }


def run(against: str, size: Sequence[int], turns: int) -> None:
    """One line. Raises SetupError, CoordError."""
    other = Path(against).resolve()
    if not (other / "tests/tools/bench/core.py").exists():
        raise SetupError("There is no code to compare with.", against, "Name a checkout's folder.")
    sides = {OURS: ROOT, THEIRS: other}
    found = compare(lambda side: heartbeats_of(sides[side], size), turns)
    groups, members, batch, _ = size
    sizes = {"groups": groups, "members": members, "batch": batch}
    tell("core", "heartbeats against", against=against, load_1m=load_1m(), **sizes, **found)
