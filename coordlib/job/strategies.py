"""Strategies of users, by friendly name: entry points of the group `coordlib.strategies`.

Each names a function that divides, as described in
`core/groups/assignors/server_model.py`:

    [project.entry-points."coordlib.strategies"]
    by-customer = "shop.strategies:by_customer"

Groups may choose those that the job's settings name, and no others that happen to be installed. A
strategy runs inside the fold, in Spark's Python workers: it must be installed on all of them, and
give the same shares whenever the same batch runs again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points

from coordlib.core.groups.assignors.registry import BUILT_IN
from coordlib.core.groups.assignors.server_model import Strategy
from coordlib.errors import SetupError

ENTRY_POINTS = "coordlib.strategies"


def load_strategies(names: Sequence[str]) -> dict[str, Strategy]:
    """The users' strategies of these names.

    Raises:
        SetupError: a name is a built-in one's, no or two packages have it, or it does not load.
    """
    found = list(entry_points(group=ENTRY_POINTS))
    count = Counter(point.name for point in found)
    points = {point.name: point for point in found}
    return {name: _load(name, points, count[name]) for name in dict.fromkeys(names)}


def _load(name: str, points: Mapping[str, EntryPoint], count: int) -> Strategy:
    if name in BUILT_IN:
        raise SetupError(
            "A strategy of yours has the name of a built-in one.",
            repr(name),
            f"Give it another name than {', '.join(sorted(BUILT_IN))}; those need not be named.",
        )
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise SetupError(
            "There is no such strategy.",
            f"{name!r}; entry points of the group {ENTRY_POINTS}: {known}",
            "Install the package that has it, here and where Spark's Python workers run.",
        )
    where = f"{name} = {points[name].value}"
    if count > 1:
        raise SetupError(
            "Several packages have a strategy of this name.", where, "Remove all but one of them."
        )
    try:
        strategy: Strategy = points[name].load()
    except Exception as problem:  # whatever a user's module raises
        raise SetupError(
            f"The strategy cannot be loaded: {problem!r}.", where, "Correct it or its entry point."
        ) from problem
    if not callable(strategy):
        raise SetupError(
            f"The strategy is no function: it is a {type(strategy).__name__}.",
            where,
            "Let the entry point name a function of members and partitions.",
        )
    return strategy
