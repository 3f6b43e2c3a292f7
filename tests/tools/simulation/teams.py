"""A group with members: how it is called, who is in it, and what has disturbed it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from tests.tools.simulation.program import Program
from tests.tools.simulation.wishes import Wish


@dataclass
class Team:
    """All programs of one group, those that are dead among them."""

    name: str
    #: Who divided at first: the members, or the coordinator.
    kind: str
    #: What the names of its programs begin with.
    letter: str = "m"
    #: What programs that start now take part in: it changes when all have left.
    protocol: str = ""
    #: What all its members want, and by which strategy it is divided; None: each draws its own.
    wish: Wish | None = None
    strategy: str | None = None
    programs: list[Program] = field(default_factory=list)
    perturbations: int = 0
    #: The topics that somebody wanted when it was last at rest.
    read_at_rest: frozenset[str] = frozenset()
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.protocol = self.protocol or self.kind

    def new_name(self) -> str:
        return f"{self.letter}{next(self._numbers)}"

    @property
    def living(self) -> list[Program]:
        """Programs whose user has not ended them."""
        return [each for each in self.programs if each.is_alive and not each.is_done]
