"""`coord cluster history`: who led what and why, from the tables alone."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from coordlib.cli.controller.app import LEADERS, STATES
from coordlib.exit_codes import FAILED
from tests.cli.kit import Cli
from tests.history.cluster_life import CLUSTER, ClusterLife, a_life_of_a_cluster
from tests.tools import clusters as c

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_life_of_a_cluster().write(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tables: Path) -> Cli:
    return Cli(capsys, "cluster", "history", where=["--tables", str(tables)])


def test_one_partition_has_its_leaders_and_why_they_changed(cli: Cli) -> None:
    """Who led orders/0 at three, and why not broker 1?"""
    assert cli(f"{CLUSTER} --topic orders --partition 0").shown == snapshot("""\
SINCE                     UNTIL                     TOPIC   PARTITION  LEADER  INCARNATION  LEADER-EPOCH  FENCE  ELECTION  REASON
2026-03-01T15:00:00.000Z  2026-03-01T15:00:23.000Z  orders  0          1       0            0             12     first     topic created
2026-03-01T15:00:23.000Z  2026-03-01T15:00:32.000Z  orders  0          -       -            1             -      -         former leader may still act: superseded by a newer registration
2026-03-01T15:00:32.000Z  -                         orders  0          2       79           2             140    offline   former leader must have stopped
2> As of the newest event of this cluster: 2026-03-01T15:00:39.000Z
""")


def test_what_is_not_proved_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A legacy leader loses its leadership without a word: two may have acted."""
    life = ClusterLife()
    life.say(c.register(1, version=4))
    life.register(2)
    life.say(c.create(c.new_topic("orders", assignment=[(1, 2)])))
    life.say(c.elect("preferred", ("orders", 0)))
    life.say(c.move(("orders", 0), (2, 1)))
    life.say(c.elect("preferred", ("orders", 0)))
    cli = Cli(capsys, where=["--tables", str(life.write(tmp_path))])
    lines = cli(f"cluster history {CLUSTER} --topic orders").lines

    assert lines[-1].endswith("preferred election by ops (unproved)")
    assert "(unproved)" not in lines[1]


def test_a_broker_has_its_states_and_what_it_led(cli: Cli) -> None:
    found = cli.json(f"{CLUSTER} --broker 2")

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


def test_without_a_choice_brokers_come_before_leaders(cli: Cli) -> None:
    lines, _ = cli(CLUSTER)

    assert lines[0].split() == [*STATES.headers]
    assert lines[lines.index("") + 1].split() == [*LEADERS.headers]
    topics = {line.split()[2] for line in lines[lines.index("") + 2 :]}
    assert topics == {"orders", "audit", "gone"}


def test_the_newest_lines_are_shown_oldest_first(cli: Cli) -> None:
    whole, short = cli.json(CLUSTER), cli.json(f"{CLUSTER} --limit 2")

    for part in ("leaders", "brokers"):
        assert len(whole[part]) > 2
        assert short[part] == whole[part][-2:]
        assert whole[part] == sorted(whole[part], key=lambda row: row["since"])
    assert "brokers" not in cli.json(f"{CLUSTER} --topic orders")


@pytest.fixture(scope="module")
def quiet_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def quiet(capsys: pytest.CaptureFixture[str], quiet_tables: Path) -> Cli:
    return Cli(capsys, "cluster", "history", CLUSTER, where=["--tables", str(quiet_tables)])


def test_since_shows_who_led_when_it_began_however_long_ago_that_was(quiet: Cli) -> None:
    """The files of the newer date have one change of a partition, which began no leader epoch, and
    nothing of the brokers: read alone, they name a false time, and no process."""
    whole, found = quiet.json("--limit 100"), quiet.json("--since 2026-03-02")

    assert found["leaders"] == [row for row in whole["leaders"] if row["until"] is None]
    assert found["brokers"] == [row for row in whole["brokers"] if row["until"] is None]
    led = [(row["topic"], row["leader"], row["since"][:10]) for row in found["leaders"]]
    assert led == [("orders", 1, "2026-03-01"), ("audit", 2, "2026-03-01")]
    assert found["leaders"][0]["reason"] == "topic created"
    assert None not in [row["incarnation"] for row in found["leaders"]]
    states = [(row["broker"], row["state"]) for row in found["brokers"]]
    assert states == [(1, "Active"), (2, "Active")]
    assert len(whole["brokers"]) > len(found["brokers"])
    assert len(whole["leaders"]) > len(found["leaders"])
    assert (whole["since"], found["since"]) == (None, "2026-03-02")


def test_since_the_day_itself_shows_what_ended_on_it(quiet: Cli) -> None:
    """The day has its times in UTC, its first moment included."""
    whole, found = quiet.json("--limit 100"), quiet.json("--since 2026-03-01")

    assert (found["leaders"], found["brokers"]) == (whole["leaders"], whole["brokers"])


def test_since_a_day_after_all_events_tells_what_holds_and_when_it_was_known(quiet: Cli) -> None:
    """Nothing has happened since: the leaders of before still lead."""
    found = quiet.json("--since 2026-04-01 --topic orders")

    assert [row["leader"] for row in found["leaders"]] == [1]
    assert found["newest_event"].startswith("2026-03-03")


def test_since_goes_with_the_other_choices(quiet: Cli) -> None:
    found = quiet.json("--since 2026-03-02 --broker 2 --limit 1")

    assert [(row["topic"], row["leader"]) for row in found["leaders"]] == [("audit", 2)]
    assert [row["state"] for row in found["brokers"]] == ["Active"]


def test_the_history_of_a_group_points_to_that_of_a_cluster(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys, "groups", where=["--tables", str(tables)])
    hint = cli.error("history", CLUSTER, code=FAILED)[-1]
    assert hint == f"This is a cluster of brokers. See: coord cluster describe {CLUSTER}"
