"""What the command that plays worlds tells whoever uses it wrongly."""

import pytest

from coordlib.cli.kit.output import error_fields
from coordlib.errors import SetupError
from tests.tools.sim import sim
from tests.tools.simulation.campaign import CLAIMS, GROUPS, WORLDS


def test_a_wrong_fault_is_answered_with_all_that_there_are() -> None:
    """Its help says so. A long line is shown in part, and the last kinds were never seen."""
    with pytest.raises(SetupError) as wrong:
        sim(fault=["bogus"])

    shown = error_fields(wrong.value)["hint"]
    named = shown.removeprefix("There are: ").replace("\n", " ").split(", ")
    assert named == [*WORLDS[GROUPS].kinds, *WORLDS[CLAIMS].kinds]
