"""The levers of the batch benchmark, its variants, and the order in which they have their turns."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from coordlib.errors import SetupError
from coordlib.limits import MIB, OFFSETS_PER_REQUEST_MAX, SHARD_BYTES_MAX

Lever = Literal[
    "codegen",
    "gc",
    "files",
    "keys",
    "pages",
    "partitions",
    "retained",
    "fetched",
    "archive",
]
LEVERS: Final[tuple[Lever, ...]] = get_args(Lever)
#: Those that the job has. With one state partition, the keys of shards change nothing.
TOGETHER: Final[tuple[Lever, ...]] = ("codegen", "gc", "files", "keys", "pages")

#: Names of the variants without any lever, and with all of them.
OFF: Final = "off"
ON: Final = "on"
_JOINT: Final = "+"

#: Of one committed offset in a shard's state, unpacked.
BYTES_PER_OFFSET: Final = 50


#: Half of what two shards take: the members have their part of it too.
STATE_MB_MAX: Final = SHARD_BYTES_MAX // MIB


class Variant(NamedTuple):
    """Levers that are on in a block; all others are off."""

    name: str
    on: tuple[str, ...]


class Block(NamedTuple):
    """One variant's turn."""

    turn: int
    variant: Variant


def variants(levers: Sequence[str], named: Sequence[str] = ()) -> list[Variant]:
    """The variants to compare.

    Args:
        levers: that are looked at; `on` has all of them.
        named: `off`, `on`, a lever, or several joined by `+`; without any: off, each lever alone,
            on.

    Raises:
        SetupError: a variant names something else, or there is no lever.
    """
    if not levers:
        raise SetupError("No lever was named.", "--levers", f"Name some of: {', '.join(LEVERS)}")
    names = list(dict.fromkeys(named or (OFF, *levers, ON)))
    return [Variant(name, _levers_of(name, levers)) for name in names]


def warming(levers: Sequence[str]) -> list[Variant]:
    """What the JVM does before anything is counted: without any lever, and with all of them.

    Each lever has code of its own, which is slow until it is compiled: the first block that used it
    would pay for that.
    """
    return variants(levers, (OFF, ON))


def _levers_of(name: str, levers: Sequence[str]) -> tuple[str, ...]:
    if name == OFF:
        return ()
    if name == ON:
        return tuple(dict.fromkeys(levers))
    on = tuple(name.split(_JOINT))
    for each in on:
        if each not in LEVERS:
            raise SetupError(
                f"There is no lever {each!r}.",
                f"--variants {name}",
                f"Name {OFF}, {ON}, or some of these joined by {_JOINT}: {', '.join(LEVERS)}",
            )
    return on


def order(chosen: Sequence[Variant], turns: int) -> list[Block]:
    """The blocks, one after the other.

    Every second turn goes backwards: a JVM becomes faster for minutes, and the variants that come
    late in every turn would have all of that.
    """
    return [
        Block(turn, variant)
        for turn in range(1, turns + 1)
        for variant in (chosen if turn % 2 else reversed(chosen))
    ]


def offsets_per_group(state_mb: int, groups: int) -> int:
    """How many offsets each group commits, so that all shards have this much state in sum.

    Raises:
        SetupError: more than one OffsetCommit may have.
    """
    offsets = round(state_mb * 1_000_000 / BYTES_PER_OFFSET / groups)
    if offsets > OFFSETS_PER_REQUEST_MAX:
        least = -(-offsets * groups // OFFSETS_PER_REQUEST_MAX)
        raise SetupError(
            f"{state_mb} MB of state need more groups.",
            f"--groups {groups}, each would commit {offsets:,} offsets",
            f"Name --groups {least} or more.",
        )
    return offsets
