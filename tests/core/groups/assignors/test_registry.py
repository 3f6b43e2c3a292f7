"""The check that shares are total."""

import pytest

from coordlib.core.groups.assignors.registry import NotTotal, check_total
from coordlib.core.groups.assignors.server_model import Shares
from tests.core.groups.assignors.groups import subscribers

MEMBERS = subscribers({"m": ("a", "b"), "n": ("a",)})
COUNTS = {"a": 3, "b": 1, "unwanted": 2}


def test_shares_that_are_total_pass() -> None:
    """A check that refuses everything would keep every strategy of users out."""
    check_total(MEMBERS, COUNTS, {"m": {"a": (0,), "b": (0,)}, "n": {"a": (1, 2)}})
    check_total(MEMBERS, COUNTS, {"m": {"a": (0, 1, 2), "b": (0,)}, "n": {}})


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({"m": {"a": (0, 1), "b": (0,)}, "n": {"a": (1, 2)}}, "1 of 'a' is given to 'm' and to"),
        ({"m": {"a": (0, 0, 1), "b": (0,)}, "n": {"a": (2,)}}, "0 of 'a' is given to 'm' and to"),
        ({"m": {"a": (0,), "b": (0,)}, "n": {"a": (1,)}}, "2 of 'a' is given to nobody"),
        ({"m": {"a": (0, 1, 2)}, "n": {}}, "0 of 'b' is given to nobody"),
        ({"m": {"a": (0, 1, 2)}, "n": {"b": (0,)}}, "'n' is given 'b' and does not want it"),
        ({"m": {"unwanted": (0,)}, "n": {}}, "'m' is given 'unwanted' and does not want it"),
        ({"m": {"gone": (0,)}, "n": {}}, "'m' is given 'gone' and does not want it"),
        ({"m": {"a": (0, 1, 2), "b": (0, 1)}, "n": {}}, "1 of 'b' is given and does not exist"),
        ({"m": {"a": (-1, 0, 1), "b": (0,)}, "n": {}}, "-1 of 'a' is given and does not exist"),
        ({"m": {"a": (0, 1, 2), "b": (0,)}}, "'n' is left out"),
        ({"m": {}, "n": {}, "o": {}}, "'o' is given a share and is no member"),
    ],
)
def test_shares_that_are_not_total_are_refused(shares: Shares, sentence: str) -> None:
    """A strategy of a user forgot somebody, or something, or counted wrong."""
    with pytest.raises(NotTotal, match=sentence):
        check_total(MEMBERS, COUNTS, shares)
