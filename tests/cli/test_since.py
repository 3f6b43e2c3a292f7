"""How far back commands read history: old dates are opened only where somebody asks for them."""

from datetime import date
from pathlib import Path

import pytest

from coordlib.exit_codes import FAILED, UNREACHABLE
from coordlib.history import sql as history_sql
from coordlib.history.sql import dates, query_all
from coordlib.history.tables import EVENTS
from tests.cli.kit import Cli
from tests.cli.tables import write_events
from tests.history.rows import Log

DAY = 86_400.0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two groups of which one ended long before the other's newest event; the first day is the
    1st of March, and the last one the 20th of April."""
    folder, log = tmp_path_factory.mktemp("tables"), Log()
    log.event("GenerationStarted", 0, generation=1, members=["m1"], reason="member joined")
    log.event("GenerationStarted", 0, group="retired", members=[], reason="long ago")
    log.event("CommitRefused", 1, group="retired", member="m9", reason="UNKNOWN_MEMBER_ID")
    log.event("GenerationStarted", 40 * DAY, generation=2, members=[], reason="session expired")
    log.event("OffsetsCommitted", 50 * DAY, group="retired", offsets=[])
    write_events(log, folder)
    return str(folder)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tables: str) -> Cli:
    return Cli(capsys, where=["--tables", tables])


HISTORIES = ["groups history", "transactions history", "cluster history"]


@pytest.mark.parametrize("command", HISTORIES)
def test_a_name_without_history_is_told_in_three_lines(command: str, cli: Cli) -> None:
    what, where, hint = cli.error(command, "nobody", code=FAILED)

    assert what.endswith("_ID_NOT_FOUND")
    assert "nobody" in where
    assert f"coord {command.split(maxsplit=1)[0]} list" in hint


@pytest.mark.parametrize("command", [*HISTORIES, "claims history"])
def test_without_tables_nothing_is_known(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys, *command.split(), "x", "-b", "nowhere:1")
    cli.error("--tables", str(tmp_path / "none"), code=UNREACHABLE)
    assert "--tables" in cli.error("--limit 9")[2]


def test_a_month_of_history_is_read_unless_more_is_asked_for(cli: Cli) -> None:
    """After a year the files of each date were opened to show the last rebalance of one group."""
    newest = cli.json("groups history payments")
    assert [each["cause"] for each in newest["generations"]] == ["session expired"]
    assert newest["since"] == "2026-03-21"
    whole = cli.json("groups history payments --since 2026-03-01")
    assert [each["cause"] for each in whole["generations"]] == ["member joined", "session expired"]
    assert whole["since"] is None
    assert "Read from 2026-03-21 on; --since DATE" in cli("groups history payments").err


def test_what_ended_long_ago_is_found_without_a_date(cli: Cli) -> None:
    """Somebody asks why a group is no more: within the last month it has commits alone."""
    found = cli.json("groups history retired")

    assert [each["cause"] for each in found["generations"]] == ["long ago"]
    assert [each["error"] for each in found["refused"]] == ["UNKNOWN_MEMBER_ID"]
    assert found["since"] is None


def test_a_group_that_is_older_than_the_date_is_known_all_the_same(cli: Cli) -> None:
    """Nothing since then is an answer; a name that nobody ever had is a mistake."""
    found = cli.json("groups history payments --since 2026-04-19")

    assert (found["generations"], found["since"]) == ([], "2026-04-19")
    assert found["newest_event"].startswith("2026-04-10")
    cli.error("groups history nobody --since 2026-04-19", code=FAILED)


def test_files_of_earlier_dates_are_not_opened(tables: str, tmp_path: Path) -> None:
    """A broken file of long ago must not keep anybody from what is asked for; that it does without
    the date shows that the file would have been read."""
    log = Log()
    log.event("GenerationStarted", 0, members=[])
    log.event("GenerationStarted", 5 * DAY, members=[])
    write_events(log, tmp_path)
    (old,) = (tmp_path / EVENTS / "date=2026-03-01").iterdir()
    old.write_bytes(b"x" * old.stat().st_size)
    of_date = date(2026, 3, 2)

    assert query_all(str(tmp_path), [("SELECT count(*) FROM generations", ())], of_date)[
        0
    ].rows == ((1,),)
    with pytest.raises(Exception, match=r"Parquet|parquet|not the history"):
        query_all(str(tmp_path), [("SELECT count(*) FROM generations", ())])


def test_a_copied_table_has_the_same_rows(tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables lie on an object store: delta-rs copies them, and the date holds there as well."""
    question = [("SELECT event_id FROM events ORDER BY 1", ())]
    since = date(2026, 3, 2)
    native = query_all(tables, question, since)[0].rows

    monkeypatch.setattr("coordlib.history.delta_files.native_files", lambda *_: None)

    assert len(native) == 2
    assert query_all(tables, question, since)[0].rows == native


def test_sql_reads_from_a_date_on(cli: Cli) -> None:
    """Any view, though the date of most cannot be pushed below their windows."""
    found = cli.json("sql", "select generation from generations", "--since", "2026-03-02")
    assert found["rows"] == [{"generation": 2}]


def test_dates_are_those_of_the_log(tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is opened to find them."""
    monkeypatch.setattr(history_sql, "_connect", None)

    assert dates(tables) == (date(2026, 3, 1), date(2026, 4, 20))
