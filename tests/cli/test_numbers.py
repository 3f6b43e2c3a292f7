"""Which texts count as numbers on a command line."""

import pytest

from coordlib.cli.main.main import main
from coordlib.exit_codes import OK, USAGE
from tests.tools import commands
from tests.tools.bench import commands as bench

NO_WHOLE_NUMBERS = ["1.5", "2.0", "0x10", "0b1", "0o7", "1_0", "٣", "+1", " 1", "1e2", "", "²"]
NO_NUMBERS = ["nan", "inf", "-inf", "infinity", "1_0", "٣", "", "0"]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The options of benchmarks that would have run."""
    found: list[dict[str, object]] = []

    def run(_: str, **options: object) -> int:
        found.append(options)
        return OK

    monkeypatch.setattr(bench, "run", run)
    return found


@pytest.mark.parametrize("text", NO_WHOLE_NUMBERS)
@pytest.mark.parametrize(
    "command",
    [
        ["bench", "rebuild", "--groups"],
        ["bench", "rebuild", "--partitions"],
        ["topics", "create", "-b", "127.0.0.1:1", "--replication"],
        ["sim", "--seed"],
        ["status", "--max-lag-ms"],
    ],
    ids=" ".join,
)
def test_a_count_is_of_digits_only(
    command: list[str],
    text: str,
    ran: list[dict[str, object]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--shards 1.5` made two shards, and their number is fixed for the life of a prefix."""
    run = commands.main if command[0] in ("bench", "sim") else main
    assert run([*command[:-1], f"{command[-1]}={text}"]) == USAGE

    assert ran == []
    assert "Traceback" not in capsys.readouterr().err


def test_a_negative_count_is_told_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """The bound says more than that -1 were no number."""
    assert commands.main(["bench", "rebuild", "--groups=-1"]) == USAGE

    assert "Must be >= 1" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("007", 7)])
def test_digits_are_taken(text: str, number: int, ran: list[dict[str, object]]) -> None:
    """Scripts pad numbers with zeros; they are decimal all the same."""
    assert commands.main(["bench", "rebuild", "--groups", text]) == OK

    assert ran[0]["groups"] == number


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_rate_is_finite_and_of_digits(text: str, ran: list[dict[str, object]]) -> None:
    """A comparison with nan is always false: a loop of nan turns a second never waits."""
    assert commands.main(["bench", "load", f"--probes-per-second={text}"]) == USAGE

    assert ran == []


@pytest.mark.parametrize(("text", "number"), [("2", 2.0), ("0.25", 0.25), (".5", 0.5)])
def test_a_rate_may_have_a_fraction(
    text: str, number: float, ran: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every four seconds is a rate, too."""
    assert commands.main(["bench", "load", "--probes-per-second", text]) == OK

    assert ran[0]["probes_per_second"] == number


def test_each_number_of_a_list_is_looked_at(ran: list[dict[str, object]]) -> None:
    """The second one was rounded."""
    assert commands.main(["bench", "core", "--batch", "10", "--batch", "20"]) == OK
    assert ran[0]["batches"] == (10, 20)

    assert commands.main(["bench", "core", "--batch", "10", "--batch", "1.5"]) == USAGE
