"""What a run has left, sorted by what it is, and how situations are counted in it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from coordlib.core.wire import api
from coordlib.demo.history import Happened
from tests.tools.simulation.evidence import Asked, Evidence, Told
from tests.tools.simulation.world import GROUP, REPLY_PARTITIONS, World

Answer = dict[str, Any]


class Seen:
    """One run: its world, its topics, and what stands in them by type."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.evidence = Evidence(world.cluster, world.plan.shards, REPLY_PARTITIONS)
        self._counts: dict[object, Mapping[str, int]] = {}

    @cached_property
    def events(self) -> dict[str, list[Told]]:
        """Type -> lines of the coordinator's history."""
        found = defaultdict(list)
        for event in self.evidence.told:
            found[event.type].append(event)
        return found

    @cached_property
    def of_readers(self) -> list[Told]:
        """The coordinator's history of the first group."""
        return [event for event in self.evidence.told if event.group == GROUP]

    @cached_property
    def lines(self) -> dict[str, list[Happened]]:
        """What happened -> lines of the members' history."""
        found = defaultdict(list)
        for line in self.world.history:
            found[line.what].append(line)
        return found

    @cached_property
    def answered(self) -> dict[type[api.Request], list[tuple[Asked, Answer]]]:
        """Type of a request -> requests with each of their answers, positions behind the others."""
        found = defaultdict(list)
        for each in (*self.evidence.asked, *self.evidence.positions):
            for answer in self.evidence.answers.get(each.coordinate, ()):
                found[type(each.request)].append((each, answer))
        return found

    def counts(self, of: Callable[["Seen"], Mapping[str, int]]) -> Mapping[str, int]:
        """What this counts, which is asked once."""
        if of not in self._counts:
            self._counts[of] = of(self)
        return self._counts[of]


#: How often a run has met a situation.
Counting = Callable[[Seen], int]
Situations = Mapping[str, Counting]


def told(
    type_: str, holds: Callable[[Told], object] = lambda _: True, of: str | None = GROUP
) -> Counting:
    """Lines of the coordinator's history, of one group or of all (None)."""

    def count(seen: Seen) -> int:
        found = seen.events.get(type_, ())
        return sum(bool(holds(each)) for each in found if of in (None, each.group))

    return count


def is_one_of(*types: str) -> Callable[[Told], bool]:
    """Whether a line has one of these types."""
    return lambda event: event.type in types


def between(
    opens: str,
    closes: Callable[[Told], bool],
    counts: Callable[[Told], bool],
    holds: Callable[[Told], bool] = lambda _: True,
) -> Counting:
    """Lines of the first group behind one that opens something, until one closes it.

    Args:
        counts: which of them; the one that closes is the last.
        holds: which lines are looked at.
    """

    def count(seen: Seen) -> int:
        times, is_open = 0, False
        for event in filter(holds, seen.of_readers):
            times += is_open and counts(event)
            is_open = event.type == opens or (is_open and not closes(event))
        return times

    return count


def is_refused(answer: Answer) -> bool:
    """Whether a request has changed nothing, for whatever reason."""
    return bool(answer["error"] != "NONE")


def answered(
    types: type[api.Request] | tuple[type[api.Request], ...],
    gives: str | Callable[[Answer], bool],
    by: Callable[[Any], object] = lambda _: True,
    topic: str | None = None,
) -> Counting:
    """Answers to requests of these types: with this error, or as is asked.

    Args:
        by: which requests.
        topic: the input by which they came; None: any.
    """

    def count(seen: Seen) -> int:
        return sum(
            topic in (None, each.topic)
            and (answer["error"] == gives if isinstance(gives, str) else gives(answer))
            and bool(by(each.request))
            for kind, rows in seen.answered.items()
            if issubclass(kind, types)
            for each, answer in rows
        )

    return count


def happened(what: str, holds: Callable[[Happened], object] = lambda _: True) -> Counting:
    """Lines of the members' history."""
    return lambda seen: sum(bool(holds(line)) for line in seen.lines.get(what, ()))


def counted(
    of: Callable[[Seen], Mapping[str, int]], names: Iterable[str] | Mapping[str, str]
) -> dict[str, Counting]:
    """What is counted already; `names`: situation -> the name under which it is, if another."""
    keys = dict(names) if isinstance(names, Mapping) else {name: name for name in names}

    def counting(key: str) -> Counting:
        return lambda seen: seen.counts(of).get(key, 0)

    return {name: counting(key) for name, key in keys.items()}
