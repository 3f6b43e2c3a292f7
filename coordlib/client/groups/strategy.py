"""`partition.assignment.strategy`: assignors by name, in order of preference.

A name is one of coordlib's own, or that of an entry point of the group `coordlib.assignors`: a
callable without arguments that returns an Assignor of this name:

    [project.entry-points."coordlib.assignors"]
    by-customer = "shop.assignors:ByCustomer"

Objects are taken as they are.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points

from coordlib.client.groups.assignor import BUILT_IN, Assignor, mode_of
from coordlib.errors import SetupError

ENTRY_POINTS = "coordlib.assignors"


def find_assignors(wanted: str | Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors of a list, or of names parted by commas. Raises SetupError."""
    names = wanted.split(",") if isinstance(wanted, str) else wanted
    found = tuple(_find(each) for each in names)
    mode_of(found)
    return found


def _find(wanted: str | Assignor) -> Assignor:
    if not isinstance(wanted, str):
        return wanted
    name = wanted.strip()
    if name in BUILT_IN:
        return BUILT_IN[name]()
    registered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if name not in registered:
        known = ", ".join(sorted({*BUILT_IN, *registered}))
        raise SetupError("There is no such assignor.", repr(name), f"Choose from {known}.")
    try:
        made: Assignor = registered[name].load()()
        named = made.name
    except Exception as problem:  # whatever a user's code raises
        where = f"{name} = {registered[name].value}"
        raise SetupError(f"The assignor cannot be made: {problem!r}", where) from problem
    if named != name:
        raise SetupError("An assignor is registered under another name.", f"{name}: {named}")
    return made
