"""What an idle prefix pays: what is counted is what transactions add."""

from tests.tools.bench.idle import grown, paid


def test_what_grew_is_told_by_topic() -> None:
    """A topic that is made later has had nothing before."""
    before, after = {"requests": 5, "events": 7}, {"requests": 6, "events": 7, "outbox": 2}

    assert grown(before, after) == {"outbox": 2, "requests": 1}
    assert grown(before, after, "outbox") == {"requests": 1}


def test_only_what_is_more_than_without_transactions_is_paid_for_them() -> None:
    """A job may have its own reasons to write; samples of lag are of all groups that commit."""
    without = {"requests": 3, "batches": 2}

    assert paid(without, {"requests": 2, "batches": 2, "lag": 9}) == {}
    assert paid(without, {"requests": 3, "batches": 3, "outbox": 1}) == {"batches": 1, "outbox": 1}
