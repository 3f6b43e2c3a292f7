"""Elections as pure functions. Kafka's own tests have these cases: see tests/conformance."""

from typing import Any

import pytest

from coordlib.core.controller import leadership
from coordlib.core.controller.leadership import Elected

R = (1, 2, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (leadership.elect_first(R, {2, 3}), Elected("first", 2, (2, 3))),
        (leadership.elect_first(R, set()), None),
        (leadership.elect_offline(R, (3, 2), {2, 3}), Elected("offline", 2, (3, 2))),
        (leadership.elect_offline(R, (3,), {1, 2}), None),
        (leadership.elect_offline(R, (), {1, 2}), None),
        (leadership.elect_shutdown(R, R, {2, 3}, {1}), Elected("shutdown", 2, (2, 3))),
        (leadership.elect_shutdown(R, R, {3}, {1, 2}), Elected("shutdown", 3, (3,))),
        (leadership.elect_shutdown(R, (1,), {2, 3}, {1}), None),
        (leadership.elect_preferred(R, (2, 1), {1, 2}), Elected("preferred", 1, (2, 1))),
        (leadership.elect_preferred(R, (2, 3), {1, 2}), None),
        (leadership.elect_preferred(R, R, {2, 3}), None),
        (leadership.elect_reassigned((2, 3), (1, 2, 3), {1, 3}), Elected("reassign", 3, (2, 3))),
        (leadership.elect_reassigned((2, 3), (1,), {1, 2, 3}), None),
        (leadership.elect_unclean(R, (1,), {2, 3}), Elected("unclean", 2, (2,), recovering=True)),
        (leadership.elect_unclean(R, (1,), {1, 2}), None),
        (leadership.elect_unclean(R, (), set()), None),
    ],
)
def test_who_is_elected(found: Any, expected: Any) -> None:
    """INV-77: clean elections choose from the ISR; an unclean one only where no clean one could."""
    assert found == expected
