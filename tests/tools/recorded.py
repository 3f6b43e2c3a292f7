"""Recorded logs, and what the folds make of them, to the byte.

    python -m tests.tools.recorded [LOG…]          compare with the digests that are kept
    python -m tests.tools.recorded --write         keep what comes out now (then read the diff)
    python -m tests.tools.recorded --record        draw the logs afresh, then the same
    python -m tests.tools.recorded --lines FOLDER  write all outputs as text, one file per log

The inputs are kept, so that no tool that draws logs has a say in what is compared: code that is
rebuilt must give the same outputs and states, in each cut into batches and with each hash seed. To
see what differs, write the lines of two trees and compare the folders.
"""

import argparse
import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from coordlib.config import BrokersConfig, GroupConfig, ShardConfig, TransactionsConfig
from coordlib.core.claims.fold import Coordination
from coordlib.core.claims.history import SPACE as CLAIMS_SPACE
from coordlib.core.controller.protocol import BrokersSettings, Clusters
from coordlib.core.engine.effects import Output
from coordlib.core.engine.pages import Kept, Packing
from coordlib.core.groups.group import GroupSettings
from coordlib.core.groups.protocol import Groups
from coordlib.core.transactions.protocol import Transactions, TransactionsSettings
from coordlib.core.wire.stored import ControlKey, ShardPosition
from coordlib.job.pipelines import Pipeline, RestoreFns, claims, groups
from coordlib.testing import signing
from tests.tools.assigned_logs import brittle
from tests.tools.core import InputRecord, ShardSettings, compacted
from tests.tools.stored_state import failing

FOLDER: Final = Path(__file__).parents[1] / "recorded"
DIGESTS: Final = FOLDER / "digests.json"
#: Of keys of sets and dictionaries: what depends on their order differs in one of them.
HASH_SEEDS: Final = ("0", "1", "4242")
PREFIX: Final = "coord"
#: Strategies by which the settings of a log may name them.
STRATEGIES: Final[dict[str, Any]] = {"brittle": brittle, "failing": failing}
PACKING: Final = Packing(bytes, bytes)
_DIGEST_LETTERS: Final = 24


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a shard as data."""

    shard: int
    shards: int
    reply_partitions: int
    incarnation: str
    bounds: ShardConfig = ShardConfig()
    group: GroupConfig = GroupConfig()
    brokers: BrokersConfig = BrokersConfig()
    transactions: TransactionsConfig = TransactionsConfig()
    new_per_second_max: int | None = None
    strategies: tuple[str, ...] = ()
    #: Topic and topic id of claims; None: the log is one of groups.
    coordination: tuple[str, str] | None = None
    keys: tuple[ControlKey, ...] = ()
    checks_invariants: bool = False

    def made(self) -> ShardSettings:
        """As a fold takes them."""
        return ShardSettings(
            shard=self.shard,
            shards=self.shards,
            reply_partitions=self.reply_partitions,
            incarnation=self.incarnation,
            bounds=self.bounds,
            families=self._families(),
            keys=self.keys,
            verify=signing.verify,
            checks_invariants=self.checks_invariants,
        )

    def _families(self) -> dict[str, Any]:
        if self.coordination is not None:
            topic, topic_id = self.coordination
            return {CLAIMS_SPACE: Coordination(topic=topic, topic_id=topic_id)}
        strategies = {name: STRATEGIES[name] for name in self.strategies}
        of_ids = {} if self.new_per_second_max is None else {"rate": self.new_per_second_max}
        return {
            Groups.SPACE: GroupSettings(self.group, strategies, self.transactions),
            Clusters.SPACE: BrokersSettings(self.brokers),
            Transactions.SPACE: TransactionsSettings(self.transactions, *of_ids.values()),
        }


class Recorded(msgspec.Struct, frozen=True):
    """The log of one shard."""

    settings: Settings
    records: list[InputRecord]

    @property
    def pipeline(self) -> Pipeline:
        """Whose fold judges it."""
        of_claims = self.settings.coordination
        return groups(PREFIX) if of_claims is None else claims(PREFIX, of_claims[0])


class Judged(NamedTuple):
    """What became of a log: all outputs in order, and the end."""

    outputs: list[Output]
    blob: bytes | None
    status: Any

    def lines(self) -> Iterator[str]:
        """As text, for a comparison by a reader."""
        for topic, partition, key, value in map(_row, self.outputs):
            text = "gone" if value is None else value.decode(errors="backslashreplace")
            yield f"{topic} {partition} {key.decode(errors='backslashreplace')} {text}"
        yield f"status {msgspec.json.encode(self.status).decode()}"
        yield f"state {_digest([self.blob or b''])}"


def names() -> list[str]:
    """The logs that are kept."""
    return sorted(path.stem for path in FOLDER.glob("*.xz"))


def load(name: str) -> Recorded:
    """A log. Raises FileNotFoundError."""
    packed = (FOLDER / f"{name}.xz").read_bytes()
    return msgspec.msgpack.decode(lzma.decompress(packed), type=Recorded)


def store(name: str, log: Recorded) -> None:
    """Keep a log."""
    packed = lzma.compress(msgspec.msgpack.encode(log), preset=9 | lzma.PRESET_EXTREME)
    (FOLDER / f"{name}.xz").write_bytes(packed)


# -- cuts ------------------------------------------------------------------------------------


def _whole(records: Sequence[InputRecord]) -> list[Sequence[InputRecord]]:
    return [records]


def _tens(records: Sequence[InputRecord]) -> list[Sequence[InputRecord]]:
    return [records[at : at + 10] for at in range(0, len(records), 10)]


def _drawn(records: Sequence[InputRecord]) -> list[Sequence[InputRecord]]:
    """Batches of any size, empty ones too."""
    luck = Random(len(records))
    ends = sorted(luck.randrange(len(records) + 1) for _ in range(len(records) // 40 + 2))
    return [records[a:b] for a, b in zip([0, *ends], [*ends, len(records)], strict=True)]


CUTS: Final[dict[str, Callable[[Sequence[InputRecord]], list[Sequence[InputRecord]]]]] = {
    "whole": _whole,
    "tens": _tens,
    "drawn": _drawn,
}


def judged(log: Recorded, batches: Iterable[Sequence[InputRecord]]) -> Judged:
    """Fold a log batch by batch; each begins with the bytes of the state before it.

    Raises AssertionError: a state in pages gives other outputs, or another state.
    """
    pipeline, settings = log.pipeline, log.settings.made()
    outputs: list[Output] = []
    blob: bytes | None = None
    status: Any = None
    paged: Any = None
    kept: Kept = {}
    for batch in batches:
        done = pipeline.fold(blob, batch, settings)
        if pipeline.fold_pages is not None:
            in_pages = pipeline.fold_pages(paged, batch, settings, PACKING, kept)
            assert in_pages.outputs == done.outputs, "pages give other outputs than the blob"
            paged = in_pages.stored
            kept.update(in_pages.kept)
        blob, status = done.blob, done.status
        outputs += done.outputs
    return Judged(outputs, blob, status)


def rebuilt(log: Recorded, done: Judged) -> bytes:
    """The state that the compacted topics give again."""
    pipeline = log.pipeline
    topics = compacted(done.outputs, pipeline.restored_from)
    if isinstance(pipeline.restore, RestoreFns):
        position: ShardPosition = done.status.position
        return pipeline.restore.restore(topics, position)
    return pipeline.restore.begin(topics, log.settings.made()) or b""


# -- digests ---------------------------------------------------------------------------------


def _row(output: Output) -> tuple[str, int, bytes, bytes | None]:
    return output.topic, output.partition, output.key, output.value


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:_DIGEST_LETTERS]


def digests(name: str) -> dict[str, Any]:
    """All that comes of a log, as it is kept."""
    log = load(name)
    found: dict[str, Any] = {"records": len(log.records)}
    for cut, batches_of in CUTS.items():
        done = judged(log, batches_of(log.records))
        encode = msgspec.msgpack.encode
        found[cut] = {
            "outputs": len(done.outputs),
            "of_outputs": _digest(encode(_row(each)) for each in done.outputs),
            "of_status": _digest([msgspec.json.encode(done.status)]),
            "of_state": _digest([done.blob or b""]),
            "of_state_rebuilt": _digest([rebuilt(log, done)]),
        }
    return found


def differences(name: str) -> list[str]:
    """What is not as it is kept, one line each; none: all is the same."""
    kept, found = json.loads(DIGESTS.read_text()).get(name, {}), digests(name)
    lines = []
    for cut in CUTS:
        for what, value in found[cut].items():
            if kept.get(cut, {}).get(what) != value:
                before = kept.get(cut, {}).get(what, "kept")
                lines.append(f"{name}, cut {cut}: {what} is {value}, not {before}")
    return lines


def check(of: Sequence[str] = ()) -> list[str]:
    """As `differences`, of these logs or all."""
    return [line for name in of or names() for line in differences(name)]


def write() -> None:
    """Keep what comes out now."""
    found = {name: digests(name) for name in names()}
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n")


def write_lines(folder: Path) -> None:
    """All outputs of all logs and cuts as text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        log = load(name)
        for cut, batches_of in CUTS.items():
            lines = judged(log, batches_of(log.records)).lines()
            (folder / f"{name}.{cut}.txt").write_text("\n".join(lines) + "\n")


def with_hash_seed(seed: str, *of: str) -> subprocess.CompletedProcess[str]:
    """Compare in a process of its own, in which hashes of strings begin from another seed."""
    command = [sys.executable, "-m", "tests.tools.recorded", "--here", *of]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or keep; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.recorded",
        description="Compare what the folds make of recorded logs with what they made before.",
    )
    parser.add_argument("--write", action="store_true", help="keep what comes out now")
    parser.add_argument("--record", action="store_true", help="draw the logs afresh, and keep")
    parser.add_argument("--lines", metavar="FOLDER", type=Path, help="write outputs as text")
    parser.add_argument("--here", action="store_true", help="with this process's hash seed only")
    parser.add_argument("of", nargs="*", metavar="LOG", help="these only; else all")
    given = parser.parse_args(arguments)
    if given.lines is not None:
        write_lines(given.lines)
        return 0
    if given.record:
        from tests.tools import recording

        recording.record(store)
    if given.write or given.record:
        write()
        return 0
    runs: list[Callable[[], list[str]]] = [partial(check, given.of)]
    if not given.here:
        runs += [partial(_lines_of, seed, *given.of) for seed in HASH_SEEDS]
    lines = [line for run in runs for line in run()]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if not given.here:
        of = given.of or names()
        records = sum(len(load(name).records) for name in of)
        how = f"{len(CUTS)} cuts, {1 + len(HASH_SEEDS)} hash seeds"
        verdict = "other bytes" if lines else "the same bytes"
        sys.stdout.write(f"{len(of)} logs of {records} records, {how}: {verdict}\n")
    return 1 if lines else 0


def _lines_of(seed: str, *of: str) -> list[str]:
    done = with_hash_seed(seed, *of)
    lines = [f"hash seed {seed}: {line}" for line in done.stdout.splitlines()]
    if done.returncode and not lines:
        lines = [f"hash seed {seed}: {done.stderr.strip() or done.returncode}"]
    return lines


if __name__ == "__main__":
    sys.exit(main())
