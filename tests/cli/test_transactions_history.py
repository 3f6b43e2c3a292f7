"""`coord transactions history`: how the transactions of an id ended, from the tables."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.cli.kit import Cli
from tests.history.transaction_life import ID, a_life_of_transactions


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_life_of_transactions().write(tmp_path_factory.mktemp("transactions"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tables: Path) -> Cli:
    return Cli(capsys, "transactions", "history", where=["--tables", str(tables)])


def test_it_says_who_ended_what_and_why(cli: Cli) -> None:
    assert cli(ID).shown == snapshot("""\
STARTED                   ENDED                     PRODUCER-ID  EPOCH  RESULT  REASON    ENDED-BY  COMMENT  DURATION  GROUPS   PARTITIONS  CLIENT-ID
2026-03-01T15:00:01.000Z  2026-03-01T15:00:04.000Z  0            0      commit  client    -         -        4.0s      billing  1           a
2026-03-01T15:00:10.000Z  2026-03-01T15:00:14.000Z  0            1      abort   operator  ops       INC-512  4.0s      billing  1           a
2026-03-01T15:00:20.000Z  2026-03-01T15:00:22.000Z  0            2      abort   fenced    b         -        2.0s      -        1           a
2026-03-01T15:00:25.000Z  -                         0            4      -       -         -         -        -         -        -           a

FENCED                    PRODUCER-ID  EPOCH  CLIENT-ID  FENCED-BY
2026-03-01T15:00:22.000Z  0            2      a          b
2> As of the newest event of this transactional id: 2026-03-01T15:00:25.000Z
""")


def test_json_has_lists(cli: Cli) -> None:
    found = cli.json(ID, "--limit", "2")
    assert [row["epoch"] for row in found["transactions"]] == [2, 4]
    assert found["transactions"][0]["groups"] == []
    assert (found["transactional-id"], len(found["fenced"]), found["refused"]) == (ID, 1, [])
