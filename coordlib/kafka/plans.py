"""The plan of each of the engine's topics, read from `coordlib/conf/topics.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coordlib.core.wire.own_topics import CLAIMS_LAG, LAG
from coordlib.errors import SetupError
from coordlib.installation import conf_file

#: Topics that may be lost and created again: no decision depends on them. By their names below the
#: prefix of their plane, and below that of the groups.
REPLACEABLE = frozenset({LAG, CLAIMS_LAG})
#: Tables of topics.toml: the topics of the groups' plane, and those of the claims plane.
GROUPS_TABLE, CLAIMS_TABLE = "topics", "claims"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The required properties of one topic."""

    name: str  # without the prefix: "requests"
    partitions: Literal["shards", "responses"] | int
    config: Mapping[str, str]

    def count(self, shards: int, responses: int) -> int:
        """Its partitions in a prefix with so many shards and response partitions."""
        match self.partitions:
            case "shards":
                return shards
            case "responses":
                return responses
            case fixed:
                return fixed


def read_plans(path: Path | None = None, plane: str = GROUPS_TABLE) -> tuple[TopicPlan, ...]:
    """The plans of one plane in coordlib/conf/topics.toml, or in another file of that form.

    Raises:
        SetupError: there is no such file, or it is not TOML.
    """
    path = path or conf_file("topics.toml")
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(
            "The topics' plan cannot be read.",
            f"{path}: {error}",
            "Restore it, or install coordlib again.",
        ) from error
    return tuple(
        TopicPlan(name, topic["partitions"], table["defaults"] | topic["config"])
        for name, topic in table[plane].items()
    )
