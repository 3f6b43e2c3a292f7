"""The names that a program gives, checked before anything is sent."""

from collections.abc import Callable, Iterable
from typing import Any

from coordlib import limits
from coordlib.core.wire.checks import is_name, is_topic
from coordlib.errors import SetupError

_SHOWN_MAX = 300


def topics_of(
    topics: Any, can_be: Callable[[str], bool] = is_topic, what: str = "topic"
) -> tuple[str, ...]:
    """The topics and expressions of a subscription, each once.

    A name that no topic can have is an empty variable or a slip, and never comes into being.

    Args:
        topics: as the program gave them.
        can_be: whether there can be one of this name.
        what: of what they are names.

    Raises:
        SetupError: they are no list, or one of them can be no name.
    """
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise SetupError(f"subscribe needs a list of {what}s.", repr(topics)[:_SHOWN_MAX])
    given = tuple(topics)
    for each in given:
        if not isinstance(each, str) or not (each.startswith("^") or can_be(each)):
            mend = f"Give names of 1 to {limits.NAME_LENGTH_MAX} letters, digits, . _ and -"
            raise SetupError(f"No {what} can have this name.", repr(each)[:_SHOWN_MAX], mend)
    return tuple(dict.fromkeys(given))


def is_pool(name: str) -> bool:
    """Whether tasks can have a pool of this name."""
    return is_name(name, limits.NAME_LENGTH_MAX)


def require_name(what: str, given: object, bytes_max: int, mend: str = "") -> None:
    """Raises SetupError: this can be no name.

    Args:
        what: whose name it is, as the first words of a sentence.
    """
    if not isinstance(given, str) or not is_name(given, bytes_max):
        needed = f"{what} needs 1 to {bytes_max} bytes of UTF-8 without control characters."
        raise SetupError(needed, repr(given)[:_SHOWN_MAX], mend)
