"""Topics of the archive that have lost their ends, and `--accept-loss`; without Spark."""

import pytest
from structlog.testing import capture_logs

from coordlib.errors import StartRefused
from coordlib.history.archive import refuse
from coordlib.kafka.logs import Lost, Place, Why

CUT = [Lost(Place("events", 0), 4, 9, Why.SHORTER)]


def test_a_cut_is_refused_until_it_is_accepted() -> None:
    with capture_logs() as logged, pytest.raises(StartRefused, match="--accept-loss"):
        refuse(CUT, "p", accepts_loss=False)
    with capture_logs() as also:
        refuse(CUT, "p", accepts_loss=True)
        refuse([], "p", accepts_loss=False)

    assert logged + also == []


def test_a_flag_that_was_left_in_a_unit_file_is_told_of() -> None:
    """It would accept every later cut, and nobody would be asked."""
    with capture_logs() as logged:
        refuse([], "p", accepts_loss=True)

    (line,) = logged
    assert line["log_level"] == "error"
    assert "take it away" in line["hint"]
