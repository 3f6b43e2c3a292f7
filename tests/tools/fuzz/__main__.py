"""`make fuzz`: all walls and the shard, on all cores; exit 1 if anything is raised or set aside."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Final

from tests.tools.fuzz import brokers, claims, corpus, decoding, shards, transactions

#: Inputs of one task: a worker's are drawn again by its seed alone.
SLICE: Final = 50_000
FOLD_SLICE: Final = 10_000


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    found = corpus.read(options.corpus)
    began = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        decoded, folded = _run(pool, options, found)
    _tell(decoded, folded, time.monotonic() - began)
    if options.write_corpus:
        count = corpus.write(options.corpus, decoded.found)
        print(f"corpus             {count} inputs in {options.corpus}")
    return 1 if decoded.exceptions or folded.failures else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--fold-records", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--corpus", type=Path, default=Path("tests/core/wire/fuzz_corpus.jsonl"))
    parser.add_argument("--write-corpus", action="store_true")
    return parser.parse_args(arguments)


def _run(
    pool: ProcessPoolExecutor, options: argparse.Namespace, found: list[corpus.Found]
) -> tuple[decoding.Outcome, shards.Folded]:
    # Seeds of tasks lie far apart, so that two runs with neighbouring seeds share none.
    seed = options.seed * 10**9
    sizes = _slices(options.inputs, SLICE)
    decode = [pool.submit(decoding.fuzz, seed + n, size, found) for n, size in enumerate(sizes)]
    judge = [
        pool.submit(partial(fold, seed + n * FOLD_SLICE), size)
        for fold in (shards.fold, claims.fold, brokers.fold, transactions.fold)
        for n, size in enumerate(_slices(options.fold_records, FOLD_SLICE))
    ]
    decoded, folded = decoding.Outcome(), shards.Folded()
    for task in as_completed(decode):
        decoded.add(task.result())
        print(f"\r{decoded.inputs:,} inputs", end="", file=sys.stderr, flush=True)
    for folding in as_completed(judge):
        folded.add(folding.result())
        print(f"\r{folded.records:,} records ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return decoded, folded


def _slices(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]


def _tell(decoded: decoding.Outcome, folded: shards.Folded, spent_s: float) -> None:
    slowest = decoded.slowest
    print(f"inputs             {decoded.inputs:,} in {spent_s:.0f} s")
    print(f"accepted           {decoded.accepted:,}")
    for name, count in sorted(decoded.refused.items()):
        print(f"refused            {count:,} {name}")
    print(f"ways to be judged  {len(decoded.found):,}")
    print(
        f"slowest            {slowest.ms_per_kb:.3f} ms/KB, {slowest.target}, "
        f"{slowest.size:,} bytes: {slowest.first_bytes!r}"
    )
    print(f"exceptions         {decoded.exceptions:,}")
    for (target, problem), (said, value) in sorted(decoded.raised.items()):
        print(f"  {target}: {problem}: {said}: {decoding.minimised(target, value)[:400]!r}")
    print(f"records folded     {folded.records:,}")
    print(f"quarantined        {folded.quarantined:,}")
    for seed, problem in folded.failures[:20]:
        print(f"  seed {seed}: {problem}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
