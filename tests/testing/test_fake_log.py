"""The log that stands in for Kafka and the job: what tests write is judged, whoever judges."""

import pytest

from coordlib.core.engine.fold import fold
from coordlib.core.wire import api
from coordlib.testing import fake_log
from coordlib.testing.fake_log import FakeLog


def heartbeat(number: int) -> api.Heartbeat:
    return api.Heartbeat(v=1, id=f"a-{number}", client="c", group="g", member="m", generation=1)


def test_what_is_written_during_a_batch_is_judged_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread judges (`tests.tools.background`), and the record of a test was lost."""
    log, late = FakeLog({}), [heartbeat(2)]

    def folded(*given: object) -> object:
        done = fold(*given)  # type: ignore[arg-type]
        if late:
            log.append(0, late.pop())
        return done

    monkeypatch.setattr(fake_log, "fold", folded)
    log.append(0, heartbeat(1))
    log.pump()
    log.pump()

    assert sorted(api_id(each.value) for each in log.responses) == ["a-1", "a-2"]


def api_id(value: bytes | None) -> str:
    assert value is not None
    return str(fake_log.codec.decode_response(value).id)  # type: ignore[union-attr]
