"""INV-131: a batch that has ended the job is not run again and again as it is."""

from typing import Any

import pytest

from coordlib.records.stored import Marker
from coordlib.streaming.batch_size import BatchSize
from coordlib.streaming.checkpoint import Ended, Identity, Planned
from coordlib.streaming.plane import groups
from coordlib.streaming.start import _plan_less, ended_with, must_begin_anew, not_committed

PLANE = groups("p")


def identity(checkpoint: str = "one") -> Identity:
    return Identity(checkpoint=checkpoint, prefix="p", shards=2, incarnation="AbCdEfGh")


def marker(batch: int, checkpoint: str = "one") -> Marker:
    return Marker(
        checkpoint=checkpoint, batch=batch, ranges={}, digest="", next_offsets={}, shards={}
    )


class Folder:
    """As much of a checkpoint's folder as decides here."""

    path = "folder"

    def __init__(self, planned: Planned | None = None, ended: Ended | None = None) -> None:
        self._planned, self._ended = planned, ended
        self.known = identity()

    def identity(self) -> Identity:
        return self.known

    def has_batches(self) -> bool:
        return True

    def planned_partitions(self) -> dict[str, set[int]]:
        return {}

    def planned(self, _: Identity) -> Planned | None:
        return self._planned

    def ended(self) -> Ended | None:
        return self._ended

    def write_ended(self, checkpoint: str, batch: int, records: int) -> None:
        self._ended = Ended(checkpoint=checkpoint, batch=batch, records=records)


def folder(planned: Planned | None, ended: Ended | None) -> Any:
    return Folder(planned, ended)


SEVEN = Planned(number=7, records=120)


@pytest.mark.parametrize(
    ("planned", "ended", "newest", "is_anew"),
    [
        # Noted as having ended the job, and not committed.
        (SEVEN, Ended(checkpoint="one", batch=7, records=120), marker(6), True),
        # Its outputs are there: Spark has only not ended it.
        (SEVEN, Ended(checkpoint="one", batch=7, records=120), marker(7), False),
        # A kill: it runs again as it is.
        (SEVEN, None, marker(6), False),
        # Another one had, and was committed since.
        (SEVEN, Ended(checkpoint="one", batch=5, records=120), marker(6), False),
        (SEVEN, Ended(checkpoint="zero", batch=5, records=120), marker(6), False),
        # Nothing is planned.
        (None, Ended(checkpoint="one", batch=7, records=120), marker(6), False),
        # The first batch of a checkpoint that was begun with half as many: still too large.
        (
            Planned(number=0, records=60),
            Ended(checkpoint="zero", batch=7, records=60),
            marker(6, "zero"),
            True,
        ),
        # The very first batch of a prefix.
        (Planned(number=0, records=60), Ended(checkpoint="one", batch=0, records=60), None, True),
    ],
)
def test_which_planned_batch_is_not_run_again(
    planned: Planned | None, ended: Ended | None, newest: Marker | None, is_anew: bool
) -> None:
    """A supervisor starts the job again and again, and each start ended with the same batch."""
    found = folder(planned, ended)

    assert must_begin_anew(found, newest, 2, PLANE) is is_anew
    assert (ended_with(found, identity(), newest) is not None) is is_anew


def test_each_start_plans_half_as_many_down_to_one_of_each_partition() -> None:
    """Whatever is too much for this machine: some number of records is not."""
    found, planned = folder(SEVEN, Ended(checkpoint="one", batch=7, records=120)), []
    newest = marker(6)
    for number in range(1, 9):
        _plan_less(found, found.known, newest)
        records = found.ended().records
        planned.append(records)
        found.known = identity(f"one-{number}")
        # Spark counts from where the topic begins: more than it has, if much was deleted.
        found._planned = Planned(number=0, records=1_000_000)

    assert planned == [60, 30, 15, 7, 3, 1, 1, 1]
    assert not_committed(found, found.known, newest) is not None


def test_a_start_goes_on_with_more_when_smaller_batches_go_well() -> None:
    """The large commits are through: with one record a batch, heartbeats would pile up."""
    size = BatchSize(50_000, 1 << 30)
    size.limit(60)

    assert size.records == 60
    assert size.next(now_s=59.0) == 60
    assert size.next(now_s=61.0) == 50_000
