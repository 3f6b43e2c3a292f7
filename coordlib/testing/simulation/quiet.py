"""No talk: a simulated world goes wrong all the time, and says so."""

import logging

import structlog


def quiet_logs() -> None:
    """Only what is critical is said, by the engine and by the client."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("coordlib").setLevel(logging.CRITICAL)
