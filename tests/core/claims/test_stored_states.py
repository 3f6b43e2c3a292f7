"""What deployments of claims have on disk: states of every version are read, and go on."""

from pathlib import Path

import msgspec
import pytest

from coordlib.core.claims import fold as restore
from coordlib.core.claims.fold import STATE_VERSION, decode_blob, fold
from coordlib.core.claims.slots import Slot
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.state import UnknownStateVersion
from tests.tools import stored_claims
from tests.tools.claims.driving import TOPIC
from tests.tools.stored_claims import HOWS, SETTINGS

FOLDER = Path(__file__).parent / "stored_states"
FIXTURES = sorted(FOLDER.glob("v*.json"))
EXACT = stored_claims.read(stored_claims.path_of(STATE_VERSION, folder=FOLDER))
LATE = stored_claims.read(stored_claims.path_of(STATE_VERSION, "-late", FOLDER))


def name_of(path: Path) -> str:
    return path.stem


def test_each_version_has_its_fixtures() -> None:
    """INV-08: a version that was raised without them would be tested by nobody."""
    expected = {f"v{n + 1}{how}" for n in range(STATE_VERSION) for how in HOWS}

    assert {name_of(path) for path in FIXTURES} == expected


@pytest.mark.parametrize("how", HOWS)
def test_todays_code_stores_what_the_fixture_holds(how: str) -> None:
    """INV-08: if this fails, the layout changed, and checkpoints of the release cannot know it.

    Raise STATE_VERSION, then: python -m tests.tools.stored_claims
    """
    kept, made = (LATE if how else EXACT), stored_claims.made(how)

    assert made.blob == kept.blob
    assert _unpacked(made.pages) == _unpacked(kept.pages)
    assert (made.behind, made.log) == (kept.behind, kept.log)


def _unpacked(pages: dict[str, bytes]) -> object:
    """What zlib makes of it is its own affair."""
    return read_pages(pages.values())


@pytest.mark.parametrize("path", FIXTURES, ids=name_of)
def test_a_stored_state_goes_on_as_it_would_have(path: Path) -> None:
    """INV-08: a job is upgraded between two batches; no reader of the log must notice.

    If the difference is meant: python -m tests.tools.stored_claims --outputs
    """
    fixture = stored_claims.read(path)

    assert fixture.go_on(fixture.blob) == fixture.outputs


@pytest.mark.parametrize("path", FIXTURES, ids=name_of)
def test_a_snapshot_of_any_version_can_be_rebuilt_from(path: Path) -> None:
    """INV-08, INV-65: clients begin with it too, of whatever age they are."""
    fixture = stored_claims.read(path)
    rebuilt = fixture.rebuilt()

    assert fixture.go_on(rebuilt) == fixture.outputs_after_rebuild
    ours, theirs = (restore.begun(blob, SETTINGS) for blob in (rebuilt, fixture.blob))
    assert ours.snapshot() == theirs.snapshot()


def test_a_newer_version_is_refused_in_one_sentence() -> None:
    """INV-08: a job that went back to older code would forget what it cannot read."""
    newer = msgspec.msgpack.decode(EXACT.blob)
    newer[0] = STATE_VERSION + 1

    with pytest.raises(UnknownStateVersion, match="--rebuild"):
        fold(msgspec.msgpack.encode(newer), [], SETTINGS)
    with pytest.raises(msgspec.ValidationError):
        fold(msgspec.msgpack.encode([*msgspec.msgpack.decode(EXACT.blob), "new"]), [], SETTINGS)


def test_the_fixtures_are_rich() -> None:
    """INV-08: a field that no stored state uses could change unseen."""
    stored = [decode_blob(each.blob) for each in (EXACT, LATE)]
    worlds = [World.restore(each.world, TOPIC, 0, 1) for each in stored]
    slots = [slot for world in worlds for slot in world.slots.values()]
    plain = Slot("", "", -1, 0)

    for name in Slot.__struct_fields__:
        assert {getattr(slot, name) for slot in slots} - {getattr(plain, name)}, name
    for name in {*stored[0].__struct_fields__} - {"gap_from"}:  # told with the first record
        assert any(getattr(each, name) for each in stored), name
    assert all(world.pauses for world in worlds)
    assert [world.is_late for world in worlds] == [False, True]
    assert {True, False} == {
        world.is_live(slot) for world in worlds for slot in world.slots.values()
    }
