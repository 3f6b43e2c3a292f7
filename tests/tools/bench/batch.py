"""Where a micro-batch's time goes, by phase, and what each lever of it gives.

One JVM runs coordinators one after the other, each with other levers on, in turns: figures of two
JVMs, or of two times of a day, differ by more than most levers give. A block begins with a prefix,
a checkpoint and members of its own; some seconds are not counted, then some are. Nothing else runs
beside the batches, no sampling of lag, and no archive but by the last lever.

Levers, of which the first five, which the job has, are looked at unless others are named:

    codegen     Spark interprets the query's expressions and writes no Java code for each task
    gc          the workers' garbage collector leaves out what their daemon has imported
    files       local files are made without a `chmod` process each
    keys        shards spread evenly over two state partitions; off: shard numbers are the keys
    partitions  one state partition instead of two, whatever the keys
    retained    2 batches are kept in the checkpoint instead of 10
    fetched     Kafka may send 16 MiB of a partition at once instead of 1
    archive     an archive beside it, with a turn every 5 s (the job's has one every 30 s)
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from coordlib.errors import NotReady, SetupError
from coordlib.installation import checkout
from coordlib.local import class_archive
from coordlib.local.progress import to_stderr
from coordlib.local.stack import Stack
from tests.tools.bench.batch_figures import summary
from tests.tools.bench.batch_variants import offsets_per_group, order, variants, warming
from tests.tools.bench.figures import tell, tell_machine
from tests.tools.bench.stand import fresh_stack

NAME: Final = "bench-batch"
LOOK_EVERY_S: Final = 0.5
_SCRIPT: Final = Path(__file__).with_name("batch_job.py")
#: More than the job keeps: a block may have hundreds of batches.
_PROGRESS_KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates=100000"


def run(
    *,
    seconds: float,
    warm_s: float,
    turns: int,
    groups: int,
    members: int,
    heartbeats: float,
    probes_per_second: float,
    state_mb: int,
    levers: Sequence[str],
    named: Sequence[str],
) -> int:
    """A line for each block, then one for each variant."""
    chosen = variants(levers, named)
    blocks = order(chosen, turns)
    offsets = offsets_per_group(state_mb, groups)
    tell_machine("batch")
    spark_args = ["--conf", _PROGRESS_KEPT]
    if any("files" in variant.on for variant in chosen):
        spark_args += ["--driver-class-path", str(_jar())]
    with own_broker(NAME) as stack:
        told = stack.home / "logs" / "blocks.jsonl"
        plan = {
            "warming": order(warming(levers), turns=1),
            "blocks": blocks,
            "seconds": seconds,
            "warm_s": warm_s,
            "groups": groups,
            "members": members,
            "offsets": offsets,
            "heartbeats": heartbeats,
            "probes_per_second": probes_per_second,
            "told": str(told),
        }
        stack.start_job(("--plan", msgspec.json.encode(plan).decode()), spark_args, _SCRIPT)
        found = []
        for block in job_blocks(stack, told):
            found.append(block)
            tell("batch", "block", **block)
            to_stderr(_line(block, len(blocks)))
    for row in summary(found):
        tell("batch", "variant", **row)
    return 0


def _jar() -> Path:
    jar = class_archive.build_quiet_jar(to_stderr)
    if jar is None:
        raise SetupError(
            "The lever `files` needs a Java compiler.",
            "its class is compiled on this machine",
            "Install a JDK, or name other --levers.",
        )
    return jar


@contextmanager
def own_broker(name: str) -> Iterator[Stack]:
    """A broker of our own, whose job finds this checkout's modules. Raises NotReady."""
    root = checkout() or Path.cwd()
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    with fresh_stack(name) as stack, patch.dict(os.environ, PYTHONPATH=path):
        stack.start_broker()
        yield stack


def job_blocks(stack: Stack, told: Path) -> Iterator[dict[str, Any]]:
    """The blocks as they end. Raises NotReady when the job has failed."""
    read = 0
    while True:
        is_running = stack.job.is_running
        lines = told.read_text().splitlines(keepends=True) if told.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        yield from map(json.loads, whole[read:])
        read = len(whole)
        if not is_running:
            break
        time.sleep(LOOK_EVERY_S)
    if stack.job.exit_code:
        raise NotReady("The benchmark's job failed.", stack.last_job_lines())


def _line(block: dict[str, Any], count: int) -> str:
    trigger, join = block["trigger_ms"], block["join_s"]
    return (
        f"turn {block['turn']}, {block['variant']}: {block['batches']} batches, trigger "
        f"{trigger['p50']} ms, join {join['p50']} s, CPU {block['cpu_ms'].get('all')} ms a batch"
    )
