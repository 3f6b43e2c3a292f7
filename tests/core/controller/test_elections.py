"""Elections as pure functions. Kafka's own tests have these cases: see tests/conformance."""

from typing import Any

import pytest

from coordlib.core.controller import elections
from coordlib.core.controller.elections import Elected

R = (1, 2, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (elections.first(R, {2, 3}), Elected("first", 2, (2, 3))),
        (elections.first(R, set()), None),
        (elections.offline(R, (3, 2), {2, 3}), Elected("offline", 2, (3, 2))),
        (elections.offline(R, (3,), {1, 2}), None),
        (elections.offline(R, (), {1, 2}), None),
        (elections.shutdown(R, R, {2, 3}, {1}), Elected("shutdown", 2, (2, 3))),
        (elections.shutdown(R, R, {3}, {1, 2}), Elected("shutdown", 3, (3,))),
        (elections.shutdown(R, (1,), {2, 3}, {1}), None),
        (elections.preferred(R, (2, 1), {1, 2}), Elected("preferred", 1, (2, 1))),
        (elections.preferred(R, (2, 3), {1, 2}), None),
        (elections.preferred(R, R, {2, 3}), None),
        (elections.reassign((2, 3), (1, 2, 3), {1, 3}), Elected("reassign", 3, (2, 3))),
        (elections.reassign((2, 3), (1,), {1, 2, 3}), None),
        (elections.unclean(R, (1,), {2, 3}), Elected("unclean", 2, (2,), recovering=True)),
        (elections.unclean(R, (1,), {1, 2}), None),
        (elections.unclean(R, (), set()), None),
    ],
)
def test_who_is_elected(found: Any, expected: Any) -> None:
    """INV-77: clean elections choose from the ISR; an unclean one only where no clean one could."""
    assert found == expected
