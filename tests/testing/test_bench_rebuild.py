"""The rebuild benchmark's topics hold what a job would have left there."""

import msgspec

from tests.tools.bench.crowd import Crowd
from tests.tools.bench.rebuild import History, lived, told
from tests.tools.core import Shard, ShardSettings, offsets_of, restore


def test_the_history_restores_to_the_shards_that_lived_it() -> None:
    """A rebuild of something else would measure something else."""
    crowd, history = Crowd(6, 2, 2, 3, "x"), History(2, 3, "t0")
    lived(history, crowd, partitions=4)
    marker = history.marker("coord")
    newest = {(o.topic, o.partition, o.key): o.value for o in history.outputs}

    for shard, fold in history.folds.items():

        def of(topic: str, shard: int = shard) -> dict[bytes, bytes]:
            return {key: v for (t, p, key), v in newest.items() if (t, p) == (topic, shard) and v}

        groups, committed = of("groups"), of("committed")
        blob = restore(groups.values(), committed.items(), marker.shards[str(shard)])
        how = ShardSettings(shard=shard, shards=2, reply_partitions=3, incarnation="t0")
        lived_in, rebuilt = Shard(fold.blob, how), Shard(blob, how)
        assert rebuilt.groups.keys() == lived_in.groups.keys()
        for name, cell in rebuilt.groups.items():
            assert cell.value == lived_in.groups[name].value
            assert list(offsets_of(cell)) == list(offsets_of(lived_in.groups[name]))
            assert offsets_of(cell).count == 4
    assert sum(len(log) for log in history.requests.values()) == sum(
        marker.next_offsets["coord.requests"].values()
    )


def test_the_parts_of_a_start_are_read_from_the_jobs_log() -> None:
    """Among Spark's own lines, which are no JSON."""
    rebuilt = {"event": "shard rebuilt", "read_s": 0.5, "restored_s": 0.1}
    done = {"event": "rebuilt from the topics", "timestamp": "2026-11-21T09:00:00.5Z"}
    lines = [
        "WARN something {of Java}",
        *(msgspec.json.encode(e).decode() for e in (rebuilt, done)),
    ]

    assert told("\n".join(lines)) == ([rebuilt], 1795251600.5)
