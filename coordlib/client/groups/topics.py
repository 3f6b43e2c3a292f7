"""The topics of a subscription by the newest metadata, and the topics that a leader watches.

As in confluent-kafka, a topic that begins with `^` is a regular expression. Every member resolves
its own expressions and names the topics that it found in its JoinGroup; the leader watches the
partition counts of all members' topics. Either joins again when it sees a difference.
Pure: metadata come in as counts of all topics.
"""

import re
from collections.abc import Mapping
from typing import Final

from coordlib.client.kit.asks import backoff_ms
from coordlib.core.wire.own_topics import is_users
from coordlib.errors import SetupError

#: How often a leader looks while a topic of its group is missing: as the job does for others.
MISSING_REFRESH_MS: Final = 5_000


class Topics:
    """One member's subscription."""

    def __init__(self, own: frozenset[str], refresh_ms: int, rest_ms: int = 0) -> None:
        self._own, self._refresh_ms, self._rest_ms = own, refresh_ms, rest_ms
        #: Until when this leader gathers changes, because it has just assigned.  # INV-85
        self._rests_until_ms = 0
        self._plain: tuple[str, ...] = ()
        self._patterns: tuple[re.Pattern[str], ...] = ()
        #: The topics to join for; None: not subscribed, or expressions are not resolved yet.
        self.names: tuple[str, ...] | None = None
        #: The counts of all members' topics that the leader assigned by; 0: no such topic.
        #: None: this member does not lead.
        self._watched: dict[str, int] | None = None
        #: When metadata last came, when that look began, and when this member last assigned.
        self._looked_ms, self._began_ms, self._led_ms = 0, 0, 0
        self._attempt = 0
        #: When to look at once, because of a new subscription or a failure.
        self._soon_ms: int | None = None
        self._is_looking = False

    def subscribe(self, now_ms: int, wanted: tuple[str, ...]) -> None:
        """Replace the topics. Raises SetupError: an invalid expression."""
        patterns = tuple(_compiled(each) for each in wanted if each.startswith("^"))
        self._plain = tuple(each for each in wanted if not each.startswith("^"))
        self._patterns = patterns
        self.names = self._plain if not patterns else None
        self._soon_ms = now_ms if patterns else None

    def unsubscribe(self) -> None:
        self._plain, self._patterns, self.names, self._watched = (), (), None, None

    def lead(self, now_ms: int, counts: Mapping[str, int], topics: tuple[str, ...]) -> None:
        """This member has assigned these topics of the group, by these counts."""
        self._watched = {topic: counts.get(topic, 0) for topic in topics}
        self._looked_ms = self._led_ms = now_ms
        self._rests_until_ms = now_ms + self._rest_ms

    def look_soon(self, now_ms: int) -> None:
        """Look soon: the counts are older than this member; a former leader read them."""
        self._soon_ms = self._rests_until_ms = now_ms

    def follow(self) -> None:
        """Stop watching the group's topics: another member leads."""
        self._watched = None

    def due_ms(self) -> int | None:
        """When to look at the metadata; None: not before something else happens."""
        if self._is_looking:
            return None
        if self._soon_ms is not None:
            return self._soon_ms
        if self._refresh_ms <= 0 or not (self._patterns or self._watched):
            return None
        is_short = self._watched is not None and 0 in self._watched.values()
        refresh_ms = min(self._refresh_ms, MISSING_REFRESH_MS) if is_short else self._refresh_ms
        return self._looked_ms + refresh_ms

    def begin_look(self, now_ms: int) -> bool:
        """Whether it is time to look; if so, a look is under way until `seen` or `not_seen`."""
        due_ms = self.due_ms()
        if due_ms is None or now_ms < due_ms:
            return False
        self._is_looking, self._soon_ms, self._began_ms = True, None, now_ms
        return True

    def not_seen(self, now_ms: int) -> None:
        """The look failed: again, later and later."""
        self._is_looking = False
        self._attempt += 1
        self._soon_ms = now_ms + backoff_ms(self._attempt)

    def seen(self, now_ms: int, counts: Mapping[str, int]) -> bool:
        """Take all topics with their partition counts; return whether they ask for a rejoin."""
        self._is_looking, self._attempt, self._looked_ms = False, 0, now_ms
        if now_ms < self._rests_until_ms and self._are_other(counts):
            self._soon_ms = self._rests_until_ms  # with all that changes until then
            return False
        if self._patterns:
            self.names = self._resolved(counts)
        if self._watched is None or self._began_ms < self._led_ms:
            return False  # nothing to compare with, or newer than what was seen
        changed = any(counts.get(topic, 0) != was for topic, was in self._watched.items())
        if changed:
            self._watched = None  # reported once; the next leader assigns by newer counts
        return changed

    def _are_other(self, counts: Mapping[str, int]) -> bool:
        """Whether this leader would make its group rebalance for these topics."""
        if self._watched is None or self.names is None:
            return False
        names = self._resolved(counts) if self._patterns else self.names
        is_changed = any(counts.get(topic, 0) != was for topic, was in self._watched.items())
        return is_changed or names != self.names

    def _resolved(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        found = [
            topic
            for topic in sorted(counts)
            if is_users(topic, self._own)
            and any(pattern.search(topic) for pattern in self._patterns)
        ]
        return tuple(dict.fromkeys([*self._plain, *found]))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise SetupError(f"This is no regular expression: {problem}", repr(pattern)) from problem
