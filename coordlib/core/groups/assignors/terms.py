"""Members of a server-assigned group in the terms of Kafka's assignors: their parts are used."""

from collections.abc import Iterator, Mapping

from coordlib.core.groups.assignors.model import Member
from coordlib.core.groups.assignors.server_model import Subscriber


def in_assignors_terms(members: Mapping[str, Subscriber]) -> dict[str, Member]:
    """The same members, in the same order, dynamic and in no rack: so they stand by member id."""
    return {
        name: Member(topics=member.topics, owned=member.share) for name, member in members.items()
    }


def wanted_by(members: Mapping[str, Subscriber]) -> Iterator[frozenset[str]]:
    """What each member wants, in their order; to be asked for single topics, and never iterated.

    Those who want the same share one set: a thousand members may want ten thousand topics each.
    """
    known: dict[tuple[str, ...], frozenset[str]] = {}
    for member in members.values():
        if member.topics not in known:
            known[member.topics] = frozenset(member.topics)
        yield known[member.topics]


def alike(members: Mapping[str, Subscriber]) -> dict[str, Subscriber] | None:
    """Those who want anything, if all of them want the same topics; None if they do not.

    Who wants nothing, say since its pattern matches no topic yet, gets nothing either way, and
    does not make the others' subscriptions differ.
    """
    wanting = {name: member for name, member in members.items() if member.topics}
    topics = [member.topics for member in wanting.values()]
    return None if any(some != topics[0] for some in topics) else wanting
