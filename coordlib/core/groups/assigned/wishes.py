"""The topics that a group wants, kept beside its head in its row of the shard.

A cluster has many topics, and most changes of them concern few groups. To decode every group for
each of them took 0.09 ms a group. So the row keeps the names and expressions that its members want,
and only groups that a change concerns are decoded and get a new division.

A division has the topics that exist and that a member wants, as far as there is room. So a
change of other topics cannot concern it (INV-15). A topic for which its shard had no room is tried
again at the next division of the group.
"""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from coordlib import limits
from coordlib.core.groups.assigned.group import Group
from coordlib.core.groups.assigned.matches import Expression
from coordlib.core.groups.kind import NO_WISHES, UNKNOWN_WISHES
from coordlib.core.wire.patterns import BadPattern, compile_pattern, resolve

#: The heads of the lists.
FRAME_BYTES: Final = 16


class Wishes(msgspec.Struct, frozen=True, array_like=True):
    """All topics that members of a group want, each once and in order; existing or not."""

    topics: list[str]
    expressions: list[Expression]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Wishes).decode


def of_group(group: Group, /) -> msgspec.Raw:
    """For the group's row. UNKNOWN_WISHES: they are too large to be kept twice."""
    members = group.members.values()
    if not members or group.is_quarantined:
        return NO_WISHES
    named = dict.fromkeys(member.topics for member in members)
    topics = {topic for topics in named for topic in topics}
    expressions = {(m.pattern, m.exclude) for m in members if m.pattern is not None}
    in_order = sorted(expressions, key=lambda each: (each[0], each[1] is not None, each[1] or ""))
    encoded = _encode(Wishes(sorted(topics), in_order))
    is_small = len(encoded) <= limits.WISHES_BYTES_MAX
    return msgspec.Raw(encoded) if is_small else UNKNOWN_WISHES


def size_bytes(group: Group) -> int:
    """An upper bound of the wishes' size in the shard's blob, by the group's value alone."""
    of_all = sum(member.wishes_bytes for member in group.members.values())
    return FRAME_BYTES + min(of_all, limits.WISHES_BYTES_MAX)


def concerned(changed: Collection[str]) -> Callable[[msgspec.Raw], bool]:
    """Whether a change of these topics may concern a group, by the wishes in its row."""
    names = frozenset(changed)
    found: dict[Expression, bool] = {}

    def is_concerned(wishes: msgspec.Raw) -> bool:
        wanted = _decode(wishes)
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
