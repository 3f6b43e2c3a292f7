"""Names of groups, members and topics that options take: what cannot be one is wrong usage, exit
code 2, before any broker is asked.

A shell makes an empty name of a variable that is not set. Without the check the coordinator would
answer for a group that was not meant.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from cyclopts import Parameter

from coordlib import limits
from coordlib.errors import SetupError

#: Kafka's own rule (org.apache.kafka.common.internals.Topic).
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN_MAX: Final = 200


def require_name(kind: str, option: str, name: str) -> None:
    """Check a name by the rule that the coordinator has for all names of a request.

    Raises:
        SetupError: it is none.
    """
    from coordlib.records.checks import is_name

    if not is_name(name, limits.NAME_LENGTH_MAX):
        raise SetupError(
            f"This is no name of a {kind}.",
            f"{option} {name[:_SHOWN_MAX]!r}",
            f"Give 1 to {limits.NAME_LENGTH_MAX} bytes of UTF-8 without control characters.",
        )


def require_topic(_: Any, name: str | None) -> None:
    """Raises SetupError for a topic's name that Kafka refuses."""
    if name is None:
        return
    if len(name) > limits.NAME_LENGTH_MAX or name in (".", "..") or _TOPIC.fullmatch(name) is None:
        raise SetupError(
            "This is no topic's name.",
            f"--topic {name[:_SHOWN_MAX]!r}",
            f"A name has 1 to {limits.NAME_LENGTH_MAX} letters, digits, dots, dashes and "
            "underscores.",
        )


def _each(kind: str, option: str) -> Callable[[Any, Any], None]:
    """A validator of one name, or of a list of them."""

    def validate(_: Any, given: str | list[str] | None) -> None:
        for name in [given] if isinstance(given, str) else given or ():
            require_name(kind, option, name)

    return validate


GroupName = Annotated[str, Parameter(validator=_each("group", "GROUP"))]
TopicName = Annotated[str, Parameter(validator=require_topic)]
Members = Annotated[list[str], Parameter(validator=_each("member", "--member"))]
Instances = Annotated[list[str], Parameter(validator=_each("member", "--instance"))]
