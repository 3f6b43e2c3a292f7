"""Which batch may be written, which is skipped, which must stop the job."""

import msgspec
import pytest

from coordlib.core.engine.effects import Output
from coordlib.core.wire.stored import Layout, ShardPosition, decode_marker
from coordlib.errors import ReplayDiffers, StartRefused
from coordlib.job.batch import Batch, BatchReport
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import groups
from coordlib.job.progress import check_identity, is_repeat, next_marker
from tests.tools.core import Status

PREFIX = "coord"
PLANE = groups(PREFIX)
INPUTS = PLANE.inputs
IDENTITY = Identity(checkpoint="one", prefix=PREFIX, shards=2, incarnation="abcdefgh")
LAYOUT = Layout(shards=2, reply_partitions=4, topic_ids={"coord.requests": "abcdefghijkl"})


def batch(number: int, first: int = 0, last: int = 9, value: bytes = b"x") -> Batch:
    position = ShardPosition(clock_ms=1, previous_ms=1, offsets={"r": last}, published=-1)
    status = Status(shard=1, position=position, cap_ms=1, has_deadline=False, owed=-1)
    report = BatchReport(status=status, ranges={"r": (first, last)}, state_bytes=1)
    return Batch(number=number, outputs=[Output("responses", 0, b"", value)], reports=[report])


def marker_of(done: Batch, identity: Identity = IDENTITY):
    return next_marker(None, done, identity, INPUTS)


def test_the_first_batch_of_new_topics_is_written():
    assert not is_repeat(None, batch(0), IDENTITY, INPUTS)


def test_the_next_batch_is_written():
    assert not is_repeat(marker_of(batch(4)), batch(5, 10, 12), IDENTITY, INPUTS)


def test_a_committed_batch_that_runs_again_is_skipped():
    """The driver died between Kafka's commit and Spark's."""
    assert is_repeat(marker_of(batch(4)), batch(4), IDENTITY, INPUTS)


def test_a_repeat_with_other_outputs_stops_the_job():
    """Something in the fold was not deterministic: better no answer than two."""
    with pytest.raises(ReplayDiffers):
        is_repeat(marker_of(batch(4)), batch(4, value=b"y"), IDENTITY, INPUTS)


def test_a_repeat_that_was_taken_over_is_skipped():
    """Other code wrote it: what it wrote stands, and this code goes on from there."""
    assert is_repeat(marker_of(batch(4)), batch(4, value=b"y"), IDENTITY, INPUTS, taken_over=4)
    with pytest.raises(ReplayDiffers, match="Batch 4 is committed"):
        is_repeat(marker_of(batch(4)), batch(4, value=b"y"), IDENTITY, INPUTS, taken_over=3)


@pytest.mark.parametrize("number", [0, 3, 6, 40])
def test_a_checkpoint_that_was_copied_back_is_refused(number):
    with pytest.raises(StartRefused):
        is_repeat(marker_of(batch(4)), batch(number), IDENTITY, INPUTS)


def test_the_same_batch_number_with_other_input_is_refused():
    with pytest.raises(StartRefused):
        is_repeat(marker_of(batch(4)), batch(4, 10, 12), IDENTITY, INPUTS)


def test_a_marker_that_vanished_is_refused():
    with pytest.raises(StartRefused):
        is_repeat(None, batch(3), IDENTITY, INPUTS)


def test_a_rebuilt_checkpoint_continues_exactly_the_marker_it_was_built_from():
    old = marker_of(batch(7))
    rebuilt = Identity(
        checkpoint="two", prefix=PREFIX, shards=2, incarnation="abcdefgh", rebuilt_from=old
    )

    assert not is_repeat(old, batch(0, 10, 11), rebuilt, INPUTS)
    with pytest.raises(StartRefused):
        is_repeat(marker_of(batch(8)), batch(0, 10, 11), rebuilt, INPUTS)


def test_markers_keep_the_positions_of_shards_without_input():
    before = next_marker(None, batch(0), IDENTITY, INPUTS)
    other = batch(1)
    status = Status(
        shard=0,
        position=ShardPosition(clock_ms=5, previous_ms=5, offsets={"r": 3}, published=-1),
        cap_ms=1,
        has_deadline=False,
        owed=-1,
    )
    report = BatchReport(status=status, ranges={"r": (0, 3), "o": (2, 2)}, state_bytes=1)
    after = next_marker(
        before, Batch(number=1, outputs=other.outputs, reports=[report]), IDENTITY, INPUTS
    )

    assert after.shards == {"0": status.position, "1": before.shards["1"]}
    assert after.next_offsets == {
        "coord.requests": {"0": 4, "1": 10},
        "coord.offsets": {"0": 3},
    }
    assert after.ranges == {"coord.requests": {"0": (0, 3)}, "coord.offsets": {"0": (2, 2)}}


@pytest.mark.parametrize(
    "identity",
    [
        Identity(checkpoint="one", prefix="other", shards=2, incarnation="abcdefgh"),
        Identity(checkpoint="one", prefix=PREFIX, shards=3, incarnation="abcdefgh"),
        Identity(checkpoint="one", prefix=PREFIX, shards=2, incarnation="zzzzzzzz"),
    ],
)
def test_a_checkpoint_of_other_topics_is_refused(identity):
    with pytest.raises(StartRefused):
        check_identity(identity, None, LAYOUT, PLANE, has_batches=False)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_a_marker_of_other_code_is_refused(version):
    """Its positions could mean something else."""
    written = msgspec.json.encode(msgspec.structs.replace(marker_of(batch(4)), v=version))
    with pytest.raises(msgspec.ValidationError, match=f"version {version}, this code knows 2"):
        decode_marker(written)


def test_a_foreign_marker_is_refused_at_start():
    """Another job took over this prefix while this one was away."""
    other = Identity(checkpoint="other", prefix=PREFIX, shards=2, incarnation="abcdefgh")
    with pytest.raises(StartRefused):
        check_identity(IDENTITY, marker_of(batch(1), other), LAYOUT, PLANE, has_batches=True)


def test_batches_without_a_marker_are_refused_at_start():
    with pytest.raises(StartRefused):
        check_identity(IDENTITY, None, LAYOUT, PLANE, has_batches=True)


def test_a_fresh_checkpoint_on_fresh_topics_is_welcome():
    check_identity(IDENTITY, None, LAYOUT, PLANE, has_batches=False)
