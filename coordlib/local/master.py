"""Whether the master of a standalone cluster answers, before anything is packed or started.

Spark itself tries for a minute, and then ends with a stack trace. Other cluster managers are found
by files of their own, which are not read here.
"""

import re
import socket
from typing import Final

from coordlib import limits
from coordlib.errors import CannotReach, SetupError

_SCHEME: Final = "spark://"
_PLACE: Final = re.compile(r"(?P<host>\[[^]\s,]+\]|[^:\s,\[\]]+):(?P<port>[0-9]{1,5})")
CONNECT_TIMEOUT_S: Final = 5.0


def require_answer(master: str) -> None:
    """Check that one of the masters accepts connections; returns at once for other managers.

    Args:
        master: as --master has it, `spark://HOST:PORT[,HOST:PORT…]`.

    Raises:
        SetupError: it names no host and port.
        CannotReach: none of them answers.
    """
    if not master.startswith(_SCHEME):
        return
    places = [_place(each, master) for each in master.removeprefix(_SCHEME).split(",")]
    problems = [problem for place in places if (problem := _silence_of(*place))]
    if len(problems) == len(places):
        raise CannotReach(
            "The Spark master does not answer.",
            f"{master}: {'; '.join(problems)}",
            "Start it, or correct --master; then start the job again.",
        )


def _place(text: str, master: str) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= limits.PORT_MAX:
        raise SetupError(
            "This names no Spark master.",
            f"--master {master[:200]}",
            "Name it as spark://HOST:PORT, several with commas between them.",
        )
    return found["host"].strip("[]"), int(found["port"])


def _silence_of(host: str, port: int) -> str | None:
    """Why nothing answers there; None: something does."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None
