"""Two pipelines beside each other: the groups' gives what it gave, and they share nothing."""

import hashlib

import pytest
from pyspark import cloudpickle

from coordlib.core.wire import codec
from coordlib.core.wire.topics import CLAIMS_OUTPUTS, own_topics
from coordlib.errors import SetupError
from coordlib.job.batch import assemble, judge_readable
from coordlib.job.checkpoint import Identity
from coordlib.job.pipelines import claims, groups
from coordlib.job.progress import next_marker
from tests.history.claims_life import PLANE, a_life_of_claims
from tests.history.claims_life import SETTINGS as OF_CLAIMS
from tests.tools.driving import SETTINGS, Conversation, join

GROUPS = groups("coord")
IDENTITY = Identity(checkpoint="c", prefix="coord", shards=1, incarnation="i")
#: SHA-256 of state, outputs and marker of twelve joins, by the code that had one pipeline. Whoever
#: changes one of them changes what checkpoints and topics hold: see INVARIANTS, "What is stored
#: outlives the code".
OF_BEFORE = (
    "e349dd0d1d2825a1311eb41dc55b2ff2851832dbc7a3e1b5191d9743aef63860",
    "b6ae806f7081549ae2aafecb90d5aed85ae46e40747931375751228d9ee4bd62",
    "ce8c6a8d31a59a8831857a7c5afba0d6274d7d7a6a42b530ae7d5b4cad742d88",
)


def test_the_groups_plane_gives_the_bytes_that_it_gave() -> None:
    """A job goes over to code with two pipelines in the middle of a batch: it runs again, and the
    marker must know it.  # INV-34"""
    talk = Conversation()
    for number in range(12):
        talk.send(join(f"c{number}", group=f"g{number % 5}"))

    blob, rows = judge_readable(GROUPS.fold, None, talk.log, SETTINGS)
    batch = assemble(7, rows)
    marker = next_marker(None, batch, IDENTITY, GROUPS.inputs)

    found = (hashlib.sha256(blob), batch.digest(), hashlib.sha256(codec.encode(marker)))
    assert (found[0].hexdigest(), found[1], found[2].hexdigest()) == OF_BEFORE
    assert (GROUPS.query_name, GROUPS.progress) == ("coord-coordinator", "coord.progress")
    assert GROUPS.inputs == {"r": "coord.requests", "o": "coord.offsets"}
    assert GROUPS.restored_from == (
        *("groups", "committed", "transactions", "clusters", "metadata", "outbox"),
    )


def test_the_planes_of_a_prefix_share_no_topic_and_no_name() -> None:
    """Two queries in one application; a transaction of one must not end that of the other."""
    followed = claims("coord", "__marshal")

    assert followed.inputs == {"m": "__marshal"}
    assert followed.query_name == "coord.claims-coordinator" != GROUPS.query_name
    assert followed.progress == "coord.claims.progress" != GROUPS.progress
    assert followed.pool != GROUPS.pool
    assert {followed.progress, *(f"{followed.prefix}.{name}" for name in CLAIMS_OUTPUTS)} < (
        own_topics("coord")
    )


def test_what_the_claims_plane_writes_has_a_topic() -> None:
    """An output whose topic nobody creates ends the job in its first batch."""
    written = {
        topic.removeprefix("coord.claims.") for _, _, topic, *_ in a_life_of_claims().log.rows
    }

    assert written - {"lag"} == set(CLAIMS_OUTPUTS)


def test_the_job_writes_nothing_to_the_coordination_topic() -> None:
    """INV-66. Its consumers notice no job; and one that read what it writes would have to judge
    each line of its own history, which gives the next."""
    followed = claims("coord", "coordination")

    written = {topic for _, _, topic, *_ in a_life_of_claims().log.rows}
    assert written
    assert all(topic.startswith("coord.claims.") for topic in written)
    assert not set(followed.inputs.values()) & written
    for own in sorted(own_topics("coord")):
        with pytest.raises(SetupError, match="one of the job's own"):
            claims("coord", own)


def test_a_batch_of_claims_has_a_marker_like_any_other() -> None:
    life = a_life_of_claims()
    blob, rows = judge_readable(PLANE.fold, None, life.records, OF_CLAIMS)
    again = judge_readable(PLANE.fold, None, list(reversed(life.records)), OF_CLAIMS)
    batch = assemble(0, rows)
    marker = next_marker(None, batch, IDENTITY, PLANE.inputs)

    assert again == (blob, rows), "rows of a key come in no order"
    assert marker.next_offsets == {"__marshal.6s": {"0": len(life.records)}}
    assert marker.shards["0"].offsets == {"m": len(life.records) - 1}
    assert (marker.shards["0"].published, batch.reports[0].status.owed) == (-1, -1)


def test_executors_get_the_folds_by_their_names() -> None:
    """By value each worker would have a copy of the whole of the core."""
    for pipeline in (GROUPS, PLANE):
        assert cloudpickle.loads(cloudpickle.dumps(pipeline.fold)) is pipeline.fold
