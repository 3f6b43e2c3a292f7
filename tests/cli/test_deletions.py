"""`coord groups delete|remove-members`, `coord offsets delete`: over the real core, without a broker.
That they ask first is in test_asking.py."""

import json
from collections.abc import Iterator

import pytest
from inline_snapshot import snapshot

from coordlib.cli.groups import view
from coordlib.cli.groups.view import SeenGroup
from coordlib.cli.kit.where import Where
from coordlib.client import admin
from coordlib.client.admin import Admin
from coordlib.errors import CannotReach
from coordlib.exit_codes import FAILED
from coordlib.testing.fake_log import FakeLog
from tests.cli.kit import Cli
from tests.cli.shop import WHERE
from tests.client.test_admin import commit_as, join_as, sync_as
from tests.tools.background import judged


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, where=WHERE)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    """An admin of a log that is judged in the background; the command speaks to the same log."""
    with judged(FakeLog({"t": 1})) as log:
        monkeypatch.setattr(admin, "KafkaTransport", lambda *_: log.transport())
        monkeypatch.setattr(Where, "reach", lambda _: {})
        yield Admin(transport=log.transport(), client="app")


def test_a_group_is_deleted_when_it_is_meant(tool: Admin, cli: Cli) -> None:
    commit_as(tool, "g", ("t", 0))

    told = cli("groups delete g --yes")
    assert (told.out, told.err) == ("", "g is deleted\n")
    assert tool.describe_group("g").state == "Dead"
    error = cli.json("groups delete g --yes", code=FAILED)["error"]
    assert error["what"] == "GROUP_ID_NOT_FOUND"


def test_offsets_are_deleted_by_topic_and_partition(tool: Admin, cli: Cli) -> None:
    """What members subscribe to is refused by name, and the exit code says that some were."""
    commit_as(tool, "g", ("t", 0), ("u", 0), ("u", 1), ("v", 0), ("v", 1))
    join_as(tool, "g", "t")

    command = ["offsets", "delete", "g", "--topics", "u:1,5", "--topics", "v", "--yes"]
    assert cli(*command).err == "4 partitions of g without offset now\n"
    assert [(row.topic, row.partition) for row in tool.committed("g")] == [("t", 0), ("u", 0)]

    assert cli("offsets delete g --topics t --yes", code=FAILED).out.splitlines() == [
        "GROUP  TOPIC  PARTITION  ERROR",
        "g      t      0          GROUP_SUBSCRIBED_TO_TOPIC",
    ]
    told = cli.json(*command[:5], "--yes")
    assert (told["_command"], told["asked"], told["failed"]) == ("offsets delete", 2, [])


REMOVE = "groups remove-members g --yes"


def test_a_member_is_removed_and_the_group_waits_for_what_it_had(tool: Admin, cli: Cli) -> None:
    """Its owner may still be at work: whoever removed it looks at an idle partition otherwise."""
    member = join_as(tool, "g", "t")
    sync_as(tool, "g", member)

    assert cli(REMOVE, "--member", member, "--reason", "stuck").shown == snapshot("""\
2> 1 member of g removed
2> g waits until 1 former owner must have stopped; see: coord groups describe g
""")
    found = cli.json(REMOVE, "--member", member, code=FAILED)
    assert found["_command"] == "groups remove-members"
    gone = {"consumer-id": member, "instance": None, "error": "UNKNOWN_MEMBER_ID"}
    assert found["members"] == [gone]
    awaited = {"consumer-id": member, "client-id": "app", "reason": "has not stopped"}
    assert found["waits-for"] == [awaited]


def test_static_members_are_removed_by_instance_and_the_unknown_are_told(
    tool: Admin, cli: Cli
) -> None:
    """Of two hosts that were given up one had left before."""
    join_as(tool, "g", "t", instance="till-1")

    found = cli(f"{REMOVE} --instance till-1 --instance till-2", code=FAILED)
    assert found.shown == snapshot("""\
GROUP  CONSUMER-ID  INSTANCE  ERROR
g      -            till-2    UNKNOWN_MEMBER_ID
2> 1 member of g removed
""")


def test_all_members_are_removed(tool: Admin, cli: Cli) -> None:
    """Twice: the second finds nobody, and that is what was wanted."""
    join_as(tool, "g", "t")

    removed = [cli(f"{REMOVE} --all").err for _ in range(2)]
    assert removed == ["1 member of g removed\n", "0 members of g removed\n"]
    assert tool.describe_group("g").state == "Empty"


def test_what_is_done_is_told_also_when_nobody_says_for_whom_the_group_waits(
    tool: Admin, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The job stops right after it has removed the member."""
    member = join_as(tool, "g", "t")

    def silent(*_: object) -> None:
        raise CannotReach("no answer")

    monkeypatch.setattr(Admin, "describe_group", silent)
    printed = cli(f"{REMOVE} --format json --member", member)
    assert json.loads(printed.out)["waits-for"] is None
    assert printed.said[-1].startswith("The coordinator did not answer for which members")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", ["a", "b", "c", "d"]),
        (" --state stable", ["a", "d"]),
        (" --state EMPTY,stable", ["a", "b", "d"]),
        (" --state Empty --state PreparingRebalance", ["b", "c"]),
        (" --state quarantined", ["d"]),
    ],
)
def test_groups_are_listed_by_state(
    given: str, names: list[str], monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """testListGroupsWithStates: in whatever letters, as Kafka's tool takes them."""
    states = {"a": "Stable", "b": "Empty", "c": "PreparingRebalance", "d": "Stable"}
    seen = [SeenGroup(g, "classic", s, is_quarantined=g == "d") for g, s in states.items()]
    monkeypatch.setattr(view, "read_groups", lambda *_: seen)
    monkeypatch.setattr(Where, "reach", lambda _: {})

    assert [row[0] for row in cli(f"groups list{given}").rows[1:]] == names
