"""Command lines that cannot be meant: three lines, exit code 2, and no broker is asked."""

import shlex
from typing import Any

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from tests.cli.kit import Cli

#: One command line each; behind `=>` what the error says, in any of its lines.
WRONG = r"""
nothing => Try: coord
groups nothing => Try: coord
groups describe => GROUP is missing.
groups describe => Try: coord groups describe -h
groups describe token-x y => The command line has 1 word more than the command takes: ***
groups describe a b c => The command line has 2 words more than the command takes: b c
groups list --nothing => Try: coord groups list -h
groups list --state Idle => Idle is no state of a group
groups list --topic 'a b' => This is no topic's name.
groups list --topic a/b => This is no topic's name.
groups list --topic . => This is no topic's name.
groups list --topic .. => This is no topic's name.
groups list --topic größe => This is no topic's name.
groups list --topic a:0 => This is no topic's name.
groups history g --limit many => Try: coord groups history -h
groups history g --limit -1 => Try: coord groups history -h
groups history g --since 1.3.2026 => not a date like 2026-03-01
groups history g --since 2026-3-1 => not a date like 2026-03-01
groups history g --since 2026-02-30 => not a date like 2026-03-01
groups history g --since yesterday => not a date like 2026-03-01
groups history g --since '' => not a date like 2026-03-01
groups remove-members g --yes => Give one of --member ID …, --instance ID … and --all.
groups remove-members g --yes --all --member m => Give one of
groups remove-members g --yes --member m --instance i => Give one of
offsets delete g => The option --topics is missing.
offsets delete --topics t => GROUP is missing.
offsets delete g --topics => --topics
offsets delete g --yes --topics t: => t: names no partitions
offsets delete g --yes --topics t:a => t:a names no partitions
offsets delete g --yes --topics t:1,,2 => t:1,,2 names no partitions
offsets delete g --yes --topics t --topics t:0
offsets delete g --yes --topics t:0 --topics t
offsets delete g --yes --topics t:-1
offsets delete g --yes --topics t:0,-1
offsets delete g --yes --topics t:1.5
offsets delete g --yes --topics t:٣
offsets delete g --yes --topics 't: 1'
offsets delete g --yes --topics t:2147483648
sql => Try: coord sql -h
sql 'select 1' --format yaml => Try: coord sql -h
sql 'select 1' --timeout nan => Try: coord sql -h
up --shards two => Try: coord up -h
up --shards 0 => Try: coord up -h
log check => Try: coord
acl print --role king
acl print --role member --topics 'a b'
acl print --role archive --topics orders
acl print --role job --groups billing
acl print --principal User:*
acl apply --role member --principal User:a
acl apply --role archive --principal alice
acl apply --role claims --principal User:a
acl apply --role claimant --principal User:a --claims m
acl apply --role claimant --principal User:a --topics t --groups g
acl apply --role member --principal User:a --topics t --claims m
acl apply --role archive --principal User:a --outputs o
acl apply --role archive
acl apply --principal User:a
transactions list --state Stable => Stable is no state of a transactional id.
transactions list --longer-than 5 => "5" is not a duration
transactions list --longer-than '5 m' => "5 m" is not a duration
transactions list --longer-than=-5m => "-5m" is not a duration
transactions list --longer-than 1.5h => "1.5h" is not a duration
transactions abort id --of-kafka --yes --reason why => Kafka keeps no reason.
transactions decide g r0-1 --commit => The option --reason is missing.
transactions decide g r0-1 --reason why => Give one of --commit and --abort.
transactions decide g r0-1 --commit --abort --reason why => Give one of --commit and --abort.
transactions decide g r0-1 --commit --reason ' ' => A reason is needed.
transactions decide g --commit --reason why => KEY is missing.
cluster brokers ''
cluster describe => CLUSTER is missing.
cluster partitions shop --broker -1
cluster partitions shop --broker 2147483648
cluster partitions shop --topic 'a b'
cluster history shop --since yesterday => not a date like 2026-03-01
cluster history shop --partition 1
cluster history shop --topic t --partition x
cluster create-topic shop t
cluster create-topic shop t --partitions 1
cluster create-topic shop t --partitions 0 --replication-factor 1
cluster create-topic shop t --replica-assignment 1:2 --partitions 1
cluster create-topic shop t --replica-assignment 1,,2
cluster create-topic shop t --replica-assignment 2147483648
cluster create-topic shop '' --replica-assignment 1
cluster create-topic shop 'a b' --replica-assignment 1
cluster create-topic '' t --replica-assignment 1
cluster create-topic shop t --partitions 2 --replication-factor 2 --min-isr 3 => of 2 replicas
cluster create-topic shop t --replica-assignment 1:2,2:3 --min-isr 3 => --min-isr 3, of 2 replicas
cluster create-partitions shop t
cluster create-partitions shop t --count two
cluster create-partitions shop t --count 2 --replica-assignment 1:
cluster create-partitions shop t --count 3 --replica-assignment 1,2,3,1
cluster create-partitions shop t --count 3 --replica-assignment 1,2,3
cluster delete-topic shop
cluster delete-topic shop .. --yes
cluster elect shop => Give one of --preferred and --unclean.
cluster elect shop --preferred --unclean --yes => Give one of --preferred and --unclean.
cluster elect shop --preferred --partition orders
cluster elect shop --preferred --partition orders:-1
cluster elect shop --preferred --partition orders:2147483648
cluster reassign shop => Give one of --plan FILE and --cancel.
cluster reassign shop --plan no-such-file.json
cluster reassign shop --plan /dev/null
cluster reassign shop --plan /
cluster reassign shop --plan p --cancel
cluster reassign shop --plan p --partition orders:0
cluster unregister shop
cluster unregister shop -1 --yes
cluster remove-broker shop one --yes
cluster release
cluster delete '' --yes
claims create x.1s
claims pause g --for -1s
claims pause g --for 300
claims pause g --for 9999999999d
claims pause g --for 1_0s
claims pause g --for ٣s
claims set-position g --apply --yes => No new positions are named.
claims set-position g --apply --yes --to-earliest --to-latest => Two ways to name positions
claims set-position g --apply --yes --to banana
claims set-position g --apply --yes --to t:0=1,t:0=2
claims set-position g --apply --yes --to t:0=-1
claims set-position g --apply --yes --shift-by 1e3
claims set-position g --apply --yes --to-datetime tomorrow
claims set-position g --apply --yes --to-earliest --timeout 1
"""
CASES = [line for line in WRONG.splitlines() if line]

#: In the place of each NAME stands what is no name of a group, member, topic, id or cluster.
NAMED = """
groups describe NAME
groups delete NAME --yes
groups release NAME
groups history NAME
groups remove-members NAME --all --yes
groups remove-members g --yes --member NAME
groups remove-members g --yes --member m --member NAME
groups remove-members g --yes --instance NAME
groups list --topic NAME
offsets delete NAME --yes --topics t
offsets delete g --yes --topics NAME
offsets delete g --yes --topics NAME:0
offsets delete g --yes --topics t --topics NAME
transactions describe NAME
transactions pending NAME
transactions abort NAME
transactions release NAME
transactions history NAME
transactions decide g NAME --commit --reason why
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Where]:
    """The clusters that commands have asked; none of them answers."""
    found: list[Where] = []

    def reach(where: Where, *_: str) -> dict[str, Any]:
        found.append(where)
        raise TimeoutError

    monkeypatch.setattr(Where, "reach", reach)
    monkeypatch.setenv("COORD_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setenv("COORD_TABLES", str(tmp_path))
    monkeypatch.setenv("COORD_HOME", str(tmp_path))
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_meant_is_told_before_anybody_is_asked(
    case: str, asked: list[Where], cli: Cli
) -> None:
    """Nothing is done by half: of two options that exclude each other, of a topic that is named
    whole and in part, of a plan with one row that is none."""
    line, _, expected = case.partition(" => ")
    said = cli.error(*shlex.split(line))

    assert expected in "\n".join(said)
    assert asked == []


@pytest.mark.parametrize("name", ["", "x" * 250, "a\x1b[2J", "é" * 125])
@pytest.mark.parametrize("line", NAMED.strip().splitlines())
def test_what_cannot_be_a_name_goes_to_no_broker(
    line: str, name: str, asked: list[Where], cli: Cli
) -> None:
    """`groups delete "$GROUP"` with GROUP unset asked the coordinator for a group without name."""
    what, _, hint = cli.error(*(word.replace("NAME", name) for word in line.split()))

    assert asked == []
    assert "name" in what
    assert "1 to 249" in hint


def test_an_option_without_its_value_is_not_called_missing(cli: Cli, asked: list[Where]) -> None:
    assert "is missing" not in cli.error("offsets delete g --topics")[0]


def test_partitions_of_a_topic_are_gathered(
    asked: list[Where], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--topics orders:0 --topics orders:1` deleted the last one only, and ended well."""
    named: list[Any] = []

    class Admin:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> "Admin":
            return self

        def __exit__(self, *_: object) -> None: ...

        def delete_offsets(self, group: str, topics: Any) -> tuple[int, tuple[()]]:
            named.append((group, topics))
            return 4, ()

    monkeypatch.setattr(Where, "reach", lambda _: {})
    monkeypatch.setattr("coordlib.client.admin.Admin", Admin)
    given = ["orders:0", "orders:1", "a.b", "orders:1,2"]
    options = [word for each in given for word in ("--topics", each)]

    assert main(["offsets", "delete", "g", "--yes", *options]) == 0
    assert named == [("g", {"orders": (0, 1, 2), "a.b": None})]


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1.5", "2.0", "0x10", "0b1", "0o7", "1_0", "٣", "+1", " 1", "1e2", "", "²", "-1", "0"]
)
@pytest.mark.parametrize("option", ["--shards", "--replication"])
def test_a_count_is_of_digits_only(option: str, text: str, cli: Cli, asked: list[Where]) -> None:
    """`--shards 1.5` made two shards, and their number is fixed for the life of a prefix."""
    said = cli.error("topics create", f"{option}={text}")

    if text == "-1":
        assert "Must be >= 1" in said[0], "its bound says more than that -1 were no number"


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "infinity", "1_0", "٣", "", "0", "-1", "1e9"]
)
def test_seconds_are_finite_and_of_digits(text: str, cli: Cli, asked: list[Where]) -> None:
    """A comparison with nan is always false: a loop of nan turns a second never waits."""
    cli.error("sql", "select 1", f"--timeout={text}")


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("007", 7)])
def test_digits_are_taken(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts pad numbers with zeros; they are decimal all the same."""
    given: list[Any] = []
    monkeypatch.setattr(Where, "reach", lambda _: {})
    monkeypatch.setattr("coordlib.kafka.topics.create", lambda *found: given.extend(found) or [])

    assert main(["topics", "create", "--shards", text, "-b", "nowhere:1"]) == 0
    assert number in given


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("0.25", 0.25), (".5", 0.5)])
def test_seconds_may_have_a_fraction(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        "coordlib.history.sql.Question.__init__",
        lambda self, *found, **more: given.extend([*found, *more.values()]) or 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        main(["sql", "select 1", "--timeout", text, "--tables", str(tmp_path)])
    assert seconds in given
