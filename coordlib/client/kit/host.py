"""The name of the machine, as a client id and a member's `host` have it."""

import socket

from coordlib import limits


def own_host() -> str | None:
    """The host name in plain characters; None: the machine has none."""
    name = "".join(
        each
        for each in socket.gethostname()
        if each.isascii() and (each.isalnum() or each in "-._")
    )
    return name[: limits.NAME_LENGTH_MAX] or None
