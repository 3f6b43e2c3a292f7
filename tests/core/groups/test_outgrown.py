"""INV-67: what cannot be judged or written sets one group aside, and all others go on.

With the settings of production: nothing is checked after a step that its transitions do not check.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import EVENTS, GROUPS, EffectTooLarge, Output
from coordlib.core.engine.state import ShardSettings
from coordlib.core.groups.assigned.protocol import ASSIGNED, Assigned
from coordlib.core.groups.classic.protocol import CLASSIC, Classic
from coordlib.core.groups.kind import GroupKind
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from coordlib.job.batch import judge_readable
from coordlib.job.pipelines import fold_groups
from tests.tools.assigned_groups import subscribe, topics
from tests.tools.core import Fold, InputRecord, Shard, fold, restore
from tests.tools.defects import Poison
from tests.tools.driving import (
    SETTINGS,
    START_MS,
    Conversation,
    commit,
    describe,
    heartbeat,
    join,
    release,
)

PRODUCTION = msgspec.structs.replace(SETTINGS, checks_invariants=False)


def in_order(*requests: api.AnyRequest) -> list[InputRecord]:
    return [
        InputRecord("r", n, START_MS + 10 * n, codec.encode(each))
        for n, each in enumerate(requests)
    ]


def in_pieces(log: list[InputRecord], how: ShardSettings) -> tuple[bytes | None, list[Output]]:
    """The same log, one record to a batch."""
    blob, outputs = None, []
    for record in log:
        part = fold(blob, [record], how)
        blob = part.blob
        outputs += part.outputs
    return blob, outputs


def saved(outputs: list[Output]) -> dict[str, Any]:
    """The groups' newest records."""
    found = {o.key.decode(): o.value for o in outputs if o.topic == GROUPS}
    return {name: msgspec.json.decode(value) for name, value in found.items() if value}


def set_aside(outputs: list[Output]) -> list[dict[str, Any]]:
    lines = [msgspec.json.decode(o.value) for o in outputs if o.topic == EVENTS and o.value]
    return [line for line in lines if line["type"] == "GroupQuarantined"]


# ---- a step that would make a group too large ---------------------------------------------------


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission lets through more than a record may have: a defect of its arithmetic."""
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 2_500)


def growing(group: str = "g") -> list[api.AnyRequest]:
    return [join(f"m{n}", group=group, protocols={"range": b"m" * 200}) for n in range(6)]


@pytest.mark.usefixtures("small_records")
def test_a_step_that_makes_a_group_too_large_is_not_taken() -> None:
    """Its group is set aside as it was before, and saved so; other groups of the shard go on."""
    talk = Conversation(PRODUCTION)
    answers = [talk.send(each)[0] for each in growing()]
    number = next(n for n, each in enumerate(answers) if "Quarantined" in each)
    other = talk.send(join("a", group="other"))

    assert 2 < number < 6
    assert list(talk.group().members) == [f"m{n}-t-0-{n}" for n in range(number)]
    assert talk.group().is_quarantined
    assert "COORDINATOR_NOT_AVAILABLE" in answers[number + 1]
    assert other[-1].startswith("event[other] GenerationStarted")
    talk.end_batch()
    records = saved(talk.outputs)
    assert list(records["g"]["members"]) == list(talk.group().members)
    assert len(codec.encode(records["g"])) <= limits.RECORD_BYTES_MAX
    assert "its record would have" in set_aside(talk.outputs)[0]["detail"]["exception"]


@pytest.mark.usefixtures("small_records")
def test_which_step_that_is_does_not_depend_on_the_batch() -> None:
    """INV-02: at the end of a batch another member would have been one too many."""
    log = in_order(*growing(), join("a", group="other"), *growing("more"))
    whole = fold(None, log, PRODUCTION)
    blob, outputs = in_pieces(log, PRODUCTION)

    assert blob == whole.blob
    assert set_aside(outputs) == set_aside(whole.outputs)
    assert saved(outputs) == saved(whole.outputs)
    assert len(set_aside(outputs)) == 2


@pytest.mark.usefixtures("small_records")
def test_a_group_that_is_too_large_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be set aside again at its next step: the operator is told to fix the job first."""
    talk = Conversation(PRODUCTION)
    for each in growing():
        talk.send(each)
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 1_000)

    assert talk.send(release("ops")) == ["answer ops#q ReleaseQuarantine INVALID_REQUEST"]
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", limits.OUTPUT_BYTES_MAX)
    assert talk.send(release("ops"))[0].startswith("event GroupReleased")


# ---- the end of a batch -------------------------------------------------------------------------


@contextmanager
def unwritable(kind: Any, *functions: str, name: str = "g") -> Iterator[None]:
    """A defect: these functions of a kind raise for one group."""
    whole = [(each, getattr(kind, each)) for each in functions]

    def broken(function: Callable[..., Any]) -> Callable[..., Any]:
        def raising(group: Any, *rest: Any) -> Any:
            if group.group == name and not group.is_quarantined:
                raise Poison("a defect")
            return function(group, *rest)

        return raising

    with patch.multiple(kind, **{each: broken(function) for each, function in whole}):
        yield


#: A kind's machine, and what makes a group of it and changes it.
KINDS = {
    "classic": (CLASSIC, join("a"), join("b")),
    "assigned": (ASSIGNED, subscribe("a"), subscribe("b")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("defects", [("save",), ("encode",), ("encode", "save")])
def test_what_cannot_be_written_at_the_end_sets_its_group_aside(
    kind: str, defects: tuple[str, ...]
) -> None:
    """The last resort: whatever it is, the task must not fail, or the batch comes for ever."""
    machine, first, second = KINDS[kind]
    begun = fold(None, in_order(topics({"t": 2}), first), PRODUCTION)
    log = in_order(topics({"t": 2}), first, second, msgspec.structs.replace(first, group="other"))
    with unwritable(machine, *defects):
        rows = judge_readable(fold_groups, begun.blob, log, PRODUCTION)[1]
        done = fold(begun.blob, log, PRODUCTION)

    assert len(rows) == 2  # outputs, and the report
    (line,) = set_aside(done.outputs)
    assert (line["group"], line["kind"], line["reason"]) == ("g", kind, "Poison")
    assert line["cause"] == "r0-3"
    group = saved(done.outputs)["g"]
    assert group.pop("is_quarantined")
    before = saved(begun.outputs)["g"]
    assert not before.pop("is_quarantined")
    assert group == before
    assert not saved(done.outputs)["other"]["is_quarantined"]
    _assert_ids_are_unique(done)
    goes_on(done)


def goes_on(done: Fold) -> None:
    """The group is judged no more, another one is; and the next batch is written, too."""
    log = [
        InputRecord("r", n, START_MS + 10 * n, codec.encode(each))
        for n, each in enumerate([describe("ops"), describe("ops", group="other")], start=4)
    ]
    after = fold(done.blob, log, PRODUCTION)
    errors = [
        msgspec.json.decode(o.value)["error"] for o in after.outputs if b'"id":"d"' in o.value
    ]

    assert errors == ["COORDINATOR_NOT_AVAILABLE", "NONE"]
    assert Shard(done.blob, PRODUCTION).groups["g"].value.is_quarantined


def _assert_ids_are_unique(done: Fold) -> None:
    """INV-36: the line is told at a record that has told lines itself."""
    ids = [msgspec.json.decode(o.value)["event_id"] for o in done.outputs if o.topic == EVENTS]
    assert len(set(ids)) == len(ids)


def test_a_group_that_never_was_written_is_saved_as_an_empty_one() -> None:
    """Offsets of it may stand in their topic: a rebuild must find the group that they are of."""
    log = in_order(join("a"), commit("a", 1, "a-t-0-0"), join("a", group="other"))
    with unwritable(CLASSIC, "save"):
        done = fold(None, log, PRODUCTION)

    records = [o.value for o in done.outputs if o.topic == GROUPS and o.value]
    committed = [(o.key, o.value) for o in done.outputs if o.topic == "committed" and o.value]
    rebuilt = Shard(restore(records, committed, done.status.position), PRODUCTION)
    assert saved(done.outputs)["g"]["members"] == {}
    assert rebuilt.groups["g"].value.is_quarantined
    assert sum(rebuilt.groups["g"].counts.values()) == len(committed)


def test_a_quiet_heartbeat_after_it_takes_no_number_of_a_line() -> None:
    """INV-36: the line is told at the newest record, which need not be the one that did it."""
    talk = Conversation(PRODUCTION)
    talk.send(join("a"))
    log = [
        *talk.log,
        *(
            InputRecord(topic, n, START_MS, codec.encode(each))
            for topic, n, each in [
                ("r", 1, heartbeat("a", 1, "a-t-0-0")),
                (COMMITS, 0, commit("x", group="new")),
            ]
        ),
    ]
    for cut in (1, 2, 3):
        with unwritable(CLASSIC, "save"):
            done = fold(None, log[:cut], PRODUCTION)
        assert len(set_aside(done.outputs)) == 1
        _assert_ids_are_unique(done)


# ---- beside the steps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "request_"),
    [
        ("outputs_visible", api.Tick(v=1, published=1)),
        ("facts", api.Tick(v=1, published=1)),
        ("facts", join("b")),
        ("sessions", join("b")),
    ],
)
def test_a_defect_beside_a_step_sets_its_group_aside(
    function: str, request_: api.AnyRequest
) -> None:
    """What the shard asks of a group by itself may break, too: when a tick covers it, when its row
    is renewed. Its answer is not written then, as nothing of it happened."""
    talk = Conversation(PRODUCTION)
    talk.send(join("a"))
    talk.send(join("a", group="other"))
    with unwritable(CLASSIC, function):
        lines = talk.send(request_)
        talk.tick(after_ms=20_000)
    talk.end_batch()

    assert [line["group"] for line in set_aside(talk.outputs)] == ["g"]
    assert list(talk.group().members) == ["a-t-0-0"]
    assert talk.group().is_quarantined
    assert not [line for line in lines if line.startswith("event MemberJoined")]
    assert not talk.group("other").is_quarantined


def test_a_defect_in_a_release_leaves_the_group_set_aside() -> None:
    """The operator hears that it is not available, and may try again when the job is fixed."""
    talk = Conversation(PRODUCTION)
    talk.send(join("a"))
    with unwritable(CLASSIC, "outputs_visible"):
        talk.tick()

    def raising(*_: object) -> None:
        raise Poison("a defect")

    with patch.object(CLASSIC, "restart", raising):
        lines = talk.send(release("ops"))

    assert lines[-1] == "answer ops#q ReleaseQuarantine COORDINATOR_NOT_AVAILABLE"
    assert talk.group().is_quarantined
    assert talk.send(release("ops"))[-1] == "answer ops#q ReleaseQuarantine"


def test_an_output_that_no_record_can_hold_fails_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-43: the bound of one record, met within a step. Nothing of the step is written."""
    talk = Conversation(PRODUCTION)
    talk.send(join("a"))
    monkeypatch.setattr(limits, "OUTPUT_BYTES_MAX", 2 * limits.KIB)

    lines = talk.send(join("b", protocols={"range": b"m", "x" * 200: b"", "y" * 200: b""}))
    large = talk.send(join("c", protocols={"range": b"", **{f"{n:0200}": b"" for n in range(9)}}))

    assert lines[0].startswith("event MemberJoined")
    assert [line.split()[1] for line in large] == ["GroupQuarantined", "c#j1"]
    assert set_aside(talk.outputs)[0]["reason"] == EffectTooLarge.__name__
    assert len(talk.group().members) == 2


@pytest.mark.parametrize("kind", [Classic, Assigned])
def test_a_defect_that_stays_while_a_group_is_set_aside_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, kind: type[GroupKind]
) -> None:
    """INV-42: what is set aside is asked for its facts once more, and the defect is still there."""
    talk = Conversation(PRODUCTION)
    talk.send(join("a") if kind is Classic else subscribe("a"))
    talk.tick()

    def broken(*_: Any) -> None:
        raise Poison("a defect")

    monkeypatch.setattr(kind, "next_due", broken)
    lines = [line for _ in range(40) for line in talk.tick(after_ms=1_000)]

    assert [line.split()[1] for line in lines][-1:] == ["GroupQuarantined"]
    assert talk.group().is_quarantined
    talk.end_batch()
