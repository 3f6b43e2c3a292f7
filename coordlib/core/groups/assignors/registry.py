"""The strategies that coordlib brings, by friendly name, and the check that shares are total."""

from collections.abc import Mapping
from typing import Final

from coordlib.core.groups.assignors import server_range as range_strategy
from coordlib.core.groups.assignors import server_roundrobin as roundrobin
from coordlib.core.groups.assignors import server_sticky as sticky
from coordlib.core.groups.assignors import uniform
from coordlib.core.groups.assignors.server_model import Shares, Strategy, Subscriber
from coordlib.core.groups.assignors.terms import wanted_by

BUILT_IN: Final[dict[str, Strategy]] = {
    sticky.NAME: sticky.assign,
    uniform.NAME: uniform.assign,
    range_strategy.NAME: range_strategy.assign,
    roundrobin.NAME: roundrobin.assign,
}


class NotTotal(ValueError):
    """The shares are not total; the message gives the reason."""


def check_total(
    members: Mapping[str, Subscriber], partitions: Mapping[str, int], shares: Shares
) -> None:
    """Check that every wanted partition has exactly one member, and that this member wants it.

    Raises:
        NotTotal: a member is unknown or left out; a partition does not exist, is given to one that
            does not want its topic, is given twice, or is not given although a member wants it.
    """
    for name in shares:
        if name not in members:
            raise NotTotal(f"{name!r} is given a share and is no member.")
    owners = _owners(members, partitions)
    for name, wanted in zip(members, wanted_by(members), strict=True):
        if name not in shares:
            raise NotTotal(f"Member {name!r} is left out.")
        for topic, some in shares[name].items():
            if topic not in wanted:
                raise NotTotal(f"Member {name!r} is given {topic!r} and does not want it.")
            _claim(name, topic, some, owners[topic])
    for topic, row in owners.items():
        if None in row:
            raise NotTotal(f"Partition {row.index(None)} of {topic!r} is given to nobody.")


def _owners(
    members: Mapping[str, Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[str | None]]:
    """A place for the owner of every partition that a member wants."""
    kinds = dict.fromkeys(member.topics for member in members.values())
    wanted = dict.fromkeys(topic for topics in kinds for topic in topics)
    return {topic: [None] * partitions.get(topic, 0) for topic in wanted}


def _claim(name: str, topic: str, some: tuple[int, ...], owners: list[str | None]) -> None:
    for partition in some:
        if not 0 <= partition < len(owners):
            raise NotTotal(f"Partition {partition} of {topic!r} is given and does not exist.")
        if (other := owners[partition]) is not None:
            raise NotTotal(
                f"Partition {partition} of {topic!r} is given to {other!r} and to {name!r}."
            )
        owners[partition] = name
