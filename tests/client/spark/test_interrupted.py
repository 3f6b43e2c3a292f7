"""A batch's write is interrupted at any line: its rows and its offsets stay one unit.  # INV-100

Spark runs `foreachBatch` in a thread of its own, where Python calls no signal handler; but a
program may write a batch in its main thread, and an exception of the user's may come anywhere.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordlib.errors import CoordError
from tests.client.interrupting import interrupt_everywhere
from tests.client.spark.test_writes import FakeBatch, LakeReaders
from tests.client.world import t
from tests.tools.background import judged

Interrupted = Callable[[Callable[[], Any]], Any]


def test_a_write_that_is_interrupted_is_whole_or_is_not(tmp_path: Path) -> None:
    folders = iter(range(1_000_000))

    def course(interrupted: Interrupted) -> None:
        with pytest.MonkeyPatch.context() as patch:
            world = LakeReaders(patch, tmp_path / str(next(folders)))
            reader = world.read()
            world.follow(reader)
            query = world.query
            query.begin()
            batch: Any = FakeBatch(t0=4)
            rows: Any = {"t0": 4}
            done: list[int] = []
            with judged(world.log):
                interrupted(lambda: (query.share.write_once(batch, rows, "lake"), done.append(1)))
            if done:
                query.end(t0=5, t1=0, t2=0, t3=0)
                world.run(3_000)
                world.stop(reader)
            else:
                query.fail(ValueError("interrupted"))
                with pytest.raises(CoordError, match="The query failed"):
                    world.run(500)
                world.stop(reader)
            heir = world.read("heir")
            world.follow(heir)
            world.run(20_000)
            is_written = world.lake.rows == [rows]
            assert is_written or world.lake.rows == []
            assert is_written or not done
            assert world.query.began == dict.fromkeys(t(0, 1, 2, 3), 0) | {t(0)[0]: 5 * is_written}

    interrupt_everywhere(course, least=40, step=5)
