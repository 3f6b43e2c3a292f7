"""What takes something away for good asks first; over the real core, without a broker."""

import io
import json
from collections.abc import Iterator

import pytest

from coordlib.cli.groups import view
from coordlib.cli.groups.view import SeenGroup
from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.client import admin
from coordlib.client.admin import Admin
from coordlib.errors import CannotReach
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.testing.fake_log import FakeLog
from tests.client.test_admin import commit_as, join_as, sync_as
from tests.tools.background import judged

WHERE = ["--bootstrap-servers", "nowhere:1", "--prefix", "coord"]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    """An admin of a log that is judged in the background; the command speaks to the same log."""
    with judged(FakeLog({"t": 1})) as log:
        monkeypatch.setattr(admin, "KafkaTransport", lambda *_: log.transport())
        monkeypatch.setattr(Where, "reach", lambda _: {})
        yield Admin(transport=log.transport(), client="app")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Somebody sits at a terminal."""
    monkeypatch.setattr("sys.stdin", Terminal(text))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)


def test_a_group_is_deleted_when_it_is_meant(
    tool: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_as(tool, "g", ("t", 0))

    assert main(["groups", "delete", "g", "--yes", *WHERE]) == OK

    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "g is deleted\n")
    assert tool.describe_group("g").state == "Dead"
    assert main(["groups", "delete", "g", "--yes", *WHERE, "--format", "json"]) == FAILED
    assert json.loads(capsys.readouterr().out)["error"]["what"] == "GROUP_ID_NOT_FOUND"


@pytest.mark.parametrize(
    "command",
    [
        ["groups", "delete", "g"],
        ["groups", "remove-members", "g", "--all"],
        ["offsets", "delete", "g", "--topics", "t"],
    ],
)
def test_in_a_pipe_nothing_is_deleted_without_a_word(
    tool: Admin, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that hangs at a question is as bad as one that deletes unasked."""
    commit_as(tool, "g", ("t", 0))

    assert main([*command, *WHERE]) == USAGE

    assert capsys.readouterr().err.splitlines()[-1].endswith("Say --yes if it is meant.")
    assert len(tool.committed("g")) == 1


@pytest.mark.parametrize(("typed", "left"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_it_asks(
    tool: Admin,
    typed: str,
    left: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commit_as(tool, "g", ("t", 0))
    answer(monkeypatch, typed)

    assert main(["groups", "delete", "g", *WHERE]) == (FAILED if left else OK)

    assert "cannot be undone. Go on? [y/N]" in capsys.readouterr().err
    assert len(tool.committed("g")) == left


def test_offsets_are_deleted_by_topic_and_partition(
    tool: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """What members subscribe to is refused by name, and the exit code says that some were."""
    commit_as(tool, "g", ("t", 0), ("u", 0), ("u", 1), ("v", 0), ("v", 1))
    join_as(tool, "g", "t")

    command = ["offsets", "delete", "g", "--topics", "u:1,5", "--topics", "v", "--yes", *WHERE]
    assert main(command) == OK
    assert capsys.readouterr().err == "4 partitions of g without offset now\n"
    assert [(row.topic, row.partition) for row in tool.committed("g")] == [("t", 0), ("u", 0)]

    assert main(["offsets", "delete", "g", "--topics", "t", "--yes", *WHERE]) == FAILED
    assert capsys.readouterr().out.splitlines() == [
        "GROUP  TOPIC  PARTITION  ERROR",
        "g      t      0          GROUP_SUBSCRIBED_TO_TOPIC",
    ]
    assert main([*command[:5], "--yes", *WHERE, "--format", "json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert (told["_command"], told["asked"], told["failed"]) == ("offsets delete", 2, [])


@pytest.mark.parametrize("topics", [["t:"], ["t:a"], ["t:1,,2"]])
def test_partitions_that_are_none_are_told(
    topics: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["offsets", "delete", "g", "--topics", *topics, "--yes", *WHERE]) == USAGE

    assert f"{topics[0]} names no partitions" in capsys.readouterr().err


def test_offsets_of_no_topic_are_wrong_usage() -> None:
    assert main(["offsets", "delete", "g", "--yes", *WHERE]) == USAGE


def remove(*given: str) -> int:
    return main(["groups", "remove-members", "g", *given, "--yes", *WHERE])


def test_a_member_is_removed_and_the_group_waits_for_what_it_had(
    tool: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner may still be at work: whoever removed it looks at an idle partition otherwise."""
    member = join_as(tool, "g", "t")
    sync_as(tool, "g", member)

    assert remove("--member", member, "--reason", "stuck") == OK

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "1 member of g removed",
        "g waits until 1 former owner must have stopped; see: coord groups describe g",
    ]
    assert remove("--member", member, "--format", "json") == FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["_command"] == "groups remove-members"
    assert told["members"] == [
        {"consumer-id": member, "instance": None, "error": "UNKNOWN_MEMBER_ID"}
    ]
    assert told["waits-for"] == [
        {"consumer-id": member, "client-id": "app", "reason": "has not stopped"}
    ]


def test_static_members_are_removed_by_instance_and_the_unknown_are_told(
    tool: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two hosts that were given up one had left before."""
    join_as(tool, "g", "t", instance="till-1")

    assert remove("--instance", "till-1", "--instance", "till-2") == FAILED

    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "GROUP  CONSUMER-ID  INSTANCE  ERROR",
        "g      -            till-2    UNKNOWN_MEMBER_ID",
    ]
    assert told.err == "1 member of g removed\n"


def test_all_members_are_removed(tool: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice: the second finds nobody, and that is what was wanted."""
    join_as(tool, "g", "t")

    assert [remove("--all"), remove("--all")] == [OK, OK]

    removed = capsys.readouterr().err.splitlines()
    assert removed == ["1 member of g removed", "0 members of g removed"]
    assert tool.describe_group("g").state == "Empty"


def test_what_is_done_is_told_also_when_nobody_says_for_whom_the_group_waits(
    tool: Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job stops right after it has removed the member."""
    member = join_as(tool, "g", "t")

    def silent(*_: object) -> None:
        raise CannotReach("no answer")

    monkeypatch.setattr(Admin, "describe_group", silent)
    assert remove("--member", member, "--format", "json") == OK

    told = capsys.readouterr()
    assert json.loads(told.out)["waits-for"] is None
    assert told.err.splitlines()[-1].startswith("The coordinator did not answer for which members")


@pytest.mark.parametrize(
    "whom", [[], ["--all", "--member", "m"], ["--member", "m", "--instance", "i"]]
)
def test_whom_to_remove_is_said_in_exactly_one_way(
    whom: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--all` beside a name is a slip of which nobody knows the meaning."""
    assert remove(*whom) == USAGE

    assert "one of --member ID …, --instance ID … and --all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], ["a", "b", "c", "d"]),
        (["--state", "stable"], ["a", "d"]),
        (["--state", "EMPTY,stable"], ["a", "b", "d"]),
        (["--state", "Empty", "--state", "PreparingRebalance"], ["b", "c"]),
        (["--state", "quarantined"], ["d"]),
    ],
)
def test_groups_are_listed_by_state(
    given: list[str],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """testListGroupsWithStates: in whatever letters, as Kafka's tool takes them."""
    states = {"a": "Stable", "b": "Empty", "c": "PreparingRebalance", "d": "Stable"}
    seen = [SeenGroup(g, "classic", s, is_quarantined=g == "d") for g, s in states.items()]
    monkeypatch.setattr(view, "read_groups", lambda *_: seen)
    monkeypatch.setattr(Where, "reach", lambda _: {})

    assert main(["groups", "list", *given, *WHERE]) == OK

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == names


def test_a_state_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list would read as: no such groups."""
    assert main(["groups", "list", "--state", "Idle", *WHERE]) == USAGE

    assert "Idle is no state of a group" in capsys.readouterr().err
