"""A cluster's name where a group's was asked for: the answer says which commands are meant."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coordlib.cli.kit.output import visible
from coordlib.cli.kit.where import Where
from coordlib.errors import CoordError, ErrorCode, GroupError


def pointer(name: str) -> str:
    """What to do with a cluster's name."""
    return f"This is a cluster of brokers. See: coord cluster describe {visible(name)}"


@contextmanager
def of_a_group(where: Where, name: str) -> Iterator[None]:
    """A group that is not found may be a cluster: then the error says so.

    Raises:
        GroupError: as the block raised it, perhaps with another mend.
    """
    try:
        yield
    except GroupError as problem:
        if problem.code is ErrorCode.GROUP_ID_NOT_FOUND and is_a_cluster(where, name):
            raise GroupError(problem.code, problem.where, pointer(name)) from problem
        raise


def is_a_cluster(where: Where, name: str) -> bool:
    """Whether the topics have a cluster of this name; no, where they cannot be read."""
    from coordlib.cli.controller.view import is_cluster

    with suppress(CoordError):  # what is to be told has gone wrong already
        return is_cluster(where.client(), where.reach(), where.topic_prefix(), name)
    return False
