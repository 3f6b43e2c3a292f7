"""What the shard asks of a kind of group: the module `machine.py` of its package has all of it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import msgspec

from coordlib.coordinators.groups.group import AnyGroup
from coordlib.coordinators.shard.clock import Due
from coordlib.coordinators.shard.step import Step, Surroundings
from coordlib.coordinators.shard.transition import At
from coordlib.records import requests as rq

#: One step of a group: it changes the step, or refuses.
Handler = Callable[[Any, Any], None]


class UnknownSavedVersion(ValueError):
    """A group was saved by other code; nothing else can read it."""


def check_saved(name: str, version: int, known: int) -> None:
    """Raise UnknownSavedVersion, unless a group was saved in the version that this code knows.

    A decoder ignores fields that it does not know: what newer code wrote would be lost silently.
    """
    if version != known:
        raise UnknownSavedVersion(
            f"Group {name} was saved with version {version}, this code knows {known}: "
            "start the code that wrote it."
        )


class Machine(Protocol):
    """A kind of group. Groups are frozen values of the kind's own type, here `Any`."""

    #: What rows of the shard, saved groups and history call it.
    KIND: str
    HANDLERS: dict[type[rq.Request], Handler]
    #: Judges that other topics exist, or have other counts; None: topics concern its members only.
    topics_changed: Callable[[Any, Collection[str]], None] | None

    def wishes(self, group: Any, /) -> msgspec.Raw:
        """What a group wants of the topics, for its row; by its generation alone.

        NO_WISHES: no change of topics concerns it. UNKNOWN_WISHES: any change may.
        """

    def concerned(self, changed: Collection[str], /) -> Callable[[msgspec.Raw], bool]:
        """Whether a change of these topics may concern a group, by what `wishes` gave for it."""

    def step(self, name: str, group: Any, at: At, around: Surroundings, /) -> Step[Any]:
        """A step's step, of a group or of none."""

    def adopt(self, group: AnyGroup, at: At) -> Any:
        """An empty group of another kind as one of this kind."""

    def decode(self, value: bytes | memoryview, /) -> Any:
        """From the shard's blob."""

    def encode(self, group: Any, /) -> bytes:
        """To the shard's blob; equal groups, equal bytes."""

    def decode_saved(self, value: bytes) -> Any:
        """From `coord.groups`. Raises UnknownSavedVersion, msgspec.MsgspecError."""

    def encode_saved(self, group: Any, /) -> bytes:
        """To `coord.groups`."""

    def size_bytes(self, group: Any, /) -> int:
        """Upper bound of what it has in the shard's blob beside its offsets; by its value alone."""

    def known_topics(self, group: Any, /) -> Mapping[str, int]:
        """Topics whose partition counts the group's state tells, for a shard that lost its own."""

    def check(self, group: Any) -> None:
        """Raise BrokenInvariant when the group contradicts itself."""

    def next_due(self, group: Any, heard: Mapping[str, int]) -> Due:
        """Its earliest deadline."""

    def fire(self, step: Any, due: Any) -> None:
        """Do what follows from a deadline."""

    def cover(self, group: Any, published: int, clock_ms: int) -> tuple[Any, list[str]]:
        """Start what waited for outputs to be visible; and the members heard of by that."""

    def uncovered(self, group: Any) -> tuple[int, int] | None:
        """The lowest and highest record that waits for a covering tick."""

    def restart(self, group: Any, clock_ms: int) -> Any:
        """Give everything that runs its full time again."""

    def quiet_generation(self, group: Any) -> int:
        """The generation whose heartbeats need no judging; NO_GENERATION, or ANY_GENERATION."""

    def shortest_timeout_ms(self, group: Any) -> int:
        """The shortest session or rebalance timeout of anybody waited for; 0: nobody (rule 1)."""

    def instances(self, group: Any) -> dict[str, str]:
        """Instance id of each static member to its member id."""

    def reply_partitions(self, group: Any) -> list[int]:
        """Where its members read answers."""


#: nil in a row: not known, so the group is decoded to find out.
UNKNOWN_WISHES: Final = msgspec.Raw(b"\xc0")
#: false in a row: topics do not concern the group.
NO_WISHES: Final = msgspec.Raw(b"\xc2")

#: No heartbeat is accepted without judging it.
NO_GENERATION = -1
#: A live member's heartbeats are, whatever generation they name (rule 13).
ANY_GENERATION = -2
