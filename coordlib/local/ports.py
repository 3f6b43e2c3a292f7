"""Free ports on the loopback interface, and the process that holds a port."""

import socket
from pathlib import Path

import psutil

from coordlib.errors import NotReady
from coordlib.local.home import command_for
from coordlib.local.programs import describe

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports without a listener at this moment, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def require_free(port: int, stack: Path) -> None:
    """Check that a port can be bound.

    Raises:
        NotReady: a process holds it; the message names it, as far as this user may see it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no holder
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise NotReady(
                f"Port {port} is taken by {_holder(port)}.",
                f"{LOOPBACK}:{port}, which this stack used before",
                "Stop that program, or take new ports with: "
                f"{command_for(stack, 'up --new-ports')} (nothing stored is lost).",
            ) from error


def is_answering(port: int) -> bool:
    """Whether a process accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _holder(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):  # macOS asks for root
        return "another program"
    pids = [c.pid for c in connections if c.laddr and c.laddr.port == port and c.pid]
    return describe(pids[0]) if pids else "another program"
