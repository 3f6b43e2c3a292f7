"""`python -m tests.tools.sim` and `… check` as a user meets them."""

import json
from pathlib import Path

import pytest
import structlog

from coordlib.cli.kit.output import LINE_LENGTH_MAX
from coordlib.demo import history
from coordlib.demo.history import Happened
from coordlib.exit_codes import USAGE
from tests.tools import commands
from tests.tools.simulation import drawing
from tests.tools.simulation.campaign import CLUSTERS, WORLDS


def test_a_campaign_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as text and as one object."""
    arguments = ["sim", "--seeds", "1", "--jobs", "1", "--worlds", "groups"]
    assert commands.main(arguments) == 0
    text = capsys.readouterr().out
    assert commands.main([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert (found["_command"], found["seeds"], found["violations"]) == ("sim", 1, 0)
    assert found["claims"] is None
    assert f"events             {found['events']}" in text
    assert "FAULT" in text
    assert "SITUATION" in text


def test_worlds_of_claims_are_shown_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Their faults and situations are their own."""
    arguments = ["sim", "--seeds", "1", "--jobs", "1"]
    assert commands.main([*arguments, "--worlds", "claims"]) == 0
    text = capsys.readouterr().out
    assert "Worlds of claims" in text
    assert "Worlds of groups" not in text
    assert "partition won" in text

    assert commands.main([*arguments, "--fault", "consumer-killed", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "seeds" not in found, "groups have no such fault"
    assert found["claims"]["violations"] == 0
    assert set(found["claims"]["faults"]) <= {"consumer-killed"}


def test_worlds_with_clusters_alone_may_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    """A fifth of the seeds of groups has one; whoever changes brokers wants to play these."""
    assert commands.main(["sim", "--seeds", "2", "--jobs", "1", "--worlds", "clusters"]) == 0
    text = capsys.readouterr().out
    assert "Worlds of clusters" in text
    assert "offline election" in text
    seeds = list(WORLDS[CLUSTERS].seeds(5, 3, ()))
    assert all(drawing.draw(seed).brokers for seed in seeds)
    skipped = set(range(5, seeds[-1])) - set(seeds)
    assert skipped
    assert not any(drawing.draw(seed).brokers for seed in skipped)


def test_a_campaign_leaves_the_logs_of_others_as_they_are() -> None:
    """Whoever plays a world inside his own program wants to hear of that program afterwards."""
    before = structlog.get_config()

    assert commands.main(["sim", "--seed", "7", "--jobs", "1", "--worlds", "groups"]) == 0
    assert structlog.get_config() == before


def test_one_seed_may_be_named_and_its_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """`--seed` alone plays that one; `--fault` draws from that kind only."""
    arguments = ["sim", "--seed", "7", "--fault", "member-killed", "--format", "json"]

    assert commands.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seeds"] == 1
    assert set(found["faults"]) <= {"member-killed"}


@pytest.mark.parametrize(
    "wrong", [["--fault", "earthquake"], ["--seeds", "0"], ["--jobs", "0"], ["--seed", "-1"]]
)
def test_wrong_usage_is_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and no stack trace."""
    assert commands.main(["sim", *wrong]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    # The kinds of faults are many: what they are is wrapped.
    told_max = 3 + len(told.err) // LINE_LENGTH_MAX
    assert len(told.err.splitlines()) <= told_max


def test_a_recorded_history_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 names what was broken."""
    path = tmp_path / "history.jsonl"
    acts = [
        Happened(1, "act", "a", "g", ("t-0",), 0, 1, 9),
        Happened(2, "act", "b", "g", ("t-0",), 1, 2, 5),
    ]
    history.write(path, acts[:1])
    assert commands.main(["check", str(path)]) == 0
    assert "0 broken promises" in capsys.readouterr().out

    history.write(path, acts)
    assert commands.main(["check", str(path), "--format", "json"]) == 1
    assert "INV-20" in json.loads(capsys.readouterr().out)["broken"][0]


def test_of_delivery_at_most_once_it_is_said_what_nobody_got(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """INV-63: what was announced by a consumer that died is handed out to nobody."""
    path = tmp_path / "history.jsonl"
    lines = [
        Happened(1, "started", "a", "g", delivery="at-most-once"),
        Happened(2, "handed_out", "a", "g", ("t-0",), 0),
        Happened(3, "handed_out", "a", "g", ("t-0",), 4),
    ]
    history.write(path, lines)
    assert commands.main(["check", str(path)]) == 0
    assert "3 never handed out: 0 broken promises" in capsys.readouterr().out

    history.write(path, [*lines, Happened(4, "handed_out", "b", "g", ("t-0",), 4)])
    assert commands.main(["check", str(path), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "INV-63" in found["broken"][0]
    assert found["never_handed_out"] == 3


@pytest.mark.parametrize("content", [None, b"no json\n", b'{"what": 5}\n'])
def test_no_history_is_told(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, another format."""
    path = tmp_path / "history.jsonl"
    if content is not None:
        path.write_bytes(content)

    assert commands.main(["check", str(path)]) != 0
    assert "no history" in capsys.readouterr().err


def test_a_history_that_is_not_there_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`[Errno 2]` and no way out: the path of another machine was pasted."""
    assert commands.main(["check", str(tmp_path / "nowhere.jsonl")]) == USAGE

    what, where, hint = capsys.readouterr().err.splitlines()
    assert "Errno" not in what
    assert "no history file" in what
    assert where == str(tmp_path / "nowhere.jsonl")
    assert "history.jsonl" in hint


@pytest.mark.parametrize("content", [b"", b"\n\n"])
@pytest.mark.parametrize("format", ["text", "json"])
def test_a_history_without_lines_keeps_no_promises(
    content: bytes, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that recorded nothing was called good."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)

    assert commands.main(["check", str(path), "--format", format]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_folder_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check .coord/stacks/demo`: the file lies in it."""
    assert commands.main(["check", str(tmp_path)]) == USAGE

    assert len(capsys.readouterr().err.splitlines()) == 3
