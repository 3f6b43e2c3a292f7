"""Known bugs, still found: each is put into a copy of the package, and the simulation must see it.

    python -m tests.tools.mutants [--only NAME] [--results FILE] [--format json]

A mutant is a file `tests/mutants/NN-name.patch`: a header, an empty line, a unified diff.

    bug: what it does wrong
    breaks: the promise, by its number
    faults: all, or the kinds of faults that are drawn, by comma; twice is more often
    seeds: within how many, from 0 on, it must be caught
    world: fields of the plan that do not come from the seed, batch_ms=50,statics=2; may be left out
    compare: hash seeds          (only where one run cannot show it)

What no world shows soon enough a test may catch: `test: tests/client/test_x.py::test_y` stands in
place of faults and seeds.

One that survives means that simulation or checks have become too weak: it is they that are fixed.
The code as it is must pass the same seeds, so first it runs them. A run that was cut goes on where
its file of results ends, if the commit is the same; one that has ended leaves no file.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.tools import results
from tests.tools.results import ROOT

FOLDER: Final = ROOT / "tests" / "mutants"
COPIED: Final = ("coordlib", "tests/__init__.py", "tests/tools")
WORKERS: Final = 2
#: For those that a test catches.
COPIED_WITH_TESTS: Final = ("coordlib", "tests", "pyproject.toml")
NEEDED: Final = ("bug", "breaks")
NEEDED_IN_WORLDS: Final = ("faults", "seeds")
COMPARE: Final = "hash seeds"
AS_IT_IS: Final = "(as it is)"


class Unusable(Exception):
    """A mutant that is none: it does not apply, does not run, or says too little of itself."""


@dataclass(frozen=True)
class Mutant:
    """One known bug; the one without a patch is the code as it is."""

    name: str
    bug: str
    breaks: str
    faults: tuple[str, ...]
    seeds: int
    world: str
    compares: bool
    #: The test that catches it; empty: the worlds do.
    test: str
    patch: Path | None


@dataclass(frozen=True)
class Verdict:
    """What became of one."""

    name: str
    breaks: str
    #: Over how many seeds it would have been looked for.
    seeds: int
    #: None: it survived.
    violation: str | None
    seed: int
    seconds: float


# ---- the files --------------------------------------------------------------------------------


def mutants() -> list[Mutant]:
    """All that are kept, in order. Raises Unusable."""
    return [read(path) for path in sorted(FOLDER.glob("*.patch"))]


def read(path: Path) -> Mutant:
    head, _, diff = path.read_text().partition("\n\n")
    rows = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    test = rows.get("test", "")
    needed = NEEDED if test else NEEDED + NEEDED_IN_WORLDS
    missing = [name for name in needed if not rows.get(name)]
    if missing or not diff.startswith("--- a/"):
        raise Unusable(f"{path.name} lacks {', '.join(missing) or 'a diff'}")
    named = rows.get("faults", "all")
    faults = () if named == "all" else tuple(named.split(", "))
    compares = rows.get("compare") == COMPARE
    seeds = int(rows.get("seeds", 1))
    world = rows.get("world", "")
    return Mutant(
        path.stem, rows["bug"], rows["breaks"], faults, seeds, world, compares, test, path
    )


def baselines(chosen: Iterable[Mutant]) -> list[Mutant]:
    """The code as it is, once for each way in which a mutant is looked for."""
    found: dict[tuple[tuple[str, ...], str, bool, str], Mutant] = {}
    for each in chosen:
        key = (each.faults, each.world, each.compares, each.test)
        seeds = max(each.seeds, found[key].seeds if key in found else 0)
        how = each.test or ", ".join(each.faults) or "all"
        found[key] = replace(each, name=AS_IT_IS, bug="none", breaks=how, seeds=seeds, patch=None)
    return list(found.values())


def copy_to(folder: Path, mutant: Mutant) -> None:
    """The package as git knows it, with one bug. Raises Unusable."""
    copied = COPIED_WITH_TESTS if mutant.test else COPIED
    command = ["git", "ls-files", "-z", *copied]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    if mutant.patch is not None:
        _apply(mutant.patch, folder)


def must_apply(patch: Path) -> None:
    """To the sources as they are here, which stay as they are. Raises Unusable."""
    _apply(patch, ROOT, "--check")


def _apply(patch: Path, folder: Path, *options: str) -> None:
    applied = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *options, str(patch)],
        cwd=folder,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if applied.returncode:
        raise Unusable(f"{patch.name} does not apply: {applied.stderr.strip()}")


# ---- the hunt ---------------------------------------------------------------------------------


def hunt(mutant: Mutant) -> Verdict:
    """Run seeds until it is caught, or all of its seeds are used up. Raises Unusable."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coord-mutant-") as made:
        folder = Path(made).resolve()
        copy_to(folder, mutant)
        look = _differs if mutant.compares else _fails if mutant.test else _falls
        seed, violation = look(mutant, folder)
    seconds = round(time.monotonic() - started_s, 1)
    return Verdict(mutant.name, mutant.breaks, mutant.seeds, violation, seed, seconds)


def _falls(mutant: Mutant, folder: Path) -> tuple[int, str | None]:
    newest = list(_outcomes(mutant, folder, 0))[-1]
    return newest["seed"], newest["violation"]


def _fails(mutant: Mutant, folder: Path) -> tuple[int, str | None]:
    """What the mutant's test says of it; nothing if it passes."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.test]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "300"}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    if ran.returncode == 0:
        return 0, None
    if ran.returncode != 1 or not failed:  # no such test, or code that cannot be imported
        raise Unusable(f"{mutant.name} does not run: {ran.stdout.strip()[-500:]}")
    return 0, failed[0].partition(" - ")[2] or failed[0]


def _differs(mutant: Mutant, folder: Path) -> tuple[int, str | None]:
    """INV-01, INV-32: whatever order sets have in a process, the outcome is the same."""
    both = zip(_outcomes(mutant, folder, 1), _outcomes(mutant, folder, 2), strict=False)
    seed = -1
    for one, other in both:
        seed = one["seed"]
        if one["digest"] != other["digest"]:
            return seed, "INV-01: two outcomes under two hash seeds"
        if one["violation"] is not None:
            return seed, one["violation"]
    return seed, None


def _outcomes(mutant: Mutant, folder: Path, hash_seed: int) -> Iterator[dict[str, Any]]:
    """What `one_mutant` says of each seed, by the package in this folder."""
    command = [sys.executable, "-m", "tests.tools.one_mutant"]
    command += ["--seeds", f"0-{mutant.seeds - 1}", "--kinds", ",".join(mutant.faults)]
    command += ["--world", mutant.world]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": str(hash_seed)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not rows:
        raise Unusable(f"{mutant.name} does not run: {ran.stderr.strip()[-500:]}")
    return iter(rows)


# ---- the table --------------------------------------------------------------------------------


def line_of(verdict: Verdict) -> str:
    told = " ".join((verdict.violation or "-").split())
    where = str(verdict.seed) if verdict.violation else f"none of {verdict.seeds}"
    return (
        f"{verdict.name:38} {where:>11} {verdict.seconds:6.1f}  {verdict.breaks:24.24} {told:.90}"
    )


def say(text: str, is_json: bool) -> None:
    """Progress goes where it does not get between the JSON."""
    print(text, file=sys.stderr if is_json else sys.stdout, flush=True)


class Results:
    """Verdicts of this commit in a file, one a line; none: nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._commit = results.commit()
        self._found: dict[tuple[Any, ...], Verdict] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            if row.pop("commit") == self._commit:
                of = tuple(row.pop("of"))
                self._found[of] = Verdict(**row)

    def hunt(self, mutant: Mutant) -> Verdict:
        """As the function, unless the file has the verdict. Raises Unusable."""
        of = (mutant.name, mutant.breaks, mutant.seeds, mutant.world, mutant.compares)
        if of in self._found:
            return self._found[of]
        verdict = hunt(mutant)
        if self._path is not None:
            row = {"commit": self._commit, "of": of, **asdict(verdict)}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return verdict

    def forget(self) -> None:
        """The run has ended: the next begins anew."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def judged(some: list[Mutant], is_json: bool, known: Results) -> list[Verdict]:
    """One after another as they end, in the order of the list."""
    verdicts = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for verdict in pool.map(known.hunt, some):
            say(line_of(verdict), is_json)
            verdicts.append(verdict)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description="Known bugs, still found.")
    parser.add_argument("--only", metavar="NAME", help="a part of the name")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--without-baseline", action="store_true", help="not the code as it is")
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept, and gone on with")
    options = parser.parse_args()
    is_json = options.format == "json"
    tell = partial(say, is_json=is_json)
    known = Results(options.results)
    try:
        chosen = [each for each in mutants() if (options.only or "") in each.name]
        if not chosen:
            raise Unusable(f"no mutant is called {options.only}")
        tell(f"{'mutant':38} {'seed':>11} {'s':>6}  {'breaks':24} caught by")
        sound = [] if options.without_baseline else judged(baselines(chosen), is_json, known)
        found = judged(chosen, is_json, known)
    except Unusable as problem:
        print(problem, file=sys.stderr)
        return 1
    known.forget()
    broken = [each for each in sound if each.violation is not None]
    survived = [each.name for each in found if each.violation is None]
    tell(f"{len(found) - len(survived)} of {len(found)} caught")
    for each in broken:
        tell(f"The code as it is breaks a promise with {each.breaks}: {each.violation}")
    if survived:
        tell(f"survived: {', '.join(survived)}")
    if is_json:
        rows = {"baseline": [asdict(v) for v in sound], "mutants": [asdict(v) for v in found]}
        print(json.dumps(rows, indent=1))
    return 1 if broken or survived else 0


if __name__ == "__main__":
    sys.exit(main())
