"""`coord bench`: measure the engine on this machine."""

from importlib import import_module

from coordlib.cli.where import HERE, Where


def settle(*, where: Where = HERE) -> int:
    """Time from a member's join or leave until everybody has settled."""
    return _run("settle", where)


def load(*, where: Where = HERE) -> int:
    """Time to an answer while thousands of heartbeats a second arrive."""
    return _run("load", where)


def core(*, where: Where = HERE) -> int:
    """Requests per second that the core alone judges: no Kafka, no Spark."""
    return _run("core", where)


def _run(name: str, where: Where) -> int:
    return int(import_module(f"coordlib.testing.bench.{name}").run(where) or 0)
