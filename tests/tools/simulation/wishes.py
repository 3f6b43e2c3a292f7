"""What members want: topics by name, existing or not, and expressions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from coordlib.client import AssignedMember

#: What the job's own topics begin with: no expression means them, whatever it matches.
OWN = "coord."
#: Everything that there is, by an expression.
ANYTHING = ".*"


@dataclass(frozen=True)
class Wish:
    """One subscription. Expressions are of the whole name, as in Subscribe."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    exclude: str | None = None

    def among(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Which of these it means. Python's own expressions are asked, and not the core's."""
        return tuple(sorted(topic for topic in topics if self._means(topic)))

    def _means(self, topic: str) -> bool:
        if topic in self.names:
            return True
        if self.pattern is None or topic.startswith(OWN):
            return False
        is_matched = re.fullmatch(self.pattern, topic) is not None
        return is_matched and not (self.exclude and re.fullmatch(self.exclude, topic))

    def words(self) -> list[str]:
        """The same for `subscribe` of a consumer; without `exclude`, which that cannot say."""
        return [*self.names, *([f"^(?:{self.pattern})$"] if self.pattern else [])]

    def tell(self, member: AssignedMember) -> None:
        """The user says it."""
        member.subscribe(self.names, self.pattern, self.exclude)


def draw(luck: Random, topics: Sequence[str]) -> Wish:
    """A wish for some of these or for all; there may be one among them that nobody has made yet."""
    some = tuple(sorted(luck.sample(topics, luck.randint(1, len(topics)))))
    dice = luck.random()
    if dice < 0.4:
        return Wish(tuple(topics))
    if dice < 0.6:
        return Wish(some)
    if dice < 0.7:
        return Wish(pattern="[a-z]*s")
    if dice < 0.8:
        return Wish(pattern="|".join(some))
    return Wish(names=some, pattern="[a-z]*s", exclude=luck.choice(topics))


def draw_classic(luck: Random, topics: Sequence[str]) -> Wish:
    """The same for a member of a classic group, whose client matches by itself."""
    some = tuple(sorted(luck.sample(topics, luck.randint(1, len(topics)))))
    dice = luck.random()
    if dice < 0.3:
        return Wish(tuple(topics))
    if dice < 0.5:
        return Wish(some)
    if dice < 0.7:
        return Wish(pattern=ANYTHING)
    if dice < 0.85:
        return Wish(pattern="[a-z]*s")
    return Wish(names=some[:1], pattern="|".join(some))
