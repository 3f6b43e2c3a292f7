"""The strategies of coordlib by friendly name, and the division by the one that a group chose.

A user's strategy must be pure, deterministic, total (`server_model`). If it raises, or its answer
is not total, only its group is affected: `sticky` makes the division, and a sentence gives the
reason. A defect in a strategy of coordlib's own is not hidden so: its group is quarantined as it
was before.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from coordlib.core.groups.assignors import server_range, server_sticky
from coordlib.core.groups.assignors.server_model import Shares, Strategy, Subscriber, wanted_by

BUILT_IN: Final[dict[str, Strategy]] = {
    server_sticky.NAME: server_sticky.assign,
    server_sticky.UNIFORM: server_sticky.assign_uniform,
    server_range.NAME: server_range.assign,
    server_range.ROUNDROBIN: server_range.assign_roundrobin,
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


FAULT_LENGTH_MAX: Final = 300  # characters: a line of history; the rest is for the user's own tests
#: Where an object stands in memory: another place when the batch runs again.
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]+")


class StrategyBook:
    """The strategies that groups of this job may choose, by friendly name."""

    def __init__(self, own: Mapping[str, Strategy] = MappingProxyType({})) -> None:
        """`own` are those of users; none has the name of a built-in one."""
        if shadowing := sorted(BUILT_IN.keys() & own.keys()):
            raise ValueError(f"{shadowing[0]!r} is the name of a built-in strategy.")
        self._own = dict(own)

    def __contains__(self, name: str) -> bool:
        return name in BUILT_IN or name in self._own

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted([*BUILT_IN, *self._own]))

    def of_user(self, name: str) -> Strategy | None:
        """The user's strategy of this name; None if there is none."""
        return self._own.get(name)


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of all members."""

    shares: Shares
    #: Why `sticky` was used instead of the chosen strategy: a sentence in printable
    #: characters, at most FAULT_LENGTH_MAX. None: the chosen one was used.
    fault: str | None = None


def divide(
    book: StrategyBook,
    name: str,
    members: Mapping[str, Subscriber],
    partitions: Mapping[str, int],
) -> Division:
    """Divide the partitions by the strategy of this name.

    A name that is not in the book is a fault too: the job was started without a strategy that the
    group chose earlier. Raises whatever a built-in strategy raises: a defect.
    """
    if name in BUILT_IN:
        return Division(shares=BUILT_IN[name](members, partitions))
    strategy = book.of_user(name)
    if strategy is None:
        return _by_sticky(name, "is not known to this job", members, partitions)
    try:
        shares = _plain(strategy(_guarded(members), MappingProxyType(dict(partitions))))
        check_total(members, partitions, shares)
    except NotTotal as problem:
        return _by_sticky(name, f"is not total: {problem}", members, partitions)
    except Exception as problem:  # noqa: BLE001, a user's code raises anything; it is told
        return _by_sticky(name, f"failed with {_described(problem)}", members, partitions)
    return Division(shares=shares)


def _by_sticky(
    name: str, what: str, members: Mapping[str, Subscriber], partitions: Mapping[str, int]
) -> Division:
    sentence = f"sticky divided, since strategy {name!r} {what}".rstrip(".")
    return Division(
        shares=server_sticky.assign(members, partitions), fault=_printable(sentence) + "."
    )


def _guarded(members: Mapping[str, Subscriber]) -> Mapping[str, Subscriber]:
    """Copies of the members, so that a user's strategy cannot change the group's own values."""
    return MappingProxyType(
        {
            name: msgspec.structs.replace(member, share=MappingProxyType(dict(member.share)))
            for name, member in members.items()
        }
    )


def _plain(answer: object) -> Shares:
    """A strategy's answer in the types and the order that `Shares` promises; raises for others."""
    shares = msgspec.convert(answer, Shares)
    return {
        member: {topic: tuple(sorted(rows[topic])) for topic in sorted(rows) if rows[topic]}
        for member, rows in shares.items()
    }


def _described(problem: Exception) -> str:
    """The text of an exception, the same when the batch runs again."""
    try:
        words = str(problem)
    except Exception:  # noqa: BLE001, the class is a user's too; its name is told
        words = ""
    kind = type(problem).__name__
    return _ADDRESS.sub("0x", f"{kind}: {words}" if words else kind)


def _printable(text: str) -> str:
    """One line, cut to leave room for a full stop."""
    clean = "".join(each if each.isprintable() else " " for each in text)
    return clean if len(clean) < FAULT_LENGTH_MAX else clean[: FAULT_LENGTH_MAX - 2] + "\u2026"
