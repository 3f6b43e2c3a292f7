"""The broker's clock, by which all requests are stamped, is set while everybody works."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.stack.chaos.clock import BrokerClock, works
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import GROUP, SESSION_MS, Scene, sleep_for_ms
from tests.stack.truths import committed, last_sign_of_life_ms

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

NAMES: Final = ("a", "b", "c", "d")
HOUR_MS: Final = 3_600_000


@pytest.fixture
def libfaketime() -> Any:
    """To be asked for before the stack is started."""
    library = pytest.importorskip("libfaketime", reason="the extra `chaos` is not installed")
    if not works(library):
        pytest.skip("libfaketime has no binary for this machine")
    return library


def test_the_brokers_clock_is_set_an_hour_ahead_and_back(
    libfaketime: Any, scene: Scene, tmp_path: Path, tell: Tell
) -> None:
    """Somebody sets it wrong, and an hour of the log's time passes at once; then somebody sets it
    right (F-10). Healthy members notice nothing, in two sessions after each jump. Who dies under
    either clock is missed after one session of it, not at once and not an hour later.
    # INV-06  # INV-30"""
    clock = BrokerClock(libfaketime, scene.stack.broker, tmp_path / "clock")
    scene.start_job()
    scene.crew_works(*NAMES)
    staying = list(NAMES)
    silent_ms = []
    for what, ahead_ms in (("fault", HOUR_MS), ("healed", 0)):
        kept, expelled = committed(scene.wire, GROUP), scene.expelled()
        scene.mark()
        scene.note(what, f"the broker's clock is {ahead_ms} ms ahead")
        clock.set_ahead(ahead_ms)
        sleep_for_ms(2 * SESSION_MS)
        scene.job_goes_on()
        scene.is_undisturbed()
        assert scene.expelled() == expelled
        now = committed(scene.wire, GROUP)
        assert all(now[place] >= offset for place, offset in kept.items())
        silent_ms.append(_dies(scene, staying.pop(), staying))

    assert scene.expelled() == ["session expired"] * 2
    ahead_s, back_s = (each / 1000 for each in silent_ms)
    tell(
        f"nobody told; who died was put out after {ahead_s:.1f} s, then after {back_s:.1f} s: "
        f"{scene.ends_well()}"
    )


def _dies(scene: Scene, name: str, staying: list[str]) -> int:
    """Kill one, and wait until the others have its share; how long it had been silent by the
    broker's clock when it was put out."""
    scene.crew.kill(name)
    scene.crew.until_shared(scene.flow.places, *staying)
    member = scene.crew[name].member
    (removed,) = [e for e in scene.wire.events(GROUP, "MemberRemoved") if e["member"] == member]
    silent_ms: int = removed["time_ms"] - last_sign_of_life_ms(scene.wire, GROUP, member)
    assert SESSION_MS <= silent_ms <= 2 * SESSION_MS
    return silent_ms
