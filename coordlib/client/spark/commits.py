"""Commits of one `SparkGroupReader`: written without waiting, and looked at when answered."""

from concurrent.futures import Future

import structlog

from coordlib.client.groups.topic_ids import COMMITS_MS
from coordlib.client.kit import signals as sg
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.spark.run import Run
from coordlib.client.spark.tables import Tables
from coordlib.client.spark.writes import Writes

_log = structlog.get_logger()
Offsets = dict[TopicPartition, int]


class Commits:
    """Commits that were written to the log and have no answer yet.

    Args:
        group: named in errors and logs.
        tables: commits offsets, with the tables that the group has written to.
        writes: commits the batches of runs in the place of this; None: this does.
    """

    def __init__(
        self,
        group: str,
        tables: Tables,
        writes: Writes | None = None,
    ) -> None:
        self._group, self._tables, self._writes = group, tables, writes
        self._open: list[tuple[Run | None, Offsets, Future[sg.Answer]]] = []

    def say(self, run: Run | None, offsets: Offsets) -> None:
        """Commit positions of `run`; None: they are the beginnings of partitions.

        Those of topics that were made anew are left out: what was read may be of either topic.
        """
        if not offsets or (run is not None and self._writes is not None):
            return
        anew = self._tables.ids.made_anew({each.topic for each in offsets}, COMMITS_MS)
        if good := {each: at for each, at in offsets.items() if each.topic not in anew}:
            if run is not None:
                run.said(good)
            self._open.append((run, good, self._tables.commit(good)))

    def are_others(self, run: Run) -> bool:
        """Whether others decide about a run's partitions, as it has found out by writing."""
        return self._writes is not None and self._writes.has_ended(run.share)

    def hear(self, now: Run | None) -> bool:
        """Take the answers that have come; return whether all beginnings among them were accepted.

        The refused offsets of a run are written again with its next commit.

        Args:
            now: the run that reads.
        """
        if self._writes is not None:
            self._writes.hear(None if now is None else now.share)
        answered = [each for each in self._open if each[2].done()]
        self._open = [each for each in self._open if not each[2].done()]
        is_well = True
        for run, offsets, future in answered:
            answer = future.result(0)
            refused = offsets
            if answer.error is None:
                rows = {TopicPartition(row.topic, row.partition) for row in answer.failed}
                refused = {each: at for each, at in offsets.items() if each in rows}
            if refused:
                why = answer.error or ", ".join(sorted({row.error for row in answer.failed}))
                _log.warning("not committed", group=self._group, error=str(why))
                if run is not None:
                    run.refused(refused)
                is_well = is_well and run is not None
        return is_well
