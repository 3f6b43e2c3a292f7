"""No setting may reach a judgement: one that must be equal everywhere will one day differ."""

import ast
from pathlib import Path

import pytest

from coordlib.config import ShardConfig
from coordlib.core.claims import world
from coordlib.core.claims.fold import fold
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import EVENTS
from coordlib.core.engine.state import ShardSettings
from tests.tools.claims import driving, logs

FOLDER = Path(world.__file__).parent
#: What a client runs, and what a judgement follows from.
JUDGING = ("world", "slots", "snapshots")
#: Constants of the protocol, the wire, and the library that writes snapshots.
ALLOWED = (
    *("coordlib.limits", "coordlib.core.wire.claims", "coordlib.core.claims"),
    "coordlib.core.engine.effects",
)


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("name", JUDGING)
def test_what_judges_imports_neither_settings_nor_configuration(name: str) -> None:
    """Nor a clock, nor anything else of the engine."""
    ours = {each for each in imported(FOLDER / f"{name}.py") if each.startswith("coordlib")}

    assert {each for each in ours if not each.startswith(ALLOWED)} == set()
    assert "coordlib.core.claims.fold.Coordination" not in ours


def test_a_world_is_made_of_the_logs_names_alone() -> None:
    """Topic, partition, number of partitions; where reading begins; nothing else."""
    arguments = World.__init__.__annotations__.keys() - {"return"}

    assert arguments == {"topic", "partition", "partitions", "is_late", "positions"}


def test_other_settings_give_the_same_outcome() -> None:
    """Two jobs that are configured in two ways tell one history."""
    plain = driving.settings()
    other = ShardSettings(
        shard=0,
        shards=1,
        reply_partitions=7,
        incarnation=plain.incarnation,
        bounds=ShardConfig(check_interval_ms=1_000),
        families=plain.families,
    )
    log = logs.hostile(3, 200)
    one, two = fold(None, log, plain), fold(None, log, other)

    assert one == two
    assert any(each.topic == EVENTS for each in one.outputs)
