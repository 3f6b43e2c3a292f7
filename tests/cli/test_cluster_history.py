"""`coord cluster history`: who led what and why, from the tables alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.controller.app import LEADERS, STATES
from coordlib.cli.main.main import main
from coordlib.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tests.history.cluster_life import CLUSTER, ClusterLife, a_life_of_a_cluster
from tests.tools import clusters as c

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_life_of_a_cluster().write(tmp_path_factory.mktemp("tables"))


def told(
    tables: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[list[str], list[str]]:
    """Lines of the result, and what was said."""
    assert main(["cluster", "history", CLUSTER, *options, "--tables", str(tables)]) == OK
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err.splitlines()


def objects(tables: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    (line,), _ = told(tables, capsys, *options, "--format", "json")
    found: dict[str, Any] = json.loads(line)
    return found


def test_one_partition_has_its_leaders_and_why_they_changed(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who led orders/0 at three, and why not broker 1?"""
    lines, said = told(tables, capsys, "--topic", "orders", "--partition", "0")

    shown = [line.split(maxsplit=len(LEADERS.headers) - 1) for line in lines]
    assert shown == [
        [*LEADERS.headers],
        ["2026-03-01T15:00:00.000Z", "2026-03-01T15:00:23.000Z", "orders", "0", "1", "0", "0", "12",
         "first", "topic created"],
        ["2026-03-01T15:00:23.000Z", "2026-03-01T15:00:32.000Z", "orders", "0", "-", "-", "1", "-",
         "-", "former leader may still act: superseded by a newer registration"],
        ["2026-03-01T15:00:32.000Z", "-", "orders", "0", "2", "79", "2", shown[3][7], "offline",
         "former leader must have stopped"],
    ]  # fmt: skip
    assert said == ["As of the newest event of this cluster: 2026-03-01T15:00:39.000Z"]


def test_what_is_not_proved_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A legacy leader loses its leadership without a word: two may have acted."""
    life = ClusterLife()
    life.say(c.register(1, version=4))
    life.register(2)
    life.say(c.create(c.new_topic("orders", assignment=[(1, 2)])))
    life.say(c.elect("preferred", ("orders", 0)))
    life.say(c.move(("orders", 0), (2, 1)))
    life.say(c.elect("preferred", ("orders", 0)))
    lines, _ = told(life.write(tmp_path), capsys, "--topic", "orders")

    assert lines[-1].endswith("preferred election by ops (unproved)")
    assert "(unproved)" not in lines[1]


def test_a_broker_has_its_states_and_what_it_led(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = objects(tables, capsys, "--broker", "2")

    states = [(row["state"], row["incarnation"], row["reason"]) for row in found["brokers"]]
    assert states == [
        ("Inactive", 4, "registered"),
        ("Active", 4, "broker comes"),
        ("Inactive", 4, "session expired"),
        ("Inactive", 79, "registered"),
        ("Active", 79, "broker comes"),
    ]
    assert {row["leader"] for row in found["leaders"]} == {2}
    assert list(found["brokers"][0]) == [name.lower() for name in STATES.headers]
    assert list(found["leaders"][0]) == [name.lower() for name in LEADERS.headers]


def test_without_a_choice_brokers_come_before_leaders(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = told(tables, capsys)

    assert lines[0].split() == [*STATES.headers]
    assert lines[lines.index("") + 1].split() == [*LEADERS.headers]
    topics = {line.split()[2] for line in lines[lines.index("") + 2 :]}
    assert topics == {"orders", "audit", "gone"}


def test_the_newest_lines_are_shown_oldest_first(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, short = objects(tables, capsys), objects(tables, capsys, "--limit", "2")

    for part in ("leaders", "brokers"):
        assert len(whole[part]) > 2
        assert short[part] == whole[part][-2:]
        assert whole[part] == sorted(whole[part], key=lambda row: row["since"])
    assert "brokers" not in objects(tables, capsys, "--topic", "orders")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On the 1st of March topics are created, and broker 2 is replaced; two days later nothing
    happens but that broker 2 joins the in-sync replicas of `orders`."""
    life = ClusterLife()
    life.register(1)
    life.register(2, storage="disk-2")
    life.say(c.create(c.new_topic("orders", assignment=[(1, 2)])))
    life.say(c.create(c.new_topic("audit", assignment=[(2,)])))
    life.passes(2)
    life.register(2, client="b2-again", storage="disk-2")
    life.passes(15)
    life.talk.now_ms += 2 * DAY_MS
    life.isr("orders", 0, 1, 2)
    return life.write(tmp_path_factory.mktemp("quiet"))


def test_since_shows_who_led_when_it_began_however_long_ago_that_was(
    quiet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the newer date have one change of a partition, which began no leader epoch, and
    nothing of the brokers: read alone, they name a false time, and no process."""
    whole, found = objects(quiet, capsys), objects(quiet, capsys, "--since", "2026-03-02")

    assert found["leaders"] == [row for row in whole["leaders"] if row["until"] is None]
    assert found["brokers"] == [row for row in whole["brokers"] if row["until"] is None]
    led = [(row["topic"], row["leader"], row["since"][:10]) for row in found["leaders"]]
    assert led == [("orders", 1, "2026-03-01"), ("audit", 2, "2026-03-01")]
    assert found["leaders"][0]["reason"] == "topic created"
    assert None not in [row["incarnation"] for row in found["leaders"]]
    assert [(row["broker"], row["state"]) for row in found["brokers"]] == [
        (1, "Active"),
        (2, "Active"),
    ]
    assert len(whole["brokers"]) > len(found["brokers"])
    assert len(whole["leaders"]) > len(found["leaders"])
    assert (whole["since"], found["since"]) == (None, "2026-03-02")


def test_since_the_day_itself_shows_what_ended_on_it(
    quiet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The day has its times in UTC, its first moment included."""
    whole, found = objects(quiet, capsys), objects(quiet, capsys, "--since", "2026-03-01")

    assert (found["leaders"], found["brokers"]) == (whole["leaders"], whole["brokers"])


def test_since_a_day_after_all_events_tells_what_holds_and_when_it_was_known(
    quiet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing has happened since: the leaders of before still lead."""
    found = objects(quiet, capsys, "--since", "2026-04-01", "--topic", "orders")

    assert [row["leader"] for row in found["leaders"]] == [1]
    assert found["newest_event"].startswith("2026-03-03")


def test_since_goes_with_the_other_choices(quiet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = objects(quiet, capsys, "--since", "2026-03-02", "--broker", "2", "--limit", "1")

    assert [(row["topic"], row["leader"]) for row in found["leaders"]] == [("audit", 2)]
    assert [row["state"] for row in found["brokers"]] == ["Active"]
    command = ["cluster", "history", CLUSTER, "--since", "yesterday", "--tables", str(quiet)]
    assert main(command) == USAGE
    assert "not a date like 2026-03-01" in capsys.readouterr().err


def test_a_cluster_without_history_is_told_in_three_lines(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "history", "shpo", "--tables", str(tables)]) == FAILED
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[0]) == (3, "GROUP_ID_NOT_FOUND")

    nowhere = str(tables / "nowhere")
    assert main(["cluster", "history", CLUSTER, "--tables", nowhere]) == UNREACHABLE
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_the_history_of_a_group_points_to_that_of_a_cluster(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "history", CLUSTER, "--tables", str(tables)]) == FAILED

    hint = capsys.readouterr().err.splitlines()[-1]
    assert hint == f"This is a cluster of brokers. See: coord cluster describe {CLUSTER}"
