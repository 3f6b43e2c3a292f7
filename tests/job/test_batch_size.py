"""How many records Spark may plan for a batch, by what they weigh."""

import pytest

from coordlib.job.batch import BatchSize, Means, held_bytes_max, means_of, other_shards_bytes

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("mean_bytes", "records"),
    [(0, 50_000), (150, 50_000), (5 * 1024, 50_000), (64 * 1024, 4_096), (MIB, 256)],
)
def test_a_backlog_of_large_records_is_planned_in_smaller_batches(
    mean_bytes: float, records: int
) -> None:
    """A quarter of a worker of 1 GiB: 50,000 heartbeats fit, 50,000 records of 1 MiB do not."""
    assert BatchSize(50_000, GIB, Means(mean_bytes)).records == records


def test_a_worker_holds_twice_what_is_planned() -> None:
    """A mean size is no bound: some batches are heavier than it."""
    assert held_bytes_max(GIB) == 512 * MIB


@pytest.mark.parametrize("memory_gib", [4, 16, 1_024])
def test_spark_can_hand_over_what_is_planned(memory_gib: int) -> None:
    """Workers of 16 GiB. All records may be of one shard, and Spark hands over 2 GiB of a shard at
    most: a batch of 4 GiB failed in Java, at every restart again."""
    assert BatchSize(50_000, memory_gib * GIB, Means(MIB)).records == 1_024


def test_at_least_one_record_is_planned() -> None:
    """A worker that cannot hold even one record is told so by its own count."""
    assert BatchSize(50_000, 1024, Means(MIB)).records == 1


def test_large_records_that_come_while_the_job_runs_lower_the_bound_at_once() -> None:
    """A client begins to write 1 MiB at a time: if the job pauses, the next batch has all of it."""
    size = BatchSize(50_000, GIB)

    size.batch_ended(100, 100 * MIB)

    assert size.next(now_s=1.0) == 256


def test_one_large_request_among_few_does_not() -> None:
    """A JoinGroup of 1 MiB in an otherwise silent shard: a new query would cost answers."""
    size = BatchSize(50_000, GIB)

    size.batch_ended(3, MIB)

    assert size.next(now_s=1.0) == 50_000


def test_the_bound_rises_again_after_a_minute_without_large_records() -> None:
    """The backlog is gone: with 256 records a batch, heartbeats would pile up."""
    size = BatchSize(50_000, GIB, Means(MIB))
    assert size.records == 256
    assert size.next(now_s=59.0) == 256
    assert size.next(now_s=61.0) == 256  # the backlog itself was in this minute
    assert size.next(now_s=120.0) == 256

    assert size.next(now_s=122.0) == 50_000


def test_it_does_not_rise_while_large_records_come() -> None:
    size = BatchSize(50_000, GIB, Means(MIB))
    for minute in range(1, 5):
        size.batch_ended(200, 200 * MIB)

        assert size.next(now_s=61.0 * minute) == 256


def test_a_little_more_or_less_changes_nothing() -> None:
    """Each other bound costs a new query."""
    size = BatchSize(50_000, GIB, Means(32 * 1024))
    assert size.records == 8_192

    size.batch_ended(1_000, 1_000 * 40 * 1024)

    assert size.next(now_s=1.0) == 8_192


def test_large_records_that_come_a_few_at_a_time_lower_the_bound_too() -> None:
    """A fleet writes 28 MiB a second, and each batch has seven of its requests beside a hundred
    heartbeats. If the job stands still for a minute, the next batch has 1.7 GB of them."""
    size = BatchSize(50_000, GIB)

    for _ in range(10):
        size.batch_ended(7, 7 * MIB)
        size.batch_ended(100, 15_000)

    assert 256 <= size.next(now_s=3.0) < 256 * 107 / 7 + 1


def test_a_large_request_now_and_then_does_not() -> None:
    """One in ten seconds: a minute of standing still would bring six of them."""
    size = BatchSize(50_000, GIB)

    for second in range(0, 600, 10):
        size.batch_ended(3, MIB)
        assert size.next(now_s=second) == 50_000


def test_heartbeats_of_before_do_not_hide_a_batch_of_large_requests() -> None:
    """50,000 heartbeats came in parts that told nothing, then one batch of 100 MiB."""
    size = BatchSize(50_000, GIB)

    size.batch_ended(50_000, 7 * MIB)
    size.batch_ended(100, 100 * MIB)

    assert size.next(now_s=1.0) == 256


def test_it_does_not_rise_while_large_requests_come_a_few_at_a_time() -> None:
    """It would fall again at once, and each other bound costs a new query."""
    size = BatchSize(50_000, GIB, Means(MIB))

    for second in range(600):
        size.batch_ended(7, 7 * MIB)
        assert size.next(now_s=second) == 256


# ---- what a batch writes ------------------------------------------------------------------------


def test_a_batch_is_planned_by_what_it_writes_too() -> None:
    """Commits write many times their bytes: 700 of 487 KB, which a worker holds, wrote 4.6 GiB."""
    waiting = means_of({"coord.requests": 150.0, "coord.offsets": 487_000.0}, "coord.requests")

    assert waiting.size == 487_000
    assert waiting.written >= 20 * 487_000
    laptop = BatchSize(50_000, GIB, waiting, collected_bytes=512 * MIB)
    assert laptop.records * waiting.written <= 256 * MIB
    assert BatchSize(50_000, GIB, waiting, collected_bytes=3 * GIB).records > 5 * laptop.records


@pytest.mark.parametrize(("shards", "records"), [(1, 512), (32, 512), (48, 256), (1_000, 128)])
def test_what_shards_may_say_in_any_case_has_room_beside_it(shards: int, records: int) -> None:
    """Of 512 MiB that a laptop's driver collects; a thousand shards need a larger one."""
    beside = other_shards_bytes(shards, shards)
    size = BatchSize(
        50_000, GIB, Means(1, MIB / 2), collected_bytes=512 * MIB, other_shards_bytes=beside
    )

    assert size.records == records
    assert records * MIB // 2 + beside <= 512 * MIB or shards == 1_000


def test_what_the_log_bounds_is_not_planned_for_twice() -> None:
    """A backlog of JoinGroups of 1 MiB: each writes twice its bytes, and what is more must wait."""
    waiting = means_of({"coord.requests": float(MIB), "coord.offsets": 0.0}, "coord.requests")

    assert BatchSize(50_000, GIB, waiting, collected_bytes=3 * GIB).records == 256
    assert means_of({"coord.requests": 0.0}, "coord.requests") == Means()


def test_a_batch_that_wrote_much_lowers_the_bound_at_once() -> None:
    """A few bytes each: by their size alone ten thousand more would fit."""
    size = BatchSize(50_000, GIB, collected_bytes=512 * MIB)

    size.batch_ended(1_000, 100_000, 64 * MIB)

    assert size.next(now_s=1.0) == 4_000


# ---- after a batch that has ended the job --------------------------------------------------------


def minutes(size: BatchSize, number: int, is_committing: bool = True) -> list[int]:
    """What is planned with after each of so many minutes without large records."""
    planned, start_s = [], size._since_s
    for minute in range(1, number + 1):
        if is_committing:
            size.batch_ended(10, 1_500)
        now_s = start_s + 61.0 * minute
        if (records := size.next(now_s)) != size.records:
            size.renewed(records, now_s)
        planned.append(size.records)
    return planned


def test_as_many_as_have_ended_the_job_are_not_planned_again_before_long() -> None:
    """The limit was forgotten after a minute: the rest of the backlog ended the job again."""
    size = BatchSize(50_000, GIB)
    size.limit(60)
    assert size.records == 60

    assert minutes(size, 13) == [60] * 9 + [120, 240, 480, 960]
    assert minutes(size, 9)[-1] == 30_720  # nearly all of the setting: no new query for the rest


def test_the_limit_is_not_raised_where_no_batch_is_committed() -> None:
    """A batch that takes minutes has not gone well yet."""
    size = BatchSize(50_000, GIB)
    size.limit(60)

    assert minutes(size, 30, is_committing=False) == [60] * 30


def test_one_record_of_each_partition_is_no_lasting_limit() -> None:
    """Whatever was too much is through, and heartbeats would pile up."""
    size = BatchSize(50_000, GIB)
    size.limit(1)

    assert minutes(size, 30)[-1] >= 25_000


def test_a_limit_does_not_raise_what_sizes_ask_for() -> None:
    size = BatchSize(50_000, GIB, Means(MIB))
    size.limit(1_000)

    assert minutes(size, 2)[0] == 256
