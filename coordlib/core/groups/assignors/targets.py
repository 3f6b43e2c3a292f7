"""What members of a KIP-848 group have so far, for the uniform assignor to change."""

from collections.abc import Mapping

from coordlib.core.groups.assignors.model import Assignments, Member, java_order


class Targets:
    """The last target assignment, without what is not wanted any more or does not exist."""

    def __init__(self, members: Mapping[str, Member], partitions: Mapping[str, int]) -> None:
        self.partitions, self._members = partitions, members
        #: Members by id, dynamic or not.
        self.order = sorted(members, key=java_order)
        #: Member -> topic by name -> its partitions, ascending.
        self.owned: dict[str, dict[str, list[int]]] = {}
        self._held: dict[str, set[int]] = {}
        for name in self.order:
            member = members[name]
            topics = sorted(frozenset(member.topics).intersection(member.owned), key=java_order)
            self.owned[name] = {t: self._claim(t, frozenset(member.owned[t])) for t in topics}

    def _claim(self, topic: str, owned: frozenset[int]) -> list[int]:
        """What of this exists and is not held yet. In a target nothing stands twice."""
        held, count = self._held.setdefault(topic, set()), self.partitions[topic]
        claimed = sorted(each for each in owned - held if 0 <= each < count)
        held.update(claimed)
        return claimed

    def free(self, topic: str) -> list[int]:
        """The partitions that had no owner, ascending."""
        held = self._held.get(topic, set())
        return [each for each in range(self.partitions[topic]) if each not in held]

    def answer(self) -> Assignments:
        """The new target."""
        return {
            name: {t: tuple(sorted(some)) for t, some in sorted(self.owned[name].items()) if some}
            for name in self._members
        }
