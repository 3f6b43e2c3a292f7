"""What a store's process leaves behind: an id, its logs, and which process had the folder's lock.

A log is kept by topic, partition and topic id: a topic that was deleted and made anew is another.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

#: A topic, and the partition.
Place = tuple[str, int]
#: The same, and the topic's id.
Replica = tuple[str, int, int]


class Entry(NamedTuple):
    """One value, and the leader epoch in which it was appended."""

    epoch: int
    value: int


Log = list[Entry]


@dataclass
class Disk:
    """A folder. `incarnation`: of the newest process that has registered with it."""

    storage: str
    incarnation: int = -1
    #: Whether an operator has said that its broker is gone for ever.
    is_forgotten: bool = False
    logs: dict[Replica, Log] = field(default_factory=dict)

    def log(self, place: Place, topic_id: int) -> Log:
        """What it has of a partition."""
        return self.logs.setdefault((*place, topic_id), [])

    def delete(self, place: Place) -> None:
        """Nothing of a partition is left, of whatever topic of that name."""
        self.logs = {key: log for key, log in self.logs.items() if key[:2] != place}
