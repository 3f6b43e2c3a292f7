"""What members of a group subscribe to: the topics that expressions match, and an index of a group.

A shard is read from its blob for every batch, and a join changes no topic. To match every
expression with every topic again, a hundred of them and 20,000 topics, takes the processor two
seconds. So a process keeps the matches of each expression, and matches only topics that came or
went since it was asked last. The shards of a process share the cache: they have the same topics.
The cache is no state. An answer depends on its arguments alone: an empty cache gives the same,
later. It is bounded, and evicted matches are computed again. A process folds one shard at a time,
so there is no lock here.

A cluster has many topics, and most changes of them concern few groups. To decode every group for
each of them took 0.09 ms a group. So the row keeps the names and expressions that its members want,
beside the group's head, and only groups that a change concerns are decoded and get a new division.
A division has the topics that exist and that a member wants, as far as there is room. So a
change of other topics cannot concern it (INV-15). A topic for which its shard had no room is tried
again at the next division of the group.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from coordlib import limits
from coordlib.core.groups.assigned.group import Group
from coordlib.core.groups.kind import NO_TOPICS, UNKNOWN_TOPICS
from coordlib.core.wire.topics import BadPattern, compile_pattern, resolve

#: A pattern, and what is excluded of what it matches.
Expression = tuple[str, str | None]

#: Machine words of all entries: 32 MiB. The names themselves are shared, and are at most twice as
#: many as a shard may have.
WORDS_MAX: Final = 1 << 22
#: Of an expression that matches nothing: its two texts may have 8 KiB.
EXPRESSION_WORDS: Final = 1 << 10


class _Found(NamedTuple):
    """What an expression matched, and how many changes of topics there had been by then."""

    names: tuple[str, ...]
    changes: int

    @property
    def words(self) -> int:
        return EXPRESSION_WORDS + len(self.names)


class Matches:
    """The cache of a process. Its answers equal those of `patterns.resolve` for the same topics."""

    def __init__(self, words_max: int = WORDS_MAX) -> None:
        self._words_max = words_max
        #: The topics of the newest question.
        self._names: frozenset[str] = frozenset()
        #: The newest changes of them, in order: each the name of one that came or went.
        self._changes: list[str] = []
        #: How many older changes are forgotten.
        self._forgotten = 0
        #: By expression, the one asked for last at the end. Each has seen all changes that are
        #: forgotten, so every name in it is among the topics or the changes.
        self._found: dict[Expression, _Found] = {}
        #: Words that `_found` takes; at most `words_max`.
        self._words = 0

    @property
    def words(self) -> int:
        """How many machine words are in use; names are shared and not counted."""
        return self._words

    @property
    def changes_kept(self) -> int:
        """How many changes of topics are remembered; at most TOPICS_MAX."""
        return len(self._changes)

    def resolve(
        self, expressions: Iterable[Expression], topics: Mapping[str, object]
    ) -> dict[Expression, tuple[str, ...]]:
        """The topics that each expression wants, as `patterns.resolve` gives them.

        Raises:
            BadPattern: one of them would not have been accepted.
        """
        self._look(topics)
        return {each: self._find(each) for each in expressions}

    def _look(self, topics: Mapping[str, object]) -> None:
        """Note what came and went since the last question."""
        if len(topics) == len(self._names) and self._names.issuperset(topics):
            return
        names = frozenset(topics)
        gone, come = self._names - names, names - self._names
        changes = [*self._changes, *sorted(gone), *sorted(come)]
        surplus = 0
        if len(changes) > limits.TOPICS_MAX:
            surplus = len(changes) - limits.TOPICS_MAX // 2
        # Made of the old ones: a name is in memory once, wherever it came from.
        topics_now, newest = (self._names - gone) | come, changes[surplus:]
        # At once: whatever failed above, a group is set aside for it and the process goes on.
        self._names, self._changes = topics_now, newest
        self._forgotten += surplus
        for each in [e for e, found in self._found.items() if found.changes < self._forgotten]:
            self._drop(each)

    def _find(self, expression: Expression) -> tuple[str, ...]:
        older = self._found.get(expression)
        now = self._forgotten + len(self._changes)
        if older is None:
            found = _Found(_resolve(expression, self._names), now)
        elif older.changes == now:
            found = older
        else:
            found = _Found(self._caught_up(expression, older), now)
        self._keep(expression, found)
        return found.names

    def _caught_up(self, expression: Expression, older: _Found) -> tuple[str, ...]:
        """Its matches now, from the topics that came or went since."""
        changed = dict.fromkeys(self._changes[older.changes - self._forgotten :])
        concerned = _resolve(expression, changed)
        if not concerned:
            return older.names
        rest = set(older.names).difference(concerned)
        return tuple(sorted(rest.union(name for name in concerned if name in self._names)))

    def _keep(self, expression: Expression, found: _Found) -> None:
        self._drop(expression)
        self._found[expression] = found
        self._words += found.words
        while self._words > self._words_max:
            self._drop(next(iter(self._found)))

    def _drop(self, expression: Expression) -> None:
        found = self._found.pop(expression, None)
        self._words -= found.words if found is not None else 0


def _resolve(expression: Expression, names: Iterable[str]) -> tuple[str, ...]:
    pattern, exclude = expression
    without = compile_pattern(exclude) if exclude is not None else None
    return resolve(compile_pattern(pattern), without, names)


#: Of this process.
MATCHES: Final = Matches()


class SubscriptionIndex(msgspec.Struct, frozen=True, array_like=True):
    """All topics that members of a group want, each once and in order; existing or not."""

    topics: list[str]
    expressions: list[Expression]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(SubscriptionIndex).decode


def index_of(group: Group, /) -> msgspec.Raw:
    """For the group's row. UNKNOWN_TOPICS: they are too large to be kept twice."""
    members = group.members.values()
    if not members or group.is_quarantined:
        return NO_TOPICS
    named = dict.fromkeys(member.topics for member in members)
    topics = {topic for topics in named for topic in topics}
    expressions = {(m.pattern, m.exclude) for m in members if m.pattern is not None}
    in_order = sorted(expressions, key=lambda each: (each[0], each[1] is not None, each[1] or ""))
    encoded = _encode(SubscriptionIndex(sorted(topics), in_order))
    is_small = len(encoded) <= limits.SUBSCRIPTION_INDEX_BYTES_MAX
    return msgspec.Raw(encoded) if is_small else UNKNOWN_TOPICS


def concerned(changed: Collection[str]) -> Callable[[msgspec.Raw], bool]:
    """Whether a change of these topics may concern a group, by the wishes in its row."""
    names = frozenset(changed)
    found: dict[Expression, bool] = {}

    def is_concerned(index: msgspec.Raw) -> bool:
        wanted = _decode(index)
        if not names.isdisjoint(wanted.topics):
            return True
        for each in wanted.expressions:
            if each not in found:  # groups share expressions, and a listing may have 20,000 names
                found[each] = _wants_one_of(each, changed)
            if found[each]:
                return True
        return False

    return is_concerned


def _wants_one_of(expression: Expression, names: Collection[str]) -> bool:
    pattern, exclude = expression
    try:
        without = compile_pattern(exclude) if exclude is not None else None
        return bool(resolve(compile_pattern(pattern), without, names))
    except BadPattern:  # other code accepted it: only the group's own step fails by it
        return True
