"""What cannot be undone asks first: every command that has --yes, over the real core."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from inline_snapshot import snapshot

from coordlib.cli.kit.output import confirm
from coordlib.client.transactions import data_cluster
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.kafka import transactions
from coordlib.testing.fake_log import FakeLog
from tests.cli.kit import Cli, arguments_of, at_a_terminal, leaves, tree
from tests.cli.shop import WHERE, Shop, open_log
from tests.cli.till import Till
from tests.client.test_admin import commit_as
from tests.tools.defects import Defect, in_force

ASKS = """
groups delete g
groups remove-members g --all
offsets delete g --topics t
cluster delete-topic shop orders
cluster elect shop --unclean
cluster remove-broker shop 1
cluster unregister shop 1
cluster delete shop
transactions abort open
transactions abort of-kafka --of-kafka
transactions release ill
transactions decide billing KEY --abort --reason why
transactions finish decided
""".strip().splitlines()
#: These need a world of their own: test_wipe.py and test_claims.py.
ELSEWHERE = {("down",), ("claims", "set-position")}


def test_every_command_that_asks_is_here() -> None:
    asking = {
        path
        for path, command in leaves(tree())
        if any("--yes" in each.names for each in arguments_of(command))
    }
    assert asking == {tuple(line.split()[:2]) for line in ASKS} | ELSEWHERE


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLog]:
    """All that the commands are about is there; nobody may write to Kafka itself."""

    def never(*_: object) -> Any:
        raise AssertionError("Kafka was asked to change something")

    monkeypatch.setattr(transactions, "fence", never)
    monkeypatch.setattr(data_cluster, "write_markers", never)
    with open_log(monkeypatch) as made:
        Shop(made).start(1)
        till = Till(made)
        commit_as(till.client, "g", ("t", 0))
        till.begin("open", 0)
        till.end("decided", *till.begin("decided", 1))
        till.begin("ill")
        with in_force([Defect("ill", "AddPartitionsToTxn", first=0)]), suppress(CoordError):
            rows = (api.TopicsOfCluster(cluster="c", topic="out", partitions=(7,)),)
            till.ask("ill", api.AddPartitionsToTxn, producer_id=0, epoch=0, partitions=rows)
        monkeypatch.setattr(
            "tests.cli.test_asking.KEY",
            till.pend("billing", 5, decided_by="delta", table="s3://lake/t"),
        )
        yield made


KEY = ""


def words(line: str) -> list[str]:
    return [KEY if word == "KEY" else word for word in line.split()]


def test_in_a_pipe_nothing_is_done_without_a_word(log: FakeLog, cli: Cli) -> None:
    """A script that hangs at a question is as bad as one that deletes unasked."""
    before, asked = len(log.outputs), []
    for line in ASKS:
        said = cli(*words(line), *WHERE, code=USAGE).said
        assert said[-1] == "Nothing was done. Say --yes if it is meant."
        what, _, rest = said[-3].partition(" cannot be undone, ")
        assert rest == "and there is no terminal to ask on."
        asked.append(f"{what}: {said[-2]}".replace(KEY, "KEY"))

    assert asked == snapshot(
        [
            "Deleting a group with its offsets: group g",
            "Removing all members: group g",
            "Deleting offsets of t: group g",
            "Deleting topic orders: cluster shop",
            "An unclean election: cluster shop, all partitions that nobody in sync can lead",
            "Removing broker 1: cluster shop",
            "Unregistering broker 1: cluster shop",
            "Deleting a cluster: cluster shop",
            "Aborting its open transaction: transactional id open",
            "Fencing its producer: transactional id of-kafka of Kafka",
            "Releasing it from quarantine: transactional id ill",
            "Deciding abort: group billing, key KEY",
            "Writing the markers of its commit: transactional id decided",
        ]
    )
    assert len(log.outputs) == before


def test_whoever_does_not_agree_on_a_terminal_changes_nothing(
    log: FakeLog, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(log.outputs)
    for line in ASKS:
        at_a_terminal(monkeypatch, "n\n")
        said = cli(*words(line), *WHERE, code=FAILED).said

        assert sum("This cannot be undone. Go on? [y/N]" in each for each in said) == 1, line
        assert "Nothing was done." in said
    assert len(log.outputs) == before


def test_whoever_agrees_on_a_terminal_is_believed(
    log: FakeLog, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch, "y\n")

    assert cli("groups delete g", *WHERE, code=OK).said[-1] == "g is deleted"


@pytest.mark.parametrize("typed", ["y\n", "YES\n", " yes \n"])
def test_yes_has_two_spellings(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, typed)
    confirm("To do it", "here", yes=False)


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "yesterday\n"])
def test_all_else_is_no(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, typed)
    with pytest.raises(CoordError, match="Nothing was done"):
        confirm("To do it", "here", yes=False)
