"""When the end of the responses is asked for: a request to a broker each time."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from coordlib.client.kit.reading import ResponseReader

END = 7


class CountingReader(ResponseReader):
    """A reader without a broker: the end is known at once, and reached."""

    def __init__(self, read_ms: int) -> None:
        self._asked_ms = self._looked_ms = 0
        self._answer = self._goal = None
        self._is_proved = False
        self._position, self.read_ms = END, read_ms
        self.asked = 0

    def _ask_end(self, timeout_s: float, metadata_s: float | None = None) -> "Future[Any]":
        self.asked += 1
        answer: Future[Any] = Future()
        answer.set_result(type("Found", (), {"offset": END})())
        return answer


def asked_in(
    seconds: int, lasts_ms: Callable[[], int | None], progress_every_ms: int | None
) -> CountingReader:
    """A reader whose thread goes round every 20 ms, for as long."""
    reader = CountingReader(read_ms=100_000)
    for now_ms in range(100_000, 100_000 + seconds * 1_000, 20):
        reader.ask(now_ms, lasts_ms)
        if progress_every_ms and now_ms % progress_every_ms == 0:
            reader.proved(now_ms - 300)
        reader.is_at_end()
    return reader


@pytest.mark.parametrize(
    ("who", "lasts_ms", "progress_every_ms", "per_minute"),
    [
        ("an operator's question, or a member without a membership", None, None, 0),
        ("a member with the default timeouts whose heartbeats are judged", 5_625, 3_000, 0),
        ("the same while the job is away", 5_625, None, 10),
        ("a member with the shortest timeouts, job away", 750, None, 74),
        ("a member that stopped and has to prove that it may work again", 0, None, 119),
    ],
)
def test_the_end_is_asked_for_while_a_fence_depends_on_it_and_nothing_else_tells(
    who: str, lasts_ms: int | None, progress_every_ms: int | None, per_minute: int
) -> None:
    """Ten thousand clients asked twice a second each, most of them for what they had read."""
    reader = asked_in(60, lambda: lasts_ms, progress_every_ms)
    assert reader.asked == pytest.approx(per_minute, abs=2), who


def test_a_reading_is_told_once_and_never_goes_back() -> None:
    """The end was asked for, and a Progress that proves more came before it was reached."""
    reader = CountingReader(read_ms=1_000)
    reader.ask(8_000, lambda: 0)
    reader.ask(8_010, lambda: 0)
    reader.proved(9_000)
    assert reader.is_at_end()
    assert reader.read_ms == 9_000
    assert not reader.is_at_end()
