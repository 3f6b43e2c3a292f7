"""What a Progress proves about reading, so that the end of the log need not be asked for."""

from coordlib.client.kit.reading import KEPT, STEP_MS, Mark, Proofs, Written


def test_a_progress_proves_a_reading_as_of_the_newest_request_that_it_covers() -> None:
    """It was written after that request, so all that could be read at its produce() is before."""
    proofs = Proofs()
    for offset, produced_ms in ((10, 1_000), (11, 2_000), (12, 3_000)):
        proofs.acknowledged(0, offset, Mark(produced_ms))
    assert proofs.progressed(0, 11) == 2_000
    assert proofs.progressed(0, 12) == 3_000


def test_a_progress_that_covers_nothing_new_proves_nothing() -> None:
    """Others' requests move the shard on; they say nothing of when this program asked."""
    proofs = Proofs()
    proofs.acknowledged(0, 10, Mark(1_000))
    assert proofs.progressed(0, 9) is None
    assert proofs.progressed(0, 10) == 1_000
    assert proofs.progressed(0, 50) is None


def test_a_progress_of_another_shard_proves_nothing() -> None:
    """Offsets of different shards have no order."""
    proofs = Proofs()
    proofs.acknowledged(0, 10, Mark(1_000))
    assert proofs.progressed(1, 99) is None


def test_a_crowd_on_one_transport_is_not_kept_request_by_request() -> None:
    """Thousands of members heartbeat over one transport while the job is away for hours."""
    proofs = Proofs()
    for number in range(10 * KEPT):
        proofs.acknowledged(0, number, Mark(number * STEP_MS // 2))
    assert len(proofs._uncovered[0]) == KEPT
    newest = proofs._uncovered[0][-1]
    assert proofs.progressed(0, 10 * KEPT) == newest[1] >= (10 * KEPT - 2) * STEP_MS // 2


def test_a_request_that_stands_behind_all_that_was_known_is_the_newest() -> None:
    """Answers and acknowledgements come in two threads: what was read meanwhile says nothing."""
    proofs = Proofs()
    mark = proofs.mark(0, 1_000)
    proofs.progressed(0, 105)

    assert proofs.acknowledged(0, 100, mark) is Written.NEWEST
    assert proofs.acknowledged(0, 106, proofs.mark(0, 1_000)) is Written.NEWEST
    assert proofs.acknowledged(1, 3, proofs.mark(1, 1_000)) is Written.NEWEST


def test_a_request_below_what_was_read_or_written_shows_that_the_log_was_cut() -> None:
    """INV-105: its offset was judged once, so it is never judged, and no refusal will ever come."""
    for was_read in (False, True):
        proofs = Proofs()
        if was_read:
            proofs.progressed(0, 100)
        else:
            proofs.acknowledged(0, 100, Mark(1_000))
        before = proofs.mark(0, 2_000)

        assert proofs.acknowledged(0, 60, before) is Written.CUT
        assert proofs.acknowledged(0, 61, before) is Written.LOST, "it is told once"
        assert proofs.acknowledged(0, 62, proofs.mark(0, 2_100)) is Written.NEWEST
        assert proofs.progressed(0, 61) is None
        proofs.progressed(0, 130)
        assert proofs.acknowledged(0, 63, proofs.mark(0, 2_200)) is Written.CUT


def test_requests_that_the_job_has_skipped_are_known_by_their_offsets() -> None:
    """A join that was removed unread was waited for without an end: no answer ever comes."""
    proofs = Proofs()
    for number, (shard, offset) in enumerate([(0, 10), (0, 11), (0, 12), (0, 20), (1, 10)]):
        proofs.acknowledged(shard, offset, proofs.mark(shard, 1_000, f"aa-{number}"))
    proofs.acknowledged(0, 21, proofs.mark(0, 1_000))
    proofs.answered("aa-1")
    proofs.acknowledged(1, 11, proofs.mark(1, 1_000, "bb-0"))
    proofs.forget("bb")

    assert proofs.lost(0, 20) == ["aa-0", "aa-2"]
    assert proofs.lost(0, 20) == []
    assert proofs.lost(1, 99) == ["aa-4"]
