"""Groups that newer code wrote: they are listed as such, and end no command."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.cli.groups import view
from coordlib.cli.groups.view import SeenGroup, _group, wants
from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.core import registry
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import codec, stored
from coordlib.exit_codes import OK
from coordlib.kafka.lag import UNKNOWN
from tests.tools.driving import settled

WHERE = ["--bootstrap-servers", "localhost:9", "--prefix", "coord"]
COMMITTED = stored.CommittedValue(
    offset=7, leader_epoch=-1, metadata="", commit_ms=0, commit_clock_ms=0, generation=3, member="m"
)


def saved(**changed: Any) -> bytes:
    """A classic group of two, with other fields."""
    return codec.encode(json.loads(CLASSIC.save(settled().group())) | changed)


def without(field: str) -> bytes:
    value = json.loads(saved())
    del value[field]
    return codec.encode(value)


NEWER = {
    "another kind": saved(kind="shared"),
    "a newer version": saved(v=2),
    "a newer version of other types": saved(v=2, members=[], state={"now": 1}, generation="9"),
    "a newer kind of other types": saved(kind="shared", v=[2], state=3, is_quarantined="no"),
    "a kind alone": b'{"kind":"shared"}',
    "a state that is none": saved(state="Waiting"),
    "no name": without("group"),
}


@pytest.mark.parametrize("name", NEWER)
def test_what_newer_code_wrote_is_a_group_without_members(name: str) -> None:
    """To guess at members or owners from fields of another meaning would mislead an operator."""
    seen = _group(b"g", NEWER[name])

    assert seen is not None
    assert seen.unreadable is not None
    assert (seen.group, seen.member_count, dict(seen.members)) == ("g", None, {})
    assert (seen.waits_for, seen.failure, seen.leader) == ((), None, None)
    assert view._owners(seen) == {}
    assert not wants(seen, "t")


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b"not ours", b'{"kind":7}'])
def test_what_is_no_group_is_left_out(value: bytes) -> None:
    """Whoever may write into the topic must not be able to end the command."""
    assert _group(b"g", value) is None


def test_a_key_that_is_no_name_is_left_out() -> None:
    assert _group(b"\xff", saved()) is None


def test_a_kind_that_has_a_decoder_and_no_description_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third kind is registered before this command learns to show it."""
    monkeypatch.setitem(registry.REGISTRY.kinds, "room", registry.REGISTRY.kinds["classic"])
    seen = _group(b"g", saved(kind="room"))

    assert seen is not None
    assert seen.unreadable == "kind room, version 1"


class Broker:
    """One shard with these groups, and committed offsets of `g`."""

    def __init__(self, *groups: tuple[bytes, bytes]) -> None:
        self.topics = {
            "coord.groups": dict(groups),
            "coord.committed": {codec.encode(["g", "t", 0]): codec.encode(COMMITTED)},
        }

    def newest_by_key(self, _: Any, topic: str, __: int) -> dict[bytes, bytes]:
        return self.topics[topic]


def serve(monkeypatch: pytest.MonkeyPatch, *groups: tuple[bytes, bytes]) -> None:
    broker = Broker(*groups)
    monkeypatch.setattr(view, "newest_by_key", broker.newest_by_key)
    monkeypatch.setattr(view, "read_as_of", lambda *_: None)
    monkeypatch.setattr(view, "read_lag", lambda *given: dict.fromkeys(given[-1], UNKNOWN))
    metadata = SimpleNamespace(error=None, partitions={0: None})
    monkeypatch.setattr(Where, "reach", lambda _: {"coord.groups": metadata})


def test_all_groups_are_listed_and_the_unreadable_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(
        monkeypatch,
        (b"a", saved(kind="sh\x1b[2J")),
        (b"b", saved(v=2)),
        (b"c", saved()),
        (b"d", b'{"kind":"shared"}'),
    )
    assert main(["groups", "list", *WHERE]) == OK

    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "GROUP  STATE               MEMBERS  GENERATION  PROTOCOL",
        "a      Unreadable(Stable)  -        2           range",
        "b      Unreadable(Stable)  -        2           range",
        "c      Stable              2        2           range",
        "d      Unreadable          -        -           -",
    ]
    assert told.err.splitlines()[0] == (
        "3 groups cannot be read by this version of coord: a is of kind sh\\x1b[2J, version 1. "
        "Install the version that the job has."
    )

    assert main(["groups", "list", "--state", "unreadable", *WHERE]) == OK
    listed = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in listed] == ["a", "b", "d"]


def test_a_list_by_topic_tells_that_it_may_lack_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before somebody deletes the topic: a group that cannot be read may read it."""
    serve(monkeypatch, (b"g", saved(v=2)))
    assert main(["groups", "list", "--topic", "t", "--format", "json", *WHERE]) == OK

    told = capsys.readouterr()
    assert json.loads(told.out)["groups"] == []
    assert told.err.startswith("1 group cannot be read by this version of coord: g is of kind")


def test_describe_shows_offsets_of_a_group_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Committed offsets lie beside the group, and are read all the same."""
    serve(monkeypatch, (b"g", saved(kind="shared")))
    assert main(["groups", "describe", "g", *WHERE]) == OK

    told = capsys.readouterr()
    facts = dict(line.split(maxsplit=1) for line in told.out.partition("\n\n")[0].splitlines())
    assert (facts["KIND"], facts["STATE"], facts["MEMBERS"]) == (
        "shared",
        "Unreadable(Stable)",
        "-",
    )
    assert told.out.splitlines()[-1].split()[:4] == ["g", "t", "0", "7"]
    assert "has no members" not in told.err
    assert "1 group cannot be read" in told.err

    assert main(["groups", "describe", "g", "--format", "json", *WHERE]) == OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["unreadable"] == "kind shared, version 1"
    assert (answer["members"], answer["waits-for"]) == ([], [])


def test_a_group_of_this_version_is_readable() -> None:
    seen = _group(b"g", saved())

    assert isinstance(seen, SeenGroup)
    assert (seen.unreadable, seen.member_count, seen.state) == (None, 2, "Stable")
