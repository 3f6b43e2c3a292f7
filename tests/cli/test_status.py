"""What a monitor learns from `coord status` where settings are wrong or a bound is passed."""

import json
from typing import Any

import pytest

from coordlib.cli.main.main import main
from coordlib.cli.main.status import Status, _claims_of
from coordlib.errors import CannotReach, CoordError, NotReady, SetupError
from coordlib.exit_codes import OK, UNHEALTHY, UNREACHABLE, USAGE
from tests.cli.kit import Cli

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def _no_stack(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr("coordlib.cli.kit.where.REACH_TIMEOUT_S", 0.05)
    for name in ("COORD_TABLES", "COORD_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "option", ["novalue", "sasl.passwrod=longenough", "sasl.password=${ENV:NOT_SET_AT_ALL}"]
)
def test_wrong_settings_are_no_unreachable_broker(option: str, cli: Cli) -> None:
    """A monitor woke the people of the brokers, and its own unit file was wrong."""
    assert "No Kafka broker answers" not in cli("status", *NOBODY, "-X", option, code=USAGE).err


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (SetupError("wrong"), USAGE),
        (NotReady("busy"), UNREACHABLE),
        (CannotReach("silent"), UNREACHABLE),
    ],
)
def test_what_another_try_fixes_is_no_wrong_setting(
    problem: CoordError, code: int, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """A supervisor gives up at 2, and asks again at 4."""

    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr("coordlib.cli.main.status._from_kafka", fail)

    cli("status", *NOBODY, code=code)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fields that a cluster's status has; the broker answers."""
    fields: dict[str, Any] = {}

    def asked(found: Status, _: object) -> None:
        found.is_reachable = True
        found.fields.update(fields)

    monkeypatch.setattr("coordlib.cli.main.status._from_kafka", asked)
    return fields


@pytest.mark.parametrize(
    ("lag_ms", "archive_ms", "late"),
    [
        (60_000, 5_000, []),
        (60_001, 5_000, ["lag"]),
        (None, 5_000, ["lag"]),
        (0, 5_001, ["archive_lag"]),
        (0, None, ["archive_lag"]),
        (60_001, None, ["lag", "archive_lag"]),
    ],
)
def test_who_is_late_is_told(
    lag_ms: int | None,
    archive_ms: int | None,
    late: list[str],
    answers: dict[str, Any],
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At night somebody read exit code 3, and nothing that said what was wrong."""
    answers["lag"] = {"records": 9, "ms": lag_ms}
    answers["archive_lag"] = {"records": 9, "ms": archive_ms}
    bounds = ["--max-lag-ms", "60000", "--max-archive-lag-ms", "5000", "--tables", str(tmp_path)]

    code = main(["status", *NOBODY, *bounds, "--format", "json"])

    told = capsys.readouterr()
    found = json.loads(told.out)["late"]
    assert code == (UNHEALTHY if late else OK)
    assert [each["what"] for each in found] == late
    lines = told.err.splitlines()
    assert len(lines) == len(late)
    for each, line in zip(found, lines, strict=True):
        is_lag = each["what"] == "lag"
        assert each["max_ms"] == (60_000 if is_lag else 5_000)
        assert each["ms"] == (lag_ms if is_lag else archive_ms)
        assert ("--max-lag-ms 60000" if is_lag else "--max-archive-lag-ms 5000") in line
        assert ("not known" in line) == (each["ms"] is None)


def test_nobody_is_late_without_a_bound(answers: dict[str, Any], cli: Cli) -> None:
    """What is too late for one service is nothing for another."""
    answers["lag"] = {"records": 9, "ms": 3_600_000}

    assert cli.json("status", *NOBODY)["late"] == []


@pytest.mark.parametrize(
    ("lag_ms", "kept_ms", "is_late"),
    [(49, 100, False), (51, 100, True), (51, None, False), (None, 100, False)],
)
def test_requests_that_will_be_removed_unread_are_told_of_before(
    lag_ms: int | None, kept_ms: int | None, is_late: bool, answers: dict[str, Any], cli: Cli
) -> None:
    """The job was away for days, members heartbeat on, and then no start went on."""
    answers |= {"lag": {"records": 9, "ms": lag_ms}, "retention_ms": kept_ms}

    told = cli("status", *NOBODY, "--format", "json", code=UNHEALTHY if is_late else OK)
    late = [{"what": "retention", "ms": lag_ms, "max_ms": kept_ms}] if is_late else []
    assert json.loads(told.out)["late"] == late
    assert ("removed unread at 100" in told.err) is is_late


def test_the_bound_of_history_needs_its_tables(answers: dict[str, Any], cli: Cli) -> None:
    """It was late for ever, whatever the archive did: nobody had said where the tables lie."""
    assert "--tables" in cli("status", *NOBODY, "--max-archive-lag-ms", "5000", code=USAGE).err


def test_claims_are_shown_with_how_long_they_have_failed() -> None:
    """Groups are answered, and nobody would look for a query that has stood still since noon."""
    told = {"topic": "__marshal", "state": "failed", "batch_id": 7, "next_offsets": {"0": 9}}
    live = {"claims": told, "watches_failing": {"claims": {"since_ms": 5, "error": "gone"}}}

    assert _claims_of(live) == {
        **told,
        "last_batch_ms": None,
        "checkpoint": None,
        "failing_since_ms": 5,
    }
    assert _claims_of({"watches_failing": {}}) is None


@pytest.mark.parametrize(
    ("live", "code"),
    [
        ({"claims": {"topic": "t", "state": "running"}}, OK),
        ({"claims": {"topic": "t", "state": "starting"}}, OK),
        (
            {
                "claims": {"topic": "t", "state": "failed"},
                "watches_failing": {"claims": {"since_ms": 1_700_000_000_000, "error": "gone"}},
            },
            UNHEALTHY,
        ),
        (
            {
                "claims": {"topic": "t", "state": "running"},
                "watches_failing": {"claims: lag": {"since_ms": 5, "error": "silent"}},
            },
            OK,
        ),
    ],
)
def test_claims_that_fail_are_ill(
    live: dict[str, Any], code: int, answers: dict[str, Any], cli: Cli
) -> None:
    """A monitor that asks for the exit code alone saw a healthy job, whose claims were dead since
    noon."""
    answers |= {"claims": _claims_of(live)}

    shown = cli("status", *NOBODY, code=code).out
    assert ("2023-11-14T22:13:20" in shown) == (code == UNHEALTHY), "it says since when"
