"""The demo's parts: witnesses that survive a kill, tables, the telling line."""

import io
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from coordlib.demo import checkers, history, show
from coordlib.demo.history import record
from coordlib.demo.scenario import _alone
from coordlib.demo.verdict import Check, judge, last_commits
from coordlib.demo.witness import Consumed, Deed, Witness, WitnessFile, unfinished
from coordlib.errors import SetupError
from tests.demo.test_demo_verdict import a_good_run


def test_witness_tells_what_was_written_also_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    witness = Witness("m", path)
    witness.read_on()
    assert (witness.generation, witness.partitions, witness.consumed) == (-1, None, [])

    file = WitnessFile(path)
    file.assigned(3, [2, 0])
    file.record(0, 17, 170)
    witness.read_on()
    assert (witness.generation, witness.partitions, witness.uncommitted) == (3, (0, 2), 1)

    with path.open("a") as torn:
        torn.write("record 0 18 18")
    witness.read_on()
    assert len(witness.consumed) == 1
    with path.open("a") as torn:
        torn.write("0 3 99\n")
    file.commit()
    file.revoked()
    file.error("what\nwhere")
    witness.read_on()

    assert witness.consumed[1] == Consumed("m", 0, 18, 180, 3, 99)
    assert (witness.partitions, witness.uncommitted) == (None, 0)
    assert witness.errors == ["what where"]


def test_an_empty_share_is_not_the_same_as_none(tmp_path: Path) -> None:
    file = WitnessFile(tmp_path / "m.txt")
    file.assigned(1, [])
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()

    assert witness.partitions == ()


def told_by(path: Path, name: str, *, refused: bool) -> Witness:
    """A member that reads four records of a partition and commits two of them."""
    file = WitnessFile(path / f"{name}.txt")
    file.started()
    file.assigned(1, [0], fence=7)
    for offset in range(4):
        file.record(0, offset, offset)
    file.commit({0: 2})
    if refused:
        file.refused("fenced\nby itself")
    else:
        file.committed({0: 2})
    file.revoked([0])
    file.closed()
    witness = Witness(name, path / f"{name}.txt")
    witness.read_on()
    return witness


def broken(path: Path) -> list[str]:
    found = history.read(path)
    return [sentence for checker in checkers.CHECKERS for sentence in checker(found)]


def test_the_demo_is_recorded_as_a_history_that_the_checkers_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    witness = told_by(tmp_path, "m", refused=False)
    record(path, [witness], {}, "orders", "readers")

    whats = [each.what for each in history.read(path)]
    assert whats == ["started", "assigned", *["act"] * 4, "commit", "committed", "revoked", "ended"]
    act = history.read(path)[2]
    assert (act.partitions, act.generation, act.fence) == (("orders-0",), 1, 7)
    assert history.read(path)[7].offsets == {"orders-0": 2}
    assert len(history.read(path)) == 10
    assert broken(path) == []


def test_a_kill_explains_what_is_read_twice_and_nothing_else_does(tmp_path: Path) -> None:
    """Who was killed cannot write down that it ended; who killed it does."""
    path = tmp_path / "history.jsonl"
    victim = told_by(tmp_path, "victim", refused=True)
    victim.deeds = [each for each in victim.deeds if each.what not in ("refused", "closed")]
    after = told_by(tmp_path, "after", refused=False)
    after.consumed = [replace(each, generation=2, fence=8) for each in after.consumed]
    after.deeds = [replace(each, generation=2, fence=8) for each in after.deeds]

    record(path, [victim, after], {}, "orders", "readers")
    assert len(broken(path)) == 4
    killed_ns = {"victim": after.consumed[0].at_ns - 1}
    record(path, [victim, after], killed_ns, "orders", "readers")
    assert broken(path) == []


def test_positions_that_were_set_back_explain_what_is_read_twice(tmp_path: Path) -> None:
    """By an operator, whose line no member writes."""
    path = tmp_path / "history.jsonl"
    file = WitnessFile(tmp_path / "m.txt")
    for fence in (7, 9):
        file.assigned(1, [0], fence=fence)
        for offset in range(4):
            file.record(0, offset, offset)
        file.revoked([0])
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()
    between_ns = witness.consumed[4].at_ns

    record(path, [witness], {}, "orders", "readers")
    assert len(broken(path)) == 4
    back = [Deed(between_ns, "rewound", offsets={0: 2})]
    record(path, [witness], {}, "orders", "readers", back)
    assert len(broken(path)) == 2


def test_a_batch_that_did_not_end_explains_what_is_read_twice(tmp_path: Path) -> None:
    """A query was cut short: its next run begins where the last finished batch ended."""
    path = tmp_path / "history.jsonl"
    file = WitnessFile(tmp_path / "q.txt")
    file.assigned(1, [0], fence=7)
    for run in (0, 1):
        file.revoked([0])
        file.assigned(1, [0], fence=7)
        file.began(run)
        file.record(0, 0, 0)
    file.finished(1, {0: 1})
    query = Witness("q", tmp_path / "q.txt")
    query.read_on()
    record(path, [query], {}, "clicks", "readers")
    assert broken(path) == []

    file.finished(0, {0: 1})
    query.read_on()
    record(path, [query], {}, "clicks", "readers")
    (offence,) = broken(path)
    assert offence.startswith("INV-60: q processes clicks-0 0")


def test_a_batch_is_unfinished_until_spark_says_that_it_has_ended(tmp_path: Path) -> None:
    """Two batches; the second did not end, and the next run read the same again, and ended."""
    file = WitnessFile(tmp_path / "q.txt")
    file.assigned_by_fence(1, {0: 10, 1: 12})
    file.began(0)
    for offset in range(4):
        file.record(0, offset, offset)
        if offset == 1:
            file.finished(0, {0: 2, 1: 0})
    file.began(1)
    for offset in (2, 3):
        file.record(0, offset, offset)
    file.finished(1, {0: 4, 1: 0})
    witness = Witness("q", tmp_path / "q.txt")
    witness.read_on()

    assert [(each.run, each.offset) for each in unfinished(witness)] == [(0, 2), (0, 3)]


def test_what_a_consumer_reads_is_never_in_a_batch(tmp_path: Path) -> None:
    file = WitnessFile(tmp_path / "m.txt")
    file.assigned_by_fence(1, {0: 10})
    file.record(0, 0, 0)
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()

    assert unfinished(witness) == []


def test_partitions_come_and_go_one_by_one_each_with_its_fence(tmp_path: Path) -> None:
    """Where the coordinator divides, nothing else is touched."""
    file = WitnessFile(tmp_path / "m.txt")
    file.assigned_by_fence(1, {0: 10, 1: 12, 2: 10})
    file.revoked([2])
    file.assigned_by_fence(3, {5: 40})
    file.record(1, 7, 17)
    file.record(5, 9, 59)
    witness = Witness("m", tmp_path / "m.txt")
    witness.read_on()

    assert witness.partitions == (0, 1, 5)
    assert [(each.partition, each.fence) for each in witness.consumed] == [(1, 12), (5, 40)]


def test_witness_survives_sigkill(tmp_path: Path) -> None:
    """Every record that was written down before the kill is in the file."""
    path = tmp_path / "m.txt"
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from coordlib.demo.witness import WitnessFile\n"
        "file = WitnessFile(Path(sys.argv[1]))\n"
        "file.assigned(1, [0])\n"
        "for offset in range(1000): file.record(0, offset, offset)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], timeout=30)
    witness = Witness("m", path)
    witness.read_on()

    assert ended.returncode == -9
    assert [each.offset for each in witness.consumed] == list(range(1000))


def test_tables_show_generations_owners_and_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[list[list[object]]] = []

    def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        printed.append([list(headers), *map(list, rows)])

    facts = a_good_run()
    facts = replace(facts, owners=[*facts.owners[:2], *facts.owners[4:]])
    show.generations(facts, print_table)
    show.owners(facts, print_table)
    show.partitions(facts, last_commits(facts), print_table)

    generations, owners, partitions = printed
    assert generations[2][1:] == [2, "session expired", "0.0s", "a"]
    assert owners == [["GENERATION", "P0", "P1"], [1, "a", "b"], [2, "", ""], [3, "a", "c"]]
    assert partitions[1:] == [[0, 10, 0, None, 10, 10], [1, 13, 3, 4, 10, 10]]


def test_verdict_tells_a_few_offences_and_how_many_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = Check("Nothing is wrong", "9 things", tuple(f"thing {n}" for n in range(9)))
    checks = [*judge(a_good_run(), {1: 4}), wrong]
    show.verdict(checks)
    show.end(checks, 12.3)

    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("ok  ") for line in lines) == 5
    at = lines.index("FAILED  Nothing is wrong: 9 things")
    assert lines[at + 1].strip() == "thing 0"
    assert lines[at + 6].strip() == "and 4 more"
    assert lines[-1] == "Demo: 1 of 6 checks FAILED, after 12 s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_line_is_written_over_on_a_terminal_and_seldom_elsewhere() -> None:
    told: list[str] = []
    for stream in (Terminal(), io.StringIO()):
        live = show.Live(told.append, stream)
        live.show("half")
        live.show("half and a bit")  # too soon
        live("done")
        if stream.isatty():
            assert stream.getvalue().count("\r") == 1
            assert stream.getvalue().endswith("\x1b[K\n")
    assert [line.split(" s  ")[1] for line in told] == ["done", "half", "done"]


def test_a_second_demo_at_once_is_refused(tmp_path: Path) -> None:
    """It would delete the folder of the first."""
    with (
        _alone(tmp_path / "demo.lock"),
        pytest.raises(SetupError, match="Another demo is running"),
        _alone(tmp_path / "demo.lock"),
    ):
        pass
    with _alone(tmp_path / "demo.lock"):
        pass
