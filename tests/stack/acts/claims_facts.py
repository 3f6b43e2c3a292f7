"""Facts of a group of claims: from the coordination topic, and from Delta by SQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from coordlib.client.claims.admin import Survey
from coordlib.core.claims.slots import Judgement, Verdict
from tests.stack.acts.claims_verdict import Claimed, Won
from tests.stack.acts.delta import archived

_CLAIMS: Final = """
    SELECT partition, client_id, epoch, since, until, began, ended, first_position, last_position
    FROM claims WHERE group_id = ? AND topic = ? ORDER BY partition, epoch"""
_BEGINS: Final = (Verdict.WON, Verdict.RECLAIMED)


def claims_in_delta(tables: Path, group: str, topic: str) -> list[Claimed]:
    """By partition, in the order of their epochs; none before the first archive batch."""
    return [Claimed(*row) for row in archived(tables, _CLAIMS, group, topic)]


class Log:
    """What a reader folds of a group and a topic, from the coordination topic's beginning."""

    def __init__(self, group: str, topic: str) -> None:
        self._of = (group, topic)
        self.won: set[Won] = set()
        #: Partition -> next offset to read.
        self.positions: dict[int, int] = {}

    def read(self, client: Mapping[str, Any], coordination: str, prefix: str) -> "Log":
        """Raises CannotReach, SetupError."""
        survey = Survey(client, coordination, prefix)
        try:
            survey.read(is_whole=True, on_record=lambda _, __, judged: self._note(judged))
        finally:
            survey.close()
        return self

    def _note(self, judged: Judgement) -> None:
        if judged.key is None or judged.key[:2] != self._of or judged.after is None:
            return
        partition, after = judged.key[2], judged.after
        if judged.verdict in _BEGINS:
            self.won.add((partition, after.epoch, after.client))
        if after.position is not None:
            self.positions[partition] = after.position
