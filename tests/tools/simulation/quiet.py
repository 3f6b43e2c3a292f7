"""No talk: a simulated world goes wrong all the time, and says so."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Only what is critical is said, by the engine and by the client; then all is as before."""
    usual, client = structlog.get_config(), logging.getLogger("coordlib")
    level = client.level
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    client.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        structlog.configure(**usual)
        client.setLevel(level)
