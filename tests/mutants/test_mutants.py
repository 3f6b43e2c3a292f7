"""Known bugs are kept as patches; whether all are still found, `make mutants` says."""

from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.tools import mutants as tool
from tests.tools import results
from tests.tools.mutants import (
    ROOT,
    Mutant,
    Results,
    Unusable,
    Verdict,
    hunt,
    must_apply,
    mutants,
    read,
)
from tests.tools.simulation.claims.kinds import KINDS as CLAIMS_KINDS
from tests.tools.simulation.kinds import KINDS

KEPT = mutants()


def named(name: str) -> Mutant:
    return next(each for each in KEPT if each.name.endswith(name))


def is_test(name: str) -> bool:
    """Whether there is a test of this name, where a mutant names one."""
    path, _, function = name.partition("::")
    return not name or f"\ndef {function}(" in (ROOT / path).read_text()


def test_many_bugs_are_kept_and_numbered() -> None:
    """A bug that is taken out of the list is noticed here."""
    numbers = sorted(int(each.name.partition("-")[0]) for each in KEPT)

    assert numbers == [
        *range(1, 115),
        *range(120, 158),
        *range(160, 187),
        *range(190, 195),
        *range(230, 234),
        *range(240, 245),
        *range(250, 255),
        *range(260, 265),
        *range(330, 338),
        345,
        *range(350, 353),
        360,
        *range(370, 422),
        *range(422, 426),
        *range(430, 434),
        *range(440, 443),
        *range(444, 446),
        *range(450, 452),
    ]


@pytest.mark.parametrize("mutant", KEPT, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_says_what_it_breaks(mutant: Mutant) -> None:
    """Somebody changed the line that it changes: fix the mutant, the bug is still possible."""
    assert mutant.patch is not None
    must_apply(mutant.patch)

    assert mutant.bug.endswith(".")
    assert mutant.breaks.startswith(("INV-", "rule ", "seed "))
    assert set(mutant.faults) <= KINDS.keys() | CLAIMS_KINDS.keys()
    assert mutant.seeds > 0
    assert is_test(mutant.test)


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("repeat-by-number-alone", "INV-"),
        ("answers-in-order-of-a-set", "INV-01"),
        ("published-before-visible", "rule 5"),
    ],
)
def test_a_known_bug_is_found(name: str, promise: str) -> None:
    """A few that are found at once stand for all: copy, patch, run and verdict work."""
    verdict = hunt(named(name))

    assert verdict.violation is not None
    assert verdict.violation.startswith(promise)


def test_the_code_as_it_is_survives() -> None:
    """A hunt that cries at everything would prove nothing."""
    sound = replace(named("published-before-visible"), patch=None, seeds=2)

    assert hunt(sound).violation is None


def test_a_bug_may_be_caught_by_a_test() -> None:
    """No world shows it soon enough; the same test passes on the code as it is."""
    mutant = named("release-of-any-cause")

    assert hunt(mutant).violation is not None
    assert hunt(replace(mutant, patch=None)).violation is None


def test_a_run_that_was_cut_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of results counts for the commit that it is of, and for no other."""
    found = Verdict("a", "INV-01", 2, "INV-01: broken", 1, 0.5)
    hunted: list[str] = []
    monkeypatch.setattr(tool, "hunt", lambda mutant: hunted.append(mutant.name) or found)
    mutant, file = named("published-before-visible"), tmp_path / "build" / "results.jsonl"

    monkeypatch.setattr(results, "commit", lambda: "one")
    assert Results(file).hunt(mutant) == Results(file).hunt(mutant) == found
    assert hunted == [mutant.name]
    assert Results(file).hunt(replace(mutant, seeds=99)) == found
    monkeypatch.setattr(results, "commit", lambda: "another")
    assert Results(file).hunt(mutant) == found
    assert hunted == [mutant.name] * 3


def test_a_test_that_is_not_there_is_an_error() -> None:
    """It was renamed: the mutant must not count as caught because nothing was run."""
    mutant = replace(named("release-of-any-cause"), test="tests/mutants/test_mutants.py::no_such")

    with pytest.raises(Unusable, match="does not run"):
        hunt(mutant)


def test_a_patch_that_does_not_apply_is_an_error(tmp_path: Path) -> None:
    """It must not count as caught because its code does not run."""
    patch = tmp_path / "99-old.patch"
    head = "bug: It was.\nbreaks: INV-01\nfaults: all\nseeds: 1\n"
    diff = "--- a/coordlib/errors.py\n+++ b/coordlib/errors.py\n@@ -1,1 +1,1 @@\n-never\n+ever\n"
    patch.write_text(f"{head}\n{diff}")

    with pytest.raises(Unusable, match="does not apply"):
        hunt(read(patch))


def test_a_mutant_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    """A syntax error ends the process before any seed: nothing was caught."""
    source = (ROOT / "coordlib" / "limits.py").read_text().splitlines(keepends=True)
    diff = unified_diff(source, ["def\n", *source], "a/coordlib/limits.py", "b/coordlib/limits.py")
    patch = tmp_path / "98-broken.patch"
    head = "bug: It is no Python.\nbreaks: INV-01\nfaults: all\nseeds: 1\n"
    patch.write_text(f"{head}\n{''.join(diff)}")

    with pytest.raises(Unusable, match=r"(?s)does not run: .*SyntaxError"):
        hunt(read(patch))


def test_a_header_must_be_complete(tmp_path: Path) -> None:
    patch = tmp_path / "97-silent.patch"
    patch.write_text("bug: It says no promise.\nfaults: all\nseeds: 1\n\n--- a/x\n+++ b/x\n")

    with pytest.raises(Unusable, match="lacks breaks"):
        read(patch)
