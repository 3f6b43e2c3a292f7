"""What a program gives a client: names, and keys of its configuration.

Names are checked before anything is sent. A program that uses other brokers for its data says with
`coord.` before a key how the coordinator's are reached.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordlib.core.wire.envelope import is_name
from coordlib.core.wire.offsets import COORDINATOR, KAFKA
from coordlib.errors import SetupError

SHOWN_MAX = 300


def require_name(what: str, given: object, bytes_max: int, hint: str = "") -> None:
    """Raises SetupError: this can be no name.

    Args:
        what: whose name it is, as the first words of a sentence.
    """
    if not isinstance(given, str) or not is_name(given, bytes_max):
        needed = f"{what} needs 1 to {bytes_max} bytes of UTF-8 without control characters."
        raise SetupError(needed, repr(given)[:SHOWN_MAX], hint)


PREFIX: Final = "coord.prefix"
DECIDED_BY: Final = "coord.decided.by"
SERVERS: Final = "bootstrap.servers"
_OURS: Final = "coord."
#: What says how to connect; all else is of one client alone.
_CONNECTING: Final = (
    SERVERS,
    "security.",
    "sasl.",
    "ssl.",
    "broker.address.",
    "socket.",
    "reconnect.",
    "log_level",
)


class Options(NamedTuple):
    """A configuration, taken apart."""

    #: Of the clients for the data.
    data: dict[str, Any]
    #: Of the clients for the coordinator.
    coordinator: dict[str, Any]
    prefix: str


def take_apart(config: Mapping[str, Any], ignored: frozenset[str] = frozenset()) -> Options:
    """Keys of the data's brokers, and of the coordinator's.

    Without `coord.bootstrap.servers` these are the same. With it nothing else of the data's brokers
    holds for the coordinator's: passwords do not go where they do not belong. What is needed there
    is named with `coord.` before it, such as `coord.security.protocol`.

    Raises:
        SetupError: a key that begins with `coord.` and is not known.
    """
    data = {key: value for key, value in config.items() if not key.startswith(_OURS)}
    given = {
        key.removeprefix(_OURS): value
        for key, value in config.items()
        if key.startswith(_OURS) and key not in (PREFIX, DECIDED_BY) and key not in ignored
    }
    if unknown := sorted(_OURS + key for key in given if not key.startswith(_CONNECTING)):
        raise SetupError("There is no such key.", ", ".join(unknown))
    same = {key: value for key, value in data.items() if key.startswith(_CONNECTING)}
    coordinator = given if SERVERS in given else {**same, **given}
    return Options(data, coordinator, str(config.get(PREFIX, "coord")))


def decider_of(given: object) -> str:
    """Who decides about transactions, as DECIDED_BY was given. Raises SetupError: neither does."""
    decider = str(given)
    if decider not in (KAFKA, COORDINATOR):
        raise SetupError(f"{DECIDED_BY} is {KAFKA} or {COORDINATOR}.", repr(decider))
    return decider


def refuse_auto_commit(rest: dict[str, Any]) -> None:
    """Take out the key that would commit without a call of `commit`.

    Raises SetupError: it is on.
    """
    if str(rest.pop("enable.auto.commit", False)).lower() not in {"false", "0"}:
        raise SetupError(
            "enable.auto.commit is not offered.", "", "Call commit() when work is done."
        )


def boolean(key: str, value: Any) -> bool:
    """The truth that this key was given, as librdkafka reads it. Raises SetupError."""
    read = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if (found := read.get(str(value).lower())) is None:
        raise SetupError(f"{key} is true or false.", repr(value)[:SHOWN_MAX])
    return found


def whole(key: str, value: Any) -> int:
    """The whole number that this key was given. Raises SetupError, which names the key."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as problem:
        raise SetupError(f"{key} must be a whole number.", repr(value)) from problem
