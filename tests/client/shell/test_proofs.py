"""What a Progress proves about reading, so that the end of the log need not be asked for."""

from coordlib.client.shell.proofs import KEPT, STEP_MS, Proofs


def test_a_progress_proves_a_reading_as_of_the_newest_request_that_it_covers() -> None:
    """It was written after that request, so all that could be read at its produce() is before."""
    proofs = Proofs()
    for offset, produced_ms in ((10, 1_000), (11, 2_000), (12, 3_000)):
        proofs.acknowledged(0, offset, produced_ms)
    assert proofs.progressed(0, 11) == 2_000
    assert proofs.progressed(0, 12) == 3_000


def test_a_progress_that_covers_nothing_new_proves_nothing() -> None:
    """Others' requests move the shard on; they say nothing of when this program asked."""
    proofs = Proofs()
    proofs.acknowledged(0, 10, 1_000)
    assert proofs.progressed(0, 9) is None
    assert proofs.progressed(0, 10) == 1_000
    assert proofs.progressed(0, 50) is None


def test_a_progress_of_another_shard_proves_nothing() -> None:
    """Offsets of different shards have no order."""
    proofs = Proofs()
    proofs.acknowledged(0, 10, 1_000)
    assert proofs.progressed(1, 99) is None


def test_a_crowd_on_one_transport_is_not_kept_request_by_request() -> None:
    """Thousands of members heartbeat over one transport while the job is away for hours."""
    proofs = Proofs()
    for number in range(10 * KEPT):
        proofs.acknowledged(0, number, number * STEP_MS // 2)
    assert len(proofs._uncovered[0]) == KEPT
    newest = proofs._uncovered[0][-1]
    assert proofs.progressed(0, 10 * KEPT) == newest[1] >= (10 * KEPT - 2) * STEP_MS // 2
