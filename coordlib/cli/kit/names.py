"""Names of groups, members and topics that options take: what cannot be one is wrong usage, exit
code 2, before any broker is asked.

A shell makes an empty name of a variable that is not set. Without the check the coordinator would
answer for a group that was not meant.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter

from coordlib import limits
from coordlib.errors import SetupError

#: Kafka's own rule (org.apache.kafka.common.internals.Topic).
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,10}")
_SHOWN_MAX: Final = 200


def require_name(kind: str, option: str, name: str) -> None:
    """Check a name by the rule that the coordinator has for all names of a request.

    Raises:
        SetupError: it is none.
    """
    from coordlib.core.wire.checks import is_name

    if not is_name(name, limits.NAME_LENGTH_MAX):
        raise SetupError(
            f"This is no name of a {kind}.",
            f"{option} {name[:_SHOWN_MAX]!r}",
            f"Give 1 to {limits.NAME_LENGTH_MAX} bytes of UTF-8 without control characters.",
        )


def require_topic(_: Any, name: str | None, option: str = "--topic") -> None:
    """Raises SetupError for a topic's name that Kafka refuses."""
    if name is None:
        return
    if len(name) > limits.NAME_LENGTH_MAX or name in (".", "..") or _TOPIC.fullmatch(name) is None:
        raise SetupError(
            "This is no topic's name.",
            f"{option} {name[:_SHOWN_MAX]!r}",
            f"A name has 1 to {limits.NAME_LENGTH_MAX} letters, digits, dots, dashes and "
            "underscores.",
        )


def _named_topic(_: Any, name: str) -> None:
    require_topic(_, name, "TOPIC")


def _each(kind: str, option: str) -> Callable[[Any, Any], None]:
    """A validator of one name, or of a list of them."""

    def validate(_: Any, given: str | list[str] | None) -> None:
        for name in [given] if isinstance(given, str) else given or ():
            require_name(kind, option, name)

    return validate


def place_named(text: str, option: str = "--partition") -> tuple[str, int]:
    """`orders:3` as topic and partition.

    Raises:
        SetupError: it names no partition.
    """
    topic, _, number = text.rpartition(":")  # Kafka's topic names have none
    is_number = _DIGITS.fullmatch(number) and int(number) <= limits.INT32_MAX
    if not (is_number and _TOPIC.fullmatch(topic) and len(topic) <= limits.NAME_LENGTH_MAX):
        raise SetupError(
            "This names no partition.",
            f"{option} {text[:_SHOWN_MAX]!r}",
            f"For example {option} orders:3",
        )
    return topic, int(number)


def states_named(texts: Sequence[str], known: Iterable[str], of: str) -> set[str]:
    """The states that are meant, in whatever letters, several separated by commas.

    Args:
        of: whose states they are, for the error: `a group`.

    Raises:
        SetupError: one is no such state.
    """
    by_letters = {name.lower(): name for name in known}
    found = {by_letters.get(text.lower(), text) for each in texts for text in each.split(",")}
    for name in sorted(found - set(by_letters.values())):
        raise SetupError(
            f"{name[:_SHOWN_MAX]} is no state of {of}.",
            "--state",
            f"One of: {', '.join(by_letters.values())}",
        )
    return found


GroupName = Annotated[str, Parameter(validator=_each("group", "GROUP"))]
ClusterName = Annotated[str, Parameter(validator=_each("cluster", "CLUSTER"))]
TransactionalId = Annotated[str, Parameter(validator=_each("transactional id", "TRANSACTIONAL-ID"))]
#: Of pending offsets.
PendingKey = Annotated[str, Parameter(validator=_each("key", "KEY"))]
TopicName = Annotated[str, Parameter(validator=require_topic)]
#: Of a command that is about one topic.
ThisTopic = Annotated[str, Parameter(validator=_named_topic)]
Members = Annotated[list[str], Parameter(validator=_each("member", "--member"))]
Instances = Annotated[list[str], Parameter(validator=_each("member", "--instance"))]
